#include "fp4lab/train/observe/what_if.h"

#include <cmath>
#include <numeric>

#include "fp4lab/base/parallel.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/batch.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

using Catch::Approx;

TrainConfig Tiny() {
  const Json json = {
      {"model", {{"layers", 1}, {"d_model", 32}, {"heads", 2}, {"ffn", 64}, {"sequence", 32}}},
      {"schedule", {{"learning_rate", 5e-3}, {"warmup_steps", 2}}},
      {"data", {{"source", "synthetic"}, {"synthetic_bytes", 20000}}},
      {"recipe", "te_nvfp4"},
      {"batch", 2},
      {"micro_batches", 2},
      {"tokens", 64 * 12}};
  return ReadTrainConfig(json, "test");
}

// The state of a run after `steps` steps, and its next tokens.
struct State {
  TrainConfig config = Tiny();
  Corpus corpus = LoadCorpus(config.data);
  Trainer trainer{config, corpus};
  StepState step;

  explicit State(int steps) {
    for (int i = 0; i < steps; ++i) trainer.Step(5e-3);
    const std::vector<float> numbers = trainer.Numbers();
    const auto n = static_cast<std::ptrdiff_t>(MakeLayout(config.model).total);
    const auto part = [&](int i) {
      return std::vector<float>(numbers.begin() + i * n, numbers.begin() + (i + 1) * n);
    };
    step = {config, steps, part(0), {part(1), part(2)}, {}, {}, 5e-3};
    const DataOrder order{config.seed, corpus.train.size(), 32};
    step.inputs.resize(64);
    step.targets.resize(64);
    for (std::size_t b = 0; b < 2; ++b) {
      CopyWindow(corpus.train, WindowStart(order, static_cast<std::uint64_t>(steps) * 2 + b),
                 std::span(step.inputs).subspan(b * 32, 32),
                 std::span(step.targets).subspan(b * 32, 32));
    }
  }
};

Recipe Named(const char* name) { return ReadRecipe(name, "test"); }

TEST_CASE("Shapley values of games with known values", "[train]") {
  // An additive game: everyone adds his own.
  std::vector<double> additive(8);
  for (std::size_t s = 0; s < 8; ++s)
    additive[s] = (s & 1) * 1.0 + (s >> 1 & 1) * 2.0 + (s >> 2) * 4.0;
  const std::vector<double> own = ShapleyValues(additive);
  for (std::size_t i = 0; i < 3; ++i) CHECK(own[i] == Approx(std::pow(2.0, i)));
  // A glove game: player 0 has a left glove, 1 and 2 a right one each; a pair is worth 1.
  const std::vector<double> gloves = {0, 0, 0, 1, 0, 1, 0, 1};
  const std::vector<double> shares = ShapleyValues(gloves);
  CHECK(shares[0] == Approx(2.0 / 3));
  CHECK(shares[1] == Approx(1.0 / 6));
  CHECK(shares[2] == Approx(1.0 / 6));
  CHECK(ShapleyValues(std::vector<double>{5.0}).empty());
  CHECK_THROWS(ShapleyValues(std::vector<double>{1.0, 2.0, 3.0}));
}

TEST_CASE("The step under the run's recipe is the step that the run makes", "[train]") {
  State state(3);
  const std::vector<Recipe> recipes = {state.config.recipe};
  const WhatIf what = TryRecipes(state.step, recipes, false);
  REQUIRE(what.outcomes.size() == 1);
  CHECK(what.outcomes[0].loss == state.trainer.Step(5e-3).loss);
  CHECK(what.outcomes[0].loss_after < what.loss);
  CHECK_FALSE(what.outcomes[0].parting.has_value());
  CHECK(what.outcomes[0].gradient.cosine > 0.8);
  CHECK(what.outcomes[0].gradient.cosine < 1.0);
}

TEST_CASE("High precision differs from itself in nothing, and recipes part where they differ",
          "[train]") {
  const State state(2);
  const std::vector<Recipe> recipes = {
      Named("bf16"), Named("bf16"), Named("te_nvfp4"),
      ReadRecipe({{"base", "te_nvfp4"}, {"backward_only", true}}, "test")};
  const WhatIf what = TryRecipes(state.step, recipes, false);
  for (const std::size_t plain : {0, 1}) {
    const StepOutcome& outcome = what.outcomes[plain];
    CHECK(outcome.loss == what.loss);
    CHECK(outcome.loss_after == what.loss_after);
    CHECK(outcome.gradient.cosine == Approx(1.0).epsilon(1e-12));
    CHECK(outcome.gradient.norm_ratio == 1.0);
    CHECK(outcome.gradient.relative_error == 0.0);
    CHECK_FALSE(outcome.parting.has_value());
  }
  REQUIRE(what.outcomes[2].parting.has_value());
  CHECK(what.outcomes[2].parting->tensor == "blocks.0.attention.qkv.output");
  CHECK(what.outcomes[2].parting->relative_error > 0.0);
  REQUIRE(what.outcomes[3].parting.has_value());
  CHECK(what.outcomes[3].parting->tensor == "blocks.0.mlp.down.input.gradient");
  CHECK(what.outcomes[3].loss == what.loss);
  CHECK(what.outcomes[2].linears.size() == 5);
  CHECK(what.outcomes[2].linears.back().name == "head");
}

