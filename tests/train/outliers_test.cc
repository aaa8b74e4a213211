// Outliers planted on purpose: the model without quantization keeps its losses, operands get their
// outliers, and a run that plants them on the way resumes bit for bit.
#include "fp4lab/train/model/outliers.h"

#include <string>
#include <vector>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

Json RunJson(const Json& recipe, const Json& outliers, const std::string& activation = "swiglu",
             const std::string& second = "mlp") {
  Json model = {{"layers", 2},
                {"d_model", 32},
                {"heads", 4},
                {"kv_heads", 2},
                {"ffn", 64},
                {"sequence", 32},
                {"parts", {"attention", second}},
                {"activation", activation}};
  if (second == "mla") {
    model.update({{"parts", {"mla", "mlp"}}, {"mla", {{"q_lora_rank", 16}, {"v_head_dim", 8}}}});
  }
  if (second == "gla") model.update({{"parts", {"gla", "mlp"}}});
  if (second == "moe") {
    model["moe"] = {{"experts", 2}, {"top_k", 1}, {"shared_experts", 1}};
  }
  if (!outliers.is_null()) model["outliers"] = outliers;
  return {{"model", model},
          {"schedule", {{"learning_rate", 5e-3}, {"warmup_steps", 3}}},
          {"data", {{"source", "synthetic"}, {"synthetic_bytes", 60'000}}},
          {"recipe", recipe},
          {"batch", 2},
          {"tokens", 64 * 10},
          {"seed", 5}};
}

TrainConfig Config(const Json& recipe, const Json& outliers,
                   const std::string& activation = "swiglu", const std::string& second = "mlp") {
  return ReadTrainConfig(RunJson(recipe, outliers, activation, second), "run.json");
}

const Corpus& Text() {
  static const Corpus corpus = LoadCorpus(Config("bf16", nullptr).data);
  return corpus;
}

const Json kAll = {{"gain", 256}, {"channels", 2}, {"places", {"norm", "value", "hidden"}}};

// The losses of each row of tokens of the initial weights.
std::vector<double> InitialLosses(const TrainConfig& config) {
  const ParameterLayout layout = MakeLayout(config.model);
  std::vector<float> parameters(layout.total);
  InitializeParameters(config, parameters);
  Model model(config.model, config.recipe, parameters, 2);
  const std::vector<std::uint16_t>& train = Text().train;
  const std::vector<std::uint16_t> tokens(train.begin(), train.begin() + 64),
      targets(train.begin() + 1, train.begin() + 65);
  std::vector<double> losses(64);
  model.Forward({}, tokens);
  model.Loss(targets, losses);
  return losses;
}

double Diagnosed(const std::vector<TensorStatistics>& tensors, const std::string& name,
                 const char* key) {
  for (const TensorStatistics& t : tensors) {
    if (t.name == name) return t.values[key];
  }
  FAIL("no operand " << name);
  return 0.0;
}

TEST_CASE("Without quantization, planted outliers change no bit of any loss", "[train]") {
  for (const char* recipe : {"bf16", "fp32"}) {
    for (const auto& [activation, second] : {std::pair{"swiglu", "mlp"},
                                             {"squared_relu", "mlp"},
                                             {"swiglu", "moe"},
                                             {"swiglu", "mla"},
                                             {"swiglu", "gla"},
                                             {"squared_relu", "moe"}}) {
      CAPTURE(recipe, activation, second);
      const auto losses = [&, activation = activation, second = second](const Json& outliers) {
        return InitialLosses(Config(recipe, outliers, activation, second));
      };
      CHECK(losses(kAll) == losses(nullptr));
      CHECK(losses({{"gain", 1}}) == losses(nullptr));
    }
  }
  // The first step's gradients have one norm but for the parameters that were scaled; quantized
  // operands lose what the outliers push out of their blocks.
  CHECK(InitialLosses(Config("te_nvfp4", kAll)) != InitialLosses(Config("te_nvfp4", nullptr)));
}

TEST_CASE("Exactly the weights of the stated places change", "[train]") {
  const TrainConfig plain = Config("bf16", nullptr),
                    planted = Config("bf16", {{"gain", 16}, {"places", {"norm"}}});
  const ParameterLayout layout = MakeLayout(plain.model);
  std::vector<float> before(layout.total), after(layout.total);
  InitializeParameters(plain, before);
  InitializeParameters(planted, after);
  constexpr std::size_t kChannel = 16;  // the one in the middle of 32
  for (const ParameterSlice& slice : layout.slices) {
    const bool gain = slice.name.ends_with("_norm.gain") && slice.name.starts_with("blocks.");
    const bool reads = slice.name.ends_with("qkv.weight") || slice.name.ends_with("up.weight");
    for (std::size_t i = 0; i < slice.size(); ++i) {
      const bool there = i % slice.cols == kChannel && (gain || reads);
      const float factor = !there ? 1.0f : gain ? 16.0f : 1.0f / 16;
      CAPTURE(slice.name, i);
      REQUIRE(after[slice.offset + i] == before[slice.offset + i] * factor);
    }
  }
}

TEST_CASE("Kurtosis, outliers and crest factor of the operands show what was planted", "[train]") {
  const auto measured = [&](const Json& outliers) {
    Trainer trainer(Config("te_nvfp4", outliers), Text());
    return trainer.Diagnose();
  };
  const auto plain = measured(nullptr), planted = measured(kAll);
  for (const char* name : {"blocks.0.attention.qkv.fprop.input",
                           "blocks.1.attention.out.fprop.input", "blocks.1.mlp.up.fprop.input",
                           "blocks.0.mlp.down.fprop.input", "blocks.0.mlp.up.wgrad.input"}) {
    CAPTURE(name);
    for (const char* key : {"kurtosis", "crest_factor"}) {
      CAPTURE(key);
      const double was = Diagnosed(plain, name, key);
      const double is = Diagnosed(planted, name, key);
      CHECK(is > (std::string(key) == "kurtosis" ? 2.5 : 1.2) * was);
    }
  }
  // The other channels of a norm fall below the smallest element of their blocks.
  for (const char* name : {"blocks.0.attention.qkv.fprop.input", "blocks.1.mlp.up.fprop.input"}) {
    CHECK(Diagnosed(plain, name, "underflow_percent") < 10.0);
    CHECK(Diagnosed(planted, name, "underflow_percent") > 80.0);
  }
  const double one =
      Diagnosed(measured({{"gain", 256}}), "blocks.0.mlp.up.fprop.input", "outlier_percent");
  CHECK(one > 0.5);  // 1 of 32 channels, where it is not near 0
  CHECK(Diagnosed(plain, "blocks.0.mlp.up.fprop.input", "outlier_percent") < 0.1);
}

TEST_CASE("Outliers planted after a step leave the evaluation as it is and resume bit for bit",
          "[train]") {
  Json at_step = kAll;
  at_step["step"] = 4;
  for (const char* recipe : {"bf16", "te_nvfp4"}) {
    CAPTURE(recipe);
    const TrainConfig config = Config(recipe, at_step), plain = Config(recipe, nullptr);
    Trainer whole(config, Text()), unplanted(plain, Text());
    for (int i = 0; i < 4; ++i) CHECK(whole.Step(3e-3).loss == unplanted.Step(3e-3).loss);
    CHECK(whole.Numbers() != unplanted.Numbers());
    const double here = whole.Evaluate(EvaluationPrecision::kHigh).loss;
    CHECK(here == unplanted.Evaluate(EvaluationPrecision::kHigh).loss);
    for (int i = 0; i < 3; ++i) whole.Step(3e-3);
    for (const int stop : {3, 4, 5}) {
      Trainer first(config, Text()), second(config, Text());
      for (int i = 0; i < stop; ++i) first.Step(3e-3);
      second.LoadState(first.SaveState(), "state");
      while (second.Steps() < 7) second.Step(3e-3);
      CHECK(second.Numbers() == whole.Numbers());
    }
  }
}

TEST_CASE("AdamW's moments are scaled with the weights, so that gradients keep their sizes",
          "[train]") {
  // One more step in BF16: every weight moves as it would have moved, times its factor, but for
  // AdamW's step size, which does not follow the factor, and for epsilon.
  const TrainConfig config = Config("bf16", kAll);
  const std::size_t n = MakeLayout(config.model).total;
  std::vector<float> parameters(n, 1.0f), first(n, 1.0f), second(n, 1.0f);
  PlantOutliers(config.model, parameters, std::vector<std::span<float>>{first, second});
  std::size_t changed = 0;
  for (std::size_t i = 0; i < n; ++i) {
    REQUIRE(first[i] == 1.0f / parameters[i]);
    REQUIRE(second[i] == first[i] * first[i]);
    changed += parameters[i] == 1.0f ? 0 : 1;
  }
  CHECK(changed > 1000);
}

TEST_CASE("Outliers that cannot be are refused at their pointer", "[train]") {
  const auto error = [](const Json& outliers, const char* activation = "swiglu") {
    return ErrorOf([&] { Config("bf16", outliers, activation); });
  };
  const std::string at = "run.json#/model/outliers";
  CHECK(error({{"gain", 3}}) == at + "/gain: must be a power of two from 1.0 to 1048576.0");
  CHECK(error({{"channels", 2}}) == at + ": needs the key \"gain\"");
  CHECK(error({{"gain", 2}, {"channels", 33}}) ==
        at + "/channels: 33 are more than the 32 of \"norm\"");
  CHECK(error({{"gain", 2}, {"places", {"norms"}}}) ==
        at + "/places/0: no part of this model can have outliers in \"norms\" and compute the same "
             "function; did you mean \"norm\"?");
  CHECK(error({{"gain", 2}, {"places", {"norm", "hidden"}}}, "gelu")
            .starts_with(at + "/places/1: no part of this model can have outliers in \"hidden\""));
  CHECK(error({{"gain", 2}, {"places", {"hidden"}}}, "squared_relu")
            .starts_with(at + "/gain: must be a power of four"));
  CHECK(error({{"gain", 2}, {"step", 10}}) ==
        at + "/step: is 10, and the run ends after 10 steps; name an earlier step");
  CHECK(error({{"gain", 2}, {"places", Json::array()}}) == at + "/places: needs a place");
  CHECK(ToJson(Config("bf16", {{"gain", 1}, {"channels", 7}}).model).count("outliers") == 0);
  const ModelConfig model = Config("bf16", kAll).model;
  CHECK(ReadModelConfig(ToJson(model), "again") == model);
}

}  // namespace
}  // namespace fp4lab
