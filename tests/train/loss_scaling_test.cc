// Loss scaling: powers of two change no bit where nothing underflows, and the dynamic scale skips,
// halves, doubles and is part of a checkpoint.
#include <algorithm>
#include <string>
#include <vector>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

Json RunJson(const Json& recipe, const Json& scaling) {
  Json json = {
      {"model", {{"layers", 1}, {"d_model", 32}, {"heads", 2}, {"ffn", 64}, {"sequence", 32}}},
      {"data", {{"source", "synthetic"}, {"synthetic_bytes", 60'000}}},
      {"recipe", recipe},
      {"batch", 2},
      {"tokens", 64 * 10},
      {"seed", 5}};
  if (!scaling.is_null()) json["optimizer"] = {{"loss_scaling", scaling}};
  return json;
}

TrainConfig Config(const Json& recipe, const Json& scaling) {
  return ReadTrainConfig(RunJson(recipe, scaling), "run.json");
}

const Corpus& Text() {
  static const Corpus corpus = LoadCorpus(Config("bf16", nullptr).data);
  return corpus;
}

struct Run {
  std::vector<double> losses, norms, scales;
  std::vector<bool> skipped;
  std::vector<float> numbers;
};
Run Train(const TrainConfig& config, int steps, int resumed_at = -1) {
  Trainer trainer(config, Text());
  Run run;
  for (int i = 0; i < steps; ++i) {
    if (i == resumed_at) {
      Trainer other(config, Text());
      other.LoadState(trainer.SaveState(), "state");
      trainer = std::move(other);
    }
    const StepResult result = trainer.Step(3e-3);
    REQUIRE_FALSE(result.non_finite.has_value());
    run.losses.push_back(result.loss);
    run.norms.push_back(result.grad_norm);
    run.scales.push_back(result.loss_scale);
    run.skipped.push_back(result.skipped);
  }
  run.numbers = trainer.Numbers();
  return run;
}

TEST_CASE("A static scale changes no bit in binary32, BF16 and under scales of the tensor",
          "[train]") {
  for (const char* recipe : {"fp32", "bf16", "te_nvfp4", "te_fp8_currentscaling"}) {
    CAPTURE(recipe);
    const Run plain = Train(Config(recipe, nullptr), 6);
    const Run scaled = Train(Config(recipe, {{"kind", "static"}, {"scale", 1024}}), 6);
    CHECK(scaled.losses == plain.losses);
    CHECK(scaled.norms == plain.norms);
    CHECK(scaled.numbers == plain.numbers);
    CHECK(scaled.scales == std::vector<double>(6, 1024.0));
  }
}

// Gradients without a scale of their tensor: small ones underflow the block scales, E4M3.
Json WithoutTensorScale() {
  const Json grad = {{"format", "nvfp4.qwix"}};
  return {{"base", "bf16"},
          {"fprop", {{"input", grad}, {"weight", grad}}},
          {"dgrad", {{"grad", grad}, {"weight", grad}}},
          {"wgrad", {{"grad", grad}, {"input", grad}}}};
}

double UnderflowOf(const Json& scaling) {
  Trainer trainer(Config(WithoutTensorScale(), scaling), Text());
  for (const TensorStatistics& t : trainer.Diagnose()) {
    if (t.name == "blocks.0.mlp.up.dgrad.grad") return t.values["underflow_percent"];
  }
  return -1.0;
}

TEST_CASE("A scale lifts gradients out of the underflow of a format without a tensor scale",
          "[train]") {
  CHECK(UnderflowOf(nullptr) > 75.0);
  CHECK(UnderflowOf({{"kind", "static"}, {"scale", 65536}}) < 50.0);
}

TEST_CASE("The dynamic scale doubles after good steps, up to its most", "[train]") {
  const Run run =
      Train(Config("bf16", {{"kind", "dynamic"}, {"scale", 4194304}, {"growth_interval", 2}}), 8);
  CHECK(run.scales == std::vector<double>{4194304, 4194304, 8388608, 8388608, 16777216, 16777216,
                                          16777216, 16777216});
  CHECK(run.losses == Train(Config("bf16", nullptr), 8).losses);
}

// A trainer whose next gradients overflow: a matrix of such size, behind a norm's gain so small,
// that the forward pass is as before.
std::vector<float> Overflowing(const Trainer& trainer) {
  std::vector<float> numbers = trainer.Numbers();
  const ModelConfig& model = trainer.Config().model;
  const ParameterLayout layout = MakeLayout(model);
  const ParameterSlice& head = layout.head;
  for (std::size_t i = 0; i < head.size(); ++i) numbers[head.offset + i] *= 0x1p+118f;
  for (std::size_t i = 0; i < layout.final_gain.size(); ++i) {
    numbers[layout.final_gain.offset + i] *= 0x1p-118f;
  }
  return numbers;
}

TEST_CASE("A step whose gradients overflow changes no weight and halves the scale", "[train]") {
  const TrainConfig config =
      Config("bf16", {{"kind", "dynamic"}, {"scale", 16777216}, {"growth_interval", 100}});
  Trainer trainer(config, Text());
  trainer.Step(3e-3);
  trainer.Return(1, Overflowing(trainer));
  const std::vector<float> before = trainer.Numbers();
  const StepResult first = trainer.Step(3e-3);
  REQUIRE_FALSE(first.non_finite.has_value());
  CHECK(first.skipped);
  CHECK(first.grad_norm == 0.0);
  CHECK(trainer.Steps() == 2);
  std::vector<float> after = trainer.Numbers();
  CHECK(after[after.size() - 2] == 8388608.0f);
  CHECK(std::equal(after.begin(), after.end() - 2, before.begin()));
  StepResult next;
  int skipped = 1;
  do {
    next = trainer.Step(3e-3);
    REQUIRE_FALSE(next.non_finite.has_value());
    skipped += next.skipped ? 1 : 0;
  } while (next.skipped);
  CHECK(skipped > 1);
  CHECK(next.grad_norm > 0.0);
  CHECK(trainer.Numbers() != after);
}

TEST_CASE("The dynamic scale is part of a checkpoint", "[train]") {
  const TrainConfig config =
      Config("te_nvfp4", {{"kind", "dynamic"}, {"scale", 64}, {"growth_interval", 3}});
  const Run whole = Train(config, 8);
  CHECK(whole.scales.back() == 256.0);
  for (const int at : {1, 3, 5}) {
    const Run resumed = Train(config, 8, at);
    CHECK(resumed.scales == whole.scales);
    CHECK(resumed.numbers == whole.numbers);
  }
}

TEST_CASE("Loss scaling is read strictly and left out where there is none", "[train]") {
  const auto error = [](const Json& scaling, const char* recipe = "bf16") {
    return ErrorOf([&] { Config(recipe, scaling); });
  };
  const std::string at = "run.json#/optimizer/loss_scaling";
  CHECK(error({{"kind", "automatic"}}) ==
        at + "/kind: must be none, static or dynamic, not \"automatic\"");
  CHECK(error({{"kind", "static"}, {"scale", 1000}}) ==
        at + "/scale: must be a power of two from 1.0 to 16777216.0");
  CHECK(error({{"scale", 1024}}) == at + ": needs the key \"kind\"");
  CHECK(error({{"kind", "dynamic"}, {"growth_interval", 0}}) ==
        at + "/growth_interval: must be at least 1");
  CHECK(error({{"kind", "dynamic"}}, "te_fp8_delayedscaling") ==
        at + "/kind: \"dynamic\" skips steps, whose amaxes delayed scaling would keep; use "
             "\"static\"");
  CHECK(ToJson(Config("bf16", {{"kind", "none"}}).optimizer).count("loss_scaling") == 0);
  const OptimizerConfig scaled = Config("bf16", {{"kind", "dynamic"}, {"scale", 8}}).optimizer;
  CHECK(ReadOptimizerConfig(ToJson(scaled), "again") == scaled);
}

}  // namespace
}  // namespace fp4lab
