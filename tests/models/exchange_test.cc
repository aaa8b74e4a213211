// Imported models compute what transformers computes, and go back with the same bytes.
#include <algorithm>
#include <cmath>
#include <set>

#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/models/family.h"
#include "fp4lab/models/published.h"
#include "fp4lab/recipe/recipe_json.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/start/checkpoint_model.h"
#include "fp4lab/train/start/start.h"
#include "tests/models/samples.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

ModelConfig ModelAt(const std::filesystem::path& checkpoint) {
  return ReadModelConfig(ModelOfCheckpoint(checkpoint, "test"), "test");
}

// The logits of the tokens, which are one sequence, (tokens, vocabulary).
std::vector<float> LogitsOf(const std::filesystem::path& checkpoint, const std::string& recipe,
                            std::span<const std::uint16_t> tokens) {
  TrainConfig config;
  config.start = checkpoint.string();
  config.model = ModelAt(checkpoint);
  config.model.sequence = static_cast<int>(tokens.size());
  const std::vector<float> weights = ReadStart(config, "test");
  Model model(config.model, ReadRecipe(recipe, "test"), weights, 1);
  std::vector<float> logits;
  const TensorInspector inspector = [&](const std::string& name, MatrixView<const float> x) {
    if (name != "head.output") return;
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) logits.push_back(x(r, c));
    }
  };
  Pass pass;
  pass.inspector = &inspector;
  model.Forward(pass, tokens);
  return logits;
}

// The largest difference of two lists as a share of the largest element of the second.
double Difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double difference = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::fabs(double{a[i]} - b[i]));
    largest = std::max(largest, std::fabs(double{b[i]}));
  }
  return difference / largest;
}

TEST_CASE("Imported models give the logits of transformers", "[models]") {
  std::set<std::string> families;
  for (const std::string& name : SampleNames()) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const std::filesystem::path checkpoint = folder / "a.fp4lab";
    families.insert(ImportModel({SampleFolder(name), checkpoint}).architecture);
    const NpyArray tokens = ReadNpy(SampleFolder(name) / "tokens.npy"),
                   logits = ReadNpy(SampleFolder(name) / "logits.npy");
    const auto want = logits.As<float>();
    CHECK(Difference(LogitsOf(checkpoint, "fp32", tokens.As<std::uint16_t>()), want) < 1e-5);
    // Operands of linears are rounded to BF16, 2^-9 each; a router may then choose other experts.
    const bool experts = name.find("moe") != name.npos || name == "mixtral";
    const double bf16 = Difference(LogitsOf(checkpoint, "bf16", tokens.As<std::uint16_t>()), want);
    CHECK(bf16 > 1e-4);
    if (!experts) CHECK(bf16 < 5e-2);
  }
  CHECK(families.size() == Families().size());  // every row of the table has a sample
}

TEST_CASE("An imported model goes back with the same bytes", "[models]") {
  for (const std::string& name : SampleNames()) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const Imported imported = ImportModel({SampleFolder(name), folder / "a.fp4lab"});
    CHECK(imported.dtype == "BF16");
    const Exported exported = ExportModel({folder / "a.fp4lab", folder / "out", ""});
    CHECK(exported.parameters == imported.parameters);
    SafetensorsFile there = ReadSafetensors(SampleFolder(name) / "model.safetensors");
    const SafetensorsFile here = ReadSafetensors(folder / "out" / "model.safetensors");
    if (name == "qwen2") {  // whose biases are zeros: another family has none
      CHECK(exported.architecture == "MistralForCausalLM");
      std::erase_if(there.tensors, [](const auto& t) { return t.first.ends_with(".bias"); });
    } else {
      CHECK(exported.architecture == imported.architecture);
    }
    CHECK(here.tensors == there.tensors);
    ImportModel({folder / "out", folder / "b.fp4lab"});
    CHECK(Comparable(ModelAt(folder / "b.fp4lab")) == Comparable(ModelAt(folder / "a.fp4lab")));
  }
}

TEST_CASE("A checkpoint that is no import is exported by an architecture that states it",
          "[models]") {
  const auto exported = [](const Json& members) {
    const TemporaryFolder folder;
    Json json = {{"layers", 2}, {"d_model", 16}, {"heads", 2}, {"ffn", 16}, {"vocabulary", 40}};
    json.update(members, true);
    const ModelConfig model = ReadModelConfig(json, "test");
    TrainConfig config;
    config.model = model;
    std::vector<float> weights(static_cast<std::size_t>(ParameterCount(model)));
    InitializeParameters(config, weights);
    const std::span<const float> payload = weights;
    const std::vector<std::byte> bytes =
        WriteCheckpoint({Json{{"model", ToJson(model)}}, 7}, {&payload, 1});
    WriteFileAtomically(folder / "checkpoint.fp4lab", bytes);
    const Exported done = ExportModel({folder / "checkpoint.fp4lab", folder / "out", ""});
    CHECK(done.dtype == "F32");
    ImportModel({folder / "out", folder / "back.fp4lab"});
    config.start = (folder / "back.fp4lab").string();
    config.model = ModelAt(config.start);
    CHECK(Comparable(config.model) == Comparable(model));
    CHECK(ReadStart(config, "test") == weights);
    return done.architecture;
  };
  const Json swiglu = {{"activation", "swiglu"}};
  const auto with = [&](Json more) {
    more.update(swiglu);
    return more;
  };
  CHECK(exported(Json::object()) == "ArceeForCausalLM");
  CHECK(exported(swiglu) == "LlamaForCausalLM");
  CHECK(exported(with({{"qk_norm", true}, {"head_dim", 6}})) == "Qwen3ForCausalLM");
  CHECK(exported(with({{"window", 3}})) == "MistralForCausalLM");
  CHECK(exported(with({{"no_rope_every", 2}})) == "SmolLM3ForCausalLM");
  CHECK(exported(with({{"parts", {"attention", "moe"}}, {"qk_norm", true}})) ==
        "Qwen3MoeForCausalLM");
  CHECK(exported(with({{"parts", {"attention", "moe"}}})) == "MixtralForCausalLM");
  const std::string error = ErrorOf([&] { exported(with({{"logit_soft_cap", 30}})); });
  CHECK(error.find("no architecture of transformers that fp4lab knows states this model: "
                   "LlamaForCausalLM differs in logit_soft_cap: 30.0 here, absent there") !=
        error.npos);
}

TEST_CASE("Export rounds to the dtype that is asked for and overwrites nothing", "[models]") {
  const TemporaryFolder folder;
  ImportModel({SampleFolder("llama"), folder / "a.fp4lab"});
  for (const std::string dtype : {"F16", "F32"}) {
    ExportModel({folder / "a.fp4lab", folder / dtype, dtype});
    const SafetensorsFile file = ReadSafetensors(folder / dtype / "model.safetensors");
    for (const auto& [name, tensor] : file.tensors) CHECK(tensor.dtype == dtype);
    const Imported again = ImportModel({folder / dtype, folder / (dtype + ".fp4lab")});
    CHECK(again.dtype == dtype);
  }
  CHECK(ErrorOf([&] {
          ExportModel({folder / "a.fp4lab", folder / "F16", ""});
        }).ends_with("F16/config.json: is there already; give another folder"));
  CHECK(ErrorOf([&] {
          ExportModel({folder / "a.fp4lab", folder / "x", "F8"});
        }) == "--dtype: must be BF16, F16 or F32, not \"F8\"");
  CHECK_FALSE(Exists(folder / "x"));
}

}  // namespace
}  // namespace fp4lab
