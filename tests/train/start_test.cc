// A run that begins with the weights of a checkpoint, and the models that keys name.
#include "fp4lab/train/start/start.h"

#include <algorithm>
#include <set>
#include <string>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/parts/parts.h"
#include "fp4lab/train/start/presets.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

Corpus SmallText() {
  DataConfig data;
  data.source = "synthetic";
  data.synthetic_bytes = 40'000;
  return LoadCorpus(data);
}

Json Tiny() {
  return {{"model", {{"layers", 1}, {"d_model", 32}, {"heads", 2}, {"ffn", 32}, {"sequence", 32}}},
          {"batch", 2},
          {"tokens", 640},
          {"evaluation", {{"tokens", 128}}}};
}

std::vector<float> WeightsOf(const Trainer& trainer) {
  const std::vector<float> numbers = trainer.Numbers();
  const auto n = MakeLayout(trainer.Config().model).total;
  return {numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(n)};
}

// A checkpoint of two steps, and a configuration that starts from it.
struct Started {
  TemporaryFolder folder;
  Corpus corpus = SmallText();
  std::vector<float> weights;
  Json config = Tiny();

  Started() {
    Trainer first(ReadTrainConfig(Tiny(), "first.json"), corpus);
    for (int i = 0; i < 2; ++i) first.Step(1e-2);
    weights = WeightsOf(first);
    WriteFileAtomically(folder / "checkpoint.fp4lab", first.SaveState());
    config["start"] = folder.path().string();
    config.erase("model");
  }
  TrainConfig Read() const { return ReadTrainConfig(config, "run.json"); }
};

TEST_CASE("A start gives the model and the weights; the optimizer begins anew", "[train]") {
  Started s;
  const TrainConfig config = s.Read();
  CHECK(config.model == ReadTrainConfig(Tiny(), "").model);
  Trainer trainer(config, s.corpus);
  CHECK(trainer.Steps() == 0);
  CHECK(WeightsOf(trainer) == s.weights);
  const std::vector<float> numbers = trainer.Numbers();
  CHECK(std::all_of(numbers.begin() + static_cast<std::ptrdiff_t>(s.weights.size()), numbers.end(),
                    [](float x) { return x == 0.0f; }));
  // Another seed reads other text, with the same weights.
  s.config["seed"] = 7;
  CHECK(WeightsOf(Trainer(s.Read(), s.corpus)) == s.weights);
  s.config["nudge_ulps"] = 3;
  const std::vector<float> nudged = WeightsOf(Trainer(s.Read(), s.corpus));
  CHECK(std::ranges::mismatch(nudged, s.weights).in1 - nudged.begin() ==
        static_cast<std::ptrdiff_t>(MakeLayout(config.model).matrices));
}

TEST_CASE("A started run continues from its checkpoint, and one of another start is refused",
          "[train]") {
  Started s;
  Trainer whole(s.Read(), s.corpus), first(s.Read(), s.corpus), second(s.Read(), s.corpus);
  for (int i = 0; i < 3; ++i) whole.Step(1e-3);
  first.Step(1e-3);
  second.LoadState(first.SaveState(), "state");
  for (int i = 0; i < 2; ++i) second.Step(1e-3);
  CHECK(whole.Numbers() == second.Numbers());
  Trainer scratch(ReadTrainConfig(Tiny(), ""), s.corpus);
  CHECK(ErrorOf([&] {
          scratch.LoadState(first.SaveState(), "state");
        }).starts_with("state: checkpoint of another configuration: start: absent here, "));
}

