#include "fp4lab/train/parts/parts.h"

#include <string>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/linear_plan.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

std::string ErrorOfParts(const Json& parts) {
  return ErrorOf([&] { ReadTrainConfig({{"model", {{"parts", parts}}}}, "run.json"); });
}

TEST_CASE("A configuration without parts has attention and MLP and is written as before",
          "[train]") {
  const ModelConfig model = ReadModelConfig(Json::object(), "run.json#/model");
  CHECK(model.parts == std::vector<std::string>{"attention", "mlp"});
  CHECK(ToJson(model).count("parts") == 0);
  const Json mlp = {{"parts", {"mlp"}}};
  CHECK(ToJson(ReadModelConfig(mlp, "run.json#/model"))["parts"] == mlp["parts"]);
}

TEST_CASE("Parts that are unknown, stand twice or are none are refused at their place", "[train]") {
  CHECK(ErrorOfParts({"attention", "mpl"}) ==
        "run.json#/model/parts/1: unknown part \"mpl\"; did you mean \"mlp\"?");
  CHECK(ErrorOfParts({"mlp", "mlp"}) ==
        "run.json#/model/parts/1: \"mlp\" stands twice; a part stands once in a block");
  CHECK(ErrorOfParts(Json::array()) == "run.json#/model/parts: a block has at least one part");
  CHECK(ErrorOfParts("mlp") == "run.json#/model/parts: must be a list of names");
  CHECK(ErrorOfParts({1}) == "run.json#/model/parts/0: must be a name");
}

TEST_CASE("Only the parts of a model restrict its sizes", "[train]") {
  Json json = {{"model", {{"heads", 3}}}};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }).find("run.json#/model/heads: ") == 0);
  json["model"]["parts"] = {"mlp"};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }) == "no error");
  json = {{"recipe", "te_nvfp4"}, {"model", {{"ffn", 24}}}};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }).find("run.json#/model/ffn: ") == 0);
  json["model"]["parts"] = {"attention"};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }) == "no error");
}

TEST_CASE("Layout and plan list the linears and gains of the parts, in their order", "[train]") {
  ModelConfig model;
  model.layers = 2;
  model.parts = {"mlp", "attention"};
  const ParameterLayout layout = MakeLayout(model);
  std::vector<std::string> names;
  for (const ParameterSlice& slice : layout.slices) names.push_back(slice.name);
  CHECK(names ==
        std::vector<std::string>{"embedding.weight", "head.weight", "blocks.0.mlp.up.weight",
                                 "blocks.0.mlp.down.weight", "blocks.0.attention.qkv.weight",
                                 "blocks.0.attention.out.weight", "blocks.1.mlp.up.weight",
                                 "blocks.1.mlp.down.weight", "blocks.1.attention.qkv.weight",
                                 "blocks.1.attention.out.weight", "blocks.0.mlp_norm.gain",
                                 "blocks.0.attention_norm.gain", "blocks.1.mlp_norm.gain",
                                 "blocks.1.attention_norm.gain", "final_norm.gain"});
  CHECK(layout.parts.size() == 4);
  CHECK(layout.GainsOf(layout.parts[3]).front().name == "blocks.1.attention_norm.gain");
  const LinearPlan plan(model, ReadRecipe(Json("bf16"), "test"));
  CHECK(plan.Count() == 9);
  CHECK(plan.Name(layout.parts[3].first_linear) == "blocks.1.attention.qkv");
}

// A tiny run whose model has these members besides its sizes.
TrainConfig TinyWith(Json model, const Json& recipe = "te_nvfp4") {
  Json json = {{"model",
                {{"layers", 2},
                 {"d_model", 32},
                 {"heads", 2},
                 {"ffn", 64},
                 {"sequence", 32},
                 {"vocabulary", 256}}},
               {"recipe", recipe},
               {"data", {{"source", "synthetic"}}},
               {"batch", 4},
               {"tokens", 128 * 12}};
  json["model"].update(model);
  return ReadTrainConfig(json, "run.json");
}

const Json kAttentions[] = {{{"head_dim", 32}},
                            {{"qk_norm", true}},
                            {{"window", 8}},
                            {{"no_rope_every", 2}},
                            {{"head_dim", 24},
                             {"heads", 4},
                             {"kv_heads", 2},
                             {"qk_norm", true},
                             {"window", 5},
                             {"full_attention_every", 2},
                             {"no_rope_every", 2}}};