TEST_CASE(
    "The shares of the operands sum to the difference, and an operand that is not quantized "
    "has none",
    "[train]") {
  const State state(2);
  const std::vector<Recipe> recipes = {
      Named("te_nvfp4"), Named("mxfp4"),
      ReadRecipe({{"base", "te_nvfp4"}, {"forward_only", true}}, "test")};
  int steps = 0;
  const WhatIf what = TryRecipes(state.step, recipes, true, [&] { ++steps; });
  CHECK(steps == 64 + 64 + 4 + 3);
  for (const StepOutcome& outcome : what.outcomes) {
    REQUIRE(outcome.shares.size() == 3);
    CHECK(outcome.shares[0].without == what.loss);
    CHECK(outcome.shares[0].with == outcome.loss);
    CHECK(outcome.shares[1].without == 0.0);
    CHECK(outcome.shares[1].with == outcome.gradient.relative_error);
    CHECK(outcome.shares[2].without == what.loss_after);
    CHECK(outcome.shares[2].with == outcome.loss_after);
    for (const OperandShares& s : outcome.shares) {
      CAPTURE(s.quantity);
      const double sum = std::accumulate(s.shares.begin(), s.shares.end(), 0.0);
      CHECK(sum == Approx(s.with - s.without).margin(1e-12));
    }
    // The forward pass alone decides the loss.
    for (int k = kDgradGrad; k <= kWgradInput; ++k) {
      CHECK(outcome.shares[0].shares[static_cast<std::size_t>(k)] == 0.0);
    }
  }
  for (const OperandShares& s : what.outcomes[2].shares) {
    for (int k = kDgradGrad; k <= kWgradInput; ++k) {
      CHECK(s.shares[static_cast<std::size_t>(k)] == 0.0);
    }
  }
  CHECK(what.outcomes[0].shares[1].shares[kWgradGrad] > 0.0);
}

TEST_CASE("A recipe with all or no operands quantized", "[train]") {
  const Recipe nvfp4 = Named("te_nvfp4");
  CHECK(WithQuantized(nvfp4, 63) == nvfp4);
  const Recipe none = WithQuantized(nvfp4, 0);
  for (const OperandRecipe* operand : OperandsOf(none.linear)) {
    CHECK((!operand->format && operand->hadamard == 0));
  }
  const Recipe half = WithQuantized(nvfp4, 1u << kWgradGrad);
  CHECK(half.linear.wgrad.b.hadamard == half.linear.wgrad.a.hadamard);
  CHECK(half.linear.wgrad.a.hadamard != 0);
  CHECK_FALSE(half.linear.wgrad.b.format.has_value());
}

TEST_CASE("Recipes that one step cannot show are refused", "[train]") {
  CHECK(WhyNotInWhatIf(Named("te_nvfp4")).empty());
  CHECK_THAT(WhyNotInWhatIf(Named("te_fp8_delayedscaling")),
             Catch::Matchers::ContainsSubstring("delayed scaling"));
  const Recipe then =
      ReadRecipe({{"base", "te_nvfp4"}, {"then", {{"at", 0.5}, {"recipe", "bf16"}}}}, "test");
  CHECK_THAT(WhyNotInWhatIf(then), Catch::Matchers::ContainsSubstring("then"));
}

TEST_CASE("The block errors of an operand are found by its name", "[train]") {
  const State state(1);
  const BlockErrors errors =
      BlockErrorsOf(state.step, Named("te_nvfp4"), "blocks.0.mlp.up.fprop.input", "--tensor");
  CHECK(errors.rows == 32);
  CHECK(errors.cols == 2);
  CHECK_THAT(ErrorOf([&] {
               BlockErrorsOf(state.step, Named("te_nvfp4"), "blocks.0.mlp.up.fprop.inpt",
                             "--tensor");
             }),
             Catch::Matchers::ContainsSubstring("did you mean \"blocks.0.mlp.up.fprop.input\""));
  CHECK_THAT(ErrorOf([&] { BlockErrorsOf(state.step, Named("bf16"), "x", "--tensor"); }),
             Catch::Matchers::ContainsSubstring("quantizes no operand"));
}

TEST_CASE("A what-if does not depend on the number of threads", "[train]") {
  const State state(1);
  const int threads = Threads();
  const std::vector<Recipe> recipes = {Named("te_nvfp4")};
  SetThreads(1);
  const WhatIf one = TryRecipes(state.step, recipes, false);
  SetThreads(3);
  const WhatIf three = TryRecipes(state.step, recipes, false);
  SetThreads(threads);
  CHECK(one.outcomes[0].loss_after == three.outcomes[0].loss_after);
  CHECK(one.outcomes[0].gradient.relative_error == three.outcomes[0].gradient.relative_error);
}

}  // namespace
}  // namespace fp4lab