TEST_CASE("A start that is missing or does not fit is refused at its key", "[train]") {
  Started s;
  TrainConfig config = s.Read();
  config.model.ffn = 64;
  const std::string file = (s.folder / "checkpoint.fp4lab").string();
  const std::string unfit = "run.json#/model: does not fit the weights of " + file +
                            ": blocks.0.mlp.up.weight (64, 32) here, "
                            "blocks.0.mlp.up.weight (32, 32) there";
  CHECK(ErrorOf([&] { CheckStart(config, "run.json"); }) == unfit);
  CHECK(ErrorOf([&] { Trainer(config, s.corpus, "run.json"); }) == unfit);
  s.config["start"] = "nowhere.fp4lab";
  CHECK(ErrorOf([&] { s.Read(); }) ==
        "run.json#/model/from: there is no checkpoint nowhere.fp4lab");
  s.config["model"] = Tiny()["model"];
  CHECK(ErrorOf([&] { CheckStart(s.Read(), "run.json"); }) ==
        "run.json#/start: there is no checkpoint nowhere.fp4lab");
}

TEST_CASE("Members of the model beside a start replace the checkpoint's; JSON reads back",
          "[train]") {
  Started s;
  s.config["model"] = {{"sequence", 64}, {"window", 8}};
  const TrainConfig config = s.Read();
  CHECK(config.model.sequence == 64);
  CHECK(config.model.window == 8);
  CHECK(config.model.d_model == 32);
  CheckStart(config, "run.json");
  CHECK(ReadTrainConfig(ToJson(config), "run.json") == config);
}