TEST_CASE(
    "Every kind of attention trains, continues bit for bit, and has the same bits for 1 and 3 "
    "threads",
    "[train]") {
  for (const Json& model : kAttentions) {
    CAPTURE(model.dump());
    const TrainConfig config = TinyWith(model);
    CHECK(ReadModelConfig(ToJson(config.model), "again") == config.model);
    const Corpus corpus = LoadCorpus(config.data);
    const auto numbers = [&](int threads) {
      const ThreadsScope scope(threads);
      Trainer whole(config, corpus), first(config, corpus), second(config, corpus);
      const double loss = whole.Step(3e-3).loss;
      for (int i = 0; i < 5; ++i) whole.Step(3e-3);
      CHECK(whole.Step(3e-3).loss < loss);
      for (int i = 0; i < 4; ++i) first.Step(3e-3);
      second.LoadState(first.SaveState(), "state");
      for (int i = 0; i < 3; ++i) second.Step(3e-3);
      CHECK(whole.Numbers() == second.Numbers());
      return whole.Numbers();
    };
    const std::vector<float> one = numbers(1);
    CHECK(numbers(3) == one);
    CHECK(Trainer(config, corpus).Numbers() != one);
  }
}

TEST_CASE("Members of attention that are as before are not written", "[train]") {
  const Json json = ToJson(ModelConfig());
  for (const char* key :
       {"head_dim", "qk_norm", "window", "full_attention_every", "no_rope_every"}) {
    CHECK(json.count(key) == 0);
  }
}

TEST_CASE("Impossible attention is refused at its place, and what a GPU does not train, too",
          "[train]") {
  const auto error = [](const Json& model) { return ErrorOf([&] { TinyWith(model); }); };
  const std::string at = "run.json#/model/";
  CHECK(error({{"head_dim", 9}}) ==
        at + "head_dim: 9 is odd; rotary positions need an even number");
  CHECK(error({{"heads", 3}}) == at + "heads: 3 heads do not divide d_model 32");
  CHECK(error({{"full_attention_every", 2}}) ==
        at + "full_attention_every: needs \"window\": without one every block sees all keys");
  CHECK(error({{"head_dim", 12}}) ==
        at + "head_dim: the width of queries 24 is not a multiple of the recipe's block of 16");
  CHECK(error({{"window", -1}}) == at + "window: must be at least 0");
  const char* keys[] = {"head_dim", "qk_norm", "window", "no_rope_every", "head_dim"};
  for (std::size_t i = 0; i < std::size(kAttentions); ++i) {
    TrainConfig config = TinyWith(kAttentions[i]);
    config.device = Device::kCuda;
    CHECK(ErrorOf([&] { CheckDevice(config, "run.json", "run.json"); }) ==
          at + keys[i] + ": the GPU does not train with \"" + keys[i] +
              "\"; the CPU does (\"device\": \"cpu\" or --device cpu)");
  }
}

TEST_CASE("A model of each part alone trains, and its memory is less than that of all", "[train]") {
  for (const Part* part : Parts()) {
    CAPTURE(part->name);
    const Json json = {{"model",
                        {{"layers", 2},
                         {"d_model", 64},
                         {"heads", 2},
                         {"ffn", 64},
                         {"sequence", 32},
                         {"parts", {part->name}}}},
                       {"recipe", "te_nvfp4"},
                       {"data", {{"source", "synthetic"}}},
                       {"batch", 4},
                       {"tokens", 128 * 20}};
    const TrainConfig config = ReadTrainConfig(json, "test");
    TrainConfig both = config;
    both.model.parts = ModelConfig().parts;
    CHECK(EstimateMemory(config).activations < EstimateMemory(both).activations);
    const Corpus corpus = LoadCorpus(config.data);
    Trainer trainer(config, corpus);
    const double first = trainer.Step(1e-2).loss;
    double last = first;
    for (int i = 0; i < 12; ++i) last = trainer.Step(1e-2).loss;
    CHECK(last < first - 0.2);
  }
}

}  // namespace
}  // namespace fp4lab