TEST_CASE("A preset at its published width and context is the published shape", "[train]") {
  for (const Preset& preset : Presets()) {
    CAPTURE(preset.name);
    CHECK_FALSE(preset.title.empty());
    CHECK_FALSE(preset.source.empty());
    const Json& p = preset.published;
    const ModelConfig m = ReadModelConfig(
        ModelOfPreset(preset, p["d_model"].get<int>(), p["context"].get<int>()), "");
    CHECK(m.layers == p["layers"]);
    CHECK(m.heads == p["heads"]);
    CHECK(m.kv_heads == p["kv_heads"]);
    if (p.contains("head_dim")) CHECK(HeadDim(m) == p["head_dim"]);
    for (const char* width :
         {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
      if (p.contains(width)) CHECK(ToJson(m)["mla"][width] == p[width]);
    }
    CHECK(m.ffn == p["ffn"]);
    CHECK(m.window == p.value("window", 0));
    if (!p.contains("experts")) continue;
    CHECK(m.moe.experts == p["experts"]);
    CHECK(m.moe.top_k == p["top_k"]);
    CHECK(m.moe.ffn == p["expert_ffn"]);
  }
}

// "ffn", "moe/score": the keys of a preset that state something.
std::multiset<std::string> KeysOf(const Preset& preset) {
  std::multiset<std::string> keys;
  for (const auto& [key, value] : preset.published.items()) keys.insert(key);
  for (const auto& [key, value] : preset.model.items()) {
    if (key == "parts") continue;
    if (!value.is_object()) keys.insert(key);
    if (!value.is_object()) continue;
    for (const auto& [inner, number] : value.items()) keys.insert(key + "/" + inner);
  }
  return keys;
}

TEST_CASE("Every number of a preset has one public file that shows it, or is named as unproved",
          "[train]") {
  for (const Preset& preset : Presets()) {
    CAPTURE(preset.name);
    std::multiset<std::string> named(preset.unproved.begin(), preset.unproved.end());
    for (const PresetEvidence& e : preset.evidence) {
      CHECK(std::ranges::count(e.repository, '/') == 1);
      CHECK_FALSE(e.file.empty());
      CHECK(e.commit.size() == 40);
      CHECK(e.commit.find_first_not_of("0123456789abcdef") == std::string::npos);
      named.insert(e.shows.begin(), e.shows.end());
    }
    CHECK(named == KeysOf(preset));
  }
}

TEST_CASE("DeepSeek-V3's latents scale with the width, and other parts leave them aside",
          "[train]") {
  const auto read = [](const Json& json) { return ReadModelConfig(json, "run.json#/model"); };
  const ModelConfig m = read({{"preset", "deepseek-v3"}, {"d_model", 448}});
  CHECK(m.parts == std::vector<std::string>{"mla", "moe"});
  CHECK(m.mla == MlaConfig{96, 32, 128, 64, 128});
  CHECK(m.heads == 8);
  const ModelConfig plain = read({{"preset", "deepseek-v3"}, {"parts", {"attention", "moe"}}});
  CHECK(plain.mla == MlaConfig{});
  CHECK(plain.moe.experts == read({{"preset", "deepseek-v3"}}).moe.experts);
}

TEST_CASE("Nemotron-H has one block with attention among six, and other parts leave that aside",
          "[train]") {
  const auto read = [](const Json& json) { return ReadModelConfig(json, "run.json#/model"); };
  const ModelConfig m = read({{"preset", "nemotron-h"}, {"d_model", 4096}});
  CHECK(BlocksWith(m, PartNamed("gla", "test")) == 24);
  CHECK(BlocksWith(m, PartNamed("mlp", "test")) == 24);
  CHECK(BlocksWith(m, PartNamed("attention", "test")) == 4);
  CHECK(read({{"preset", "nemotron-h"}}).layers == 6);
  const ModelConfig plain = read({{"preset", "nemotron-h"}, {"parts", {"attention", "mlp"}}});
  CHECK(plain.pattern.empty());
  CHECK(plain.gla == GlaConfig{});
}

TEST_CASE("Ratios of presets stay, and members beside the preset win", "[train]") {
  const auto read = [](const Json& json) { return ReadModelConfig(json, "run.json#/model"); };
  const ModelConfig m = read({{"preset", "qwen3-moe"}, {"d_model", 256}, {"sequence", 64}});
  CHECK(m.layers == 6);
  CHECK(m.heads == 8 * m.kv_heads);
  CHECK(m.heads * m.head_dim == 512);
  CHECK(m.moe.experts == 16 * m.moe.top_k);
  CHECK(m.moe.ffn == 96);
  CHECK(m.qk_norm);
  const ModelConfig gpt = read({{"preset", "gpt-oss"}, {"sequence", 256}});
  CHECK(gpt.window == 8);
  CHECK(gpt.layers % gpt.full_attention_every == 0);
  const ModelConfig own = read({{"preset", "qwen3-moe"}, {"layers", 3}, {"moe", {{"experts", 4}}}});
  CHECK(own.layers == 3);
  CHECK(own.moe.experts == 4);
  CHECK(own.moe.top_k == 2);
  const ModelConfig latent = read({{"preset", "deepseek-v3"}, {"d_model", 7168}});
  CHECK(latent.moe.first_k_dense_replace == 3);
  CHECK(latent.ffn == 18432);
  CHECK(read({{"preset", "deepseek-v3"}}).moe.first_k_dense_replace == 1);
  const ModelConfig dense = read({{"preset", "qwen3-moe"}, {"parts", {"attention", "mlp"}}});
  CHECK(dense.moe == MoeConfig{});
  CHECK(ErrorOf([&] {
          read({{"preset", "qwen3-mo"}});
        }).starts_with("run.json#/model/preset: unknown preset \"qwen3-mo\"; did you mean "));
  CHECK(ErrorOf([&] {
          read({{"preset", "qwen3"}, {"from", "x"}});
        }) == "run.json#/model/from: cannot be combined with \"preset\"");
  CHECK(ErrorOf([&] {
          read({{"preset", "qwen3"}, {"d_model", "wide"}});
        }).starts_with("run.json#/model/d_model: "));
}

TEST_CASE("Every preset trains 30 steps under an FP4 recipe", "[train]") {
  constexpr int kSteps = 30;
  const Corpus corpus = SmallText();
  for (const Preset& preset : Presets()) {
    CAPTURE(preset.name);
    const Json json = {{"model", {{"preset", preset.name}, {"sequence", 32}}},
                       {"batch", 2},
                       {"tokens", 64 * kSteps},
                       {"recipe", "te_nvfp4"}};
    Trainer trainer(ReadTrainConfig(json, "run.json"), corpus, "run.json");
    const double first = trainer.Step(3e-3).loss;
    StepResult last;
    for (int i = 1; i < kSteps; ++i) {
      last = trainer.Step(3e-3);
      REQUIRE_FALSE(last.non_finite);
    }
    CHECK(last.loss < first);
  }
}

}  // namespace
}  // namespace fp4lab
