#include "fp4lab/train/trainer.h"

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/model/model.h"
#include "tests/support/catch.h"
#include "tests/support/least_targets.h"

namespace fp4lab {
namespace {

// Initial logits are N(0, 0.4) for any width, so the loss is ln 256 plus half that variance.
const double kInitialLoss = std::log(256.0) + 0.2;

Corpus SyntheticCorpus(std::int64_t bytes = 60'000) {
  DataConfig data;
  data.source = "synthetic";
  data.synthetic_bytes = bytes;
  return LoadCorpus(data);
}

TrainConfig Tiny(const Json& recipe) {
  const Json json = {{"model",
                      {{"layers", 2},
                       {"d_model", 32},
                       {"heads", 2},
                       {"ffn", 64},
                       {"sequence", 32},
                       {"kv_heads", 1}}},
                     {"schedule", {{"learning_rate", 5e-3}, {"warmup_steps", 3}}},
                     {"data", {{"source", "synthetic"}}},
                     {"recipe", recipe},
                     {"batch", 2},
                     {"tokens", 64 * 20},
                     {"seed", 5}};
  return ReadTrainConfig(json, "test");
}

void Train(Trainer* trainer, std::int64_t steps) {
  const TrainConfig& config = trainer->Config();
  while (trainer->Steps() < steps) {
    const StepResult result =
        trainer->Step(LearningRate(config.schedule, trainer->Steps(), TotalSteps(config)));
    REQUIRE_FALSE(result.non_finite.has_value());
  }
}

std::vector<std::byte> StateAfter(const TrainConfig& config, const Corpus& corpus,
                                  std::int64_t steps) {
  Trainer trainer(config, corpus);
  Train(&trainer, steps);
  return trainer.SaveState();
}

std::vector<Json> Recipes() {
  std::vector<Json> recipes;
  for (const std::string& name : RecipeNames()) recipes.push_back(name);
  recipes.push_back({{"base", "te_nvfp4"}, {"disable_2d_quantization", true}, {"layers", "mlp"}});
  return recipes;
}

TEST_CASE("The order of the data has a seed of its own where it is given", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  const TrainConfig plain = Tiny("bf16");
  const auto with = [&](std::uint64_t order, std::uint64_t seed) {
    TrainConfig config = plain;
    config.data.order_seed = order;
    config.seed = seed;
    return config;
  };
  const auto numbers = [&](const TrainConfig& config, std::int64_t steps) {
    Trainer trainer(config, corpus);
    Train(&trainer, steps);
    return trainer.Numbers();
  };
  // The run's own seed for the order changes no bit.
  CHECK(numbers(with(plain.seed, plain.seed), 3) == numbers(plain, 3));
  // Another one keeps the initial weights and changes what is read.
  CHECK(numbers(with(9, plain.seed), 0) == numbers(plain, 0));
  CHECK(numbers(with(9, plain.seed), 3) != numbers(plain, 3));
  // Another seed of the run changes the weights at the same order.
  CHECK(numbers(with(9, 6), 0) != numbers(plain, 0));
  // A checkpoint knows its order.
  Trainer other(with(9, plain.seed), corpus);
  CHECK_THROWS_WITH(other.LoadState(StateAfter(plain, corpus, 1), "c"),
                    Catch::Matchers::ContainsSubstring("checkpoint of another configuration"));
  CHECK(ReadTrainConfig(ToJson(with(9, 6)), "test") == with(9, 6));
  CHECK_FALSE(ToJson(plain)["data"].contains("order_seed"));
}

TEST_CASE("Twenty steps give the same bytes with 1, 2 and 3 threads, under every recipe",
          "[train]") {
  const Corpus corpus = SyntheticCorpus();
  const int threads = Threads();
  for (const Json& recipe : Recipes()) {
    CAPTURE(recipe.dump());
    SetThreads(1);
    const std::vector<std::byte> one = StateAfter(Tiny(recipe), corpus, 20);
    for (const int n : {2, 3}) {
      SetThreads(n);
      CHECK((StateAfter(Tiny(recipe), corpus, 20) == one));
    }
  }
  SetThreads(threads);
}

TEST_CASE("Ten steps with Transformer Engine's random bits have one set of losses for any threads",
          "[train]") {
  const Json te{{"rounding", "stochastic"}, {"random_bits", 8}, {"random", "transformer_engine"}};
  const TrainConfig config =
      Tiny({{"base", "te_nvfp4"}, {"dgrad", {{"grad", te}}}, {"wgrad", {{"grad", te}}}});
  const Corpus corpus = SyntheticCorpus();
  const int threads = Threads();
  const auto losses = [&](const TrainConfig& of, int with_threads) {
    SetThreads(with_threads);
    Trainer trainer(of, corpus);
    std::vector<double> all;
    while (trainer.Steps() < 10) {
      all.push_back(trainer.Step(LearningRate(of.schedule, trainer.Steps(), TotalSteps(of))).loss);
    }
    return all;
  };
  const std::vector<double> one = losses(config, 1);
  CHECK(losses(config, 3) == one);
  CHECK(losses(Tiny("te_nvfp4"), 3) != one);
  SetThreads(threads);
}

TEST_CASE("Twenty steps give the same bytes on every SIMD target, under every recipe", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  REQUIRE(SimdTargets().size() >= kLeastTargets);
  for (const Json& recipe : Recipes()) {
    CAPTURE(recipe.dump());
    PinSimdTarget("best");
    const std::vector<std::byte> best = StateAfter(Tiny(recipe), corpus, 20);
    for (const std::string& target : SimdTargets()) {
      PinSimdTarget(target);
      CAPTURE(target);
      CHECK((StateAfter(Tiny(recipe), corpus, 20) == best));
    }
  }
  PinSimdTarget("best");
}

TEST_CASE("Recipes differ, seeds differ, and the same seed repeats", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  std::set<std::vector<float>> seen;
  for (const std::string& name : RecipeNames()) {
    CAPTURE(name);
    CHECK(seen.insert(ReadCheckpoint(StateAfter(Tiny(name), corpus, 3), "state").payload).second);
  }
  TrainConfig config = Tiny("te_nvfp4");
  const std::vector<float> first = ReadCheckpoint(StateAfter(config, corpus, 3), "first").payload;
  CHECK(ReadCheckpoint(StateAfter(config, corpus, 3), "again").payload == first);
  config.seed = 6;
  CHECK(ReadCheckpoint(StateAfter(config, corpus, 3), "other").payload != first);
}

TEST_CASE("Saving at any step, loading and going on equals an uninterrupted run", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  for (const char* recipe : {"bf16", "te_nvfp4", "mxfp4", "te_fp8_delayedscaling"}) {
    const TrainConfig config = Tiny(recipe);
    const std::vector<std::byte> whole = StateAfter(config, corpus, 20);
    for (const std::int64_t k : {0, 1, 7, 19}) {
      CAPTURE(recipe, k);
      const std::vector<std::byte> part = StateAfter(config, corpus, k);
      Trainer other(config, corpus);
      Train(&other, 2);
      other.Evaluate(EvaluationPrecision::kHigh);
      other.LoadState(part, "part");
      CHECK(other.Steps() == k);
      CHECK((other.SaveState() == part));
      Train(&other, 20);
      CHECK((other.SaveState() == whole));
    }
  }
}

TEST_CASE("Evaluating and diagnosing leave the training run as it is", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  const TrainConfig config = Tiny(GENERATE("te_nvfp4", "te_fp8_delayedscaling"));
  Trainer trainer(config, corpus);
  Train(&trainer, 5);
  const Evaluation training = trainer.Evaluate(EvaluationPrecision::kTraining);
  const Evaluation high = trainer.Evaluate(EvaluationPrecision::kHigh);
  CHECK(training.loss != high.loss);
  CHECK(training.loss == Catch::Approx(high.loss).epsilon(0.02));
  CHECK(trainer.Evaluate(EvaluationPrecision::kTraining).chunk_losses == training.chunk_losses);
  trainer.Diagnose();
  Train(&trainer, 20);
  CHECK((trainer.SaveState() == StateAfter(config, corpus, 20)));
}

TEST_CASE("An evaluation covers whole windows, in chunks that average to the loss", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  TrainConfig config = Tiny("bf16");
  config.evaluation.tokens = 1000;
  config.evaluation.chunk_tokens = 70;
  Trainer trainer(config, corpus);
  const Evaluation evaluation = trainer.Evaluate(EvaluationPrecision::kTraining);
  CHECK(evaluation.tokens == 31 * 32);
  REQUIRE(evaluation.chunk_losses.size() == 16);
  double sum = 0.0;
  for (std::size_t i = 0; i < 15; ++i) sum += 2 * evaluation.chunk_losses[i];
  CHECK((sum + evaluation.chunk_losses[15]) / 31 == Catch::Approx(evaluation.loss).epsilon(1e-12));
  CHECK(evaluation.loss == Catch::Approx(kInitialLoss).epsilon(0.02));
  config.evaluation.tokens = 0;
  Trainer all(config, corpus);
  CHECK(all.Evaluate(EvaluationPrecision::kTraining).tokens ==
        static_cast<std::int64_t>((corpus.validation.size() - 1) / 32 * 32));
}

TEST_CASE("Delayed scaling trains on the amaxes of the steps before, of all micro-batches",
          "[train]") {
  const Corpus corpus = SyntheticCorpus();
  TrainConfig config = Tiny("te_fp8_delayedscaling");
  const TrainConfig current = Tiny("te_fp8_currentscaling");
  CHECK(StateAfter(config, corpus, 3) != StateAfter(current, corpus, 3));
  // The amaxes that the first linear's input and weight use after one step.
  const auto amaxes = [&](int micro_batches) {
    config.micro_batches = micro_batches;
    const std::vector<float> payload =
        ReadCheckpoint(StateAfter(config, corpus, 1), "state").payload;
    const std::size_t stride = AmaxHistoryFloats(config.recipe);
    const std::size_t first = payload.size() - AmaxHistoryFloats(config.model, config.recipe);
    return std::array{payload[first + kFpropInput * stride],
                      payload[first + kFpropWeight * stride]};
  };
  CHECK(amaxes(1)[kFpropInput] > 0.0f);
  CHECK(amaxes(1)[kFpropWeight] > 0.0f);
  CHECK(amaxes(1) == amaxes(2));
}

std::vector<float> FirstMomentsAfterOneStep(TrainConfig config, const Corpus& corpus, int parts) {
  config.micro_batches = parts;
  Trainer trainer(config, corpus);
  CHECK(trainer.Step(1e-3).loss == Catch::Approx(kInitialLoss).epsilon(0.02));
  std::vector<float> payload = ReadCheckpoint(trainer.SaveState(), "state").payload;
  const std::size_t n = payload.size() / 3;  // the first moments are 0.1 times the gradient
  return {payload.begin() + static_cast<std::ptrdiff_t>(n),
          payload.begin() + static_cast<std::ptrdiff_t>(2 * n)};
}

TEST_CASE("Micro-batches add up to the gradient of the whole batch", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  TrainConfig config = Tiny("fp32");
  config.batch = 8;
  const std::vector<float> whole = FirstMomentsAfterOneStep(config, corpus, 1);
  for (const int parts : {2, 4, 8}) {
    const std::vector<float> split = FirstMomentsAfterOneStep(config, corpus, parts);
    CHECK(split == FirstMomentsAfterOneStep(config, corpus, parts));
    double error = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      error += std::pow(split[i] - whole[i], 2);
      norm += std::pow(whole[i], 2);
    }
    CHECK(std::sqrt(error / norm) < 1e-5);
  }
}

// A saved state with one parameter changed.
std::vector<std::byte> WithParameter(const std::vector<std::byte>& state, std::size_t index,
                                     float value) {
  Checkpoint checkpoint = ReadCheckpoint(state, "state");
  checkpoint.payload[index] = value;
  const std::span<const float> payload = checkpoint.payload;
  return WriteCheckpoint(checkpoint.header, std::span(&payload, 1));
}

TEST_CASE("A step that leaves the finite numbers names step and first tensor, and changes nothing",
          "[train]") {
  const Corpus corpus = SyntheticCorpus();
  const TrainConfig config = Tiny("bf16");
  Trainer trainer(config, corpus);
  Train(&trainer, 2);
  const std::vector<std::byte> good = trainer.SaveState();
  // Parameter order: embedding (256 x 32), head (256 x 32), block 0: qkv (64 x 32) first.
  const std::size_t head = 256 * 32, qkv = 2 * head;
  const auto report = [&](std::size_t index, float value) {
    const std::vector<std::byte> bad = WithParameter(good, index, value);
    trainer.LoadState(bad, "bad");
    const StepResult result = trainer.Step(1e-3);
    CHECK((trainer.SaveState() == bad));
    REQUIRE(result.non_finite.has_value());
    CHECK(result.non_finite->step == 2);
    return result.non_finite->tensor;
  };
  CHECK(report(qkv, std::nanf("")) == "blocks.0.attention.qkv.weight");
  CHECK(report(head + 97 * 32, -HUGE_VALF) == "head.weight");
  const std::size_t up = qkv + 64 * 32 + 32 * 32;
  CHECK(report(up, 1e30f) == "blocks.0.mlp.activation.output");
  trainer.LoadState(good, "good");
  CHECK_FALSE(trainer.Step(1e-3).non_finite.has_value());
}

double UnigramEntropy(const std::vector<std::uint16_t>& tokens) {
  std::map<std::uint16_t, double> count;
  for (const std::uint16_t t : tokens) ++count[t];
  double entropy = 0.0;
  for (const auto& [token, n] : count) {
    const double p = n / static_cast<double>(tokens.size());
    entropy -= p * std::log(p);
  }
  return entropy;
}

TEST_CASE("Models in BF16 and in NVFP4 learn more than symbol frequencies", "[train]") {
  const Corpus corpus = SyntheticCorpus(100'000);
  const double unigram = UnigramEntropy(corpus.validation);
  for (const char* recipe : {"bf16", "te_nvfp4"}) {
    TrainConfig config = Tiny(recipe);
    config.batch = 8;
    config.tokens = 8 * 32 * 250;
    config.schedule.learning_rate = 1e-2;
    config.evaluation.tokens = 4096;
    Trainer trainer(config, corpus);
    Train(&trainer, 250);
    CAPTURE(recipe, unigram);
    CHECK(trainer.Evaluate(EvaluationPrecision::kTraining).loss < unigram - 0.05);
  }
}

TEST_CASE("A corpus that does not fit the model is refused", "[train]") {
  TrainConfig config = Tiny("bf16");
  Corpus corpus = SyntheticCorpus(2'000);
  corpus.train.resize(63);
  CHECK_THROWS_WITH(Trainer(config, corpus, "run.json"),
                    Catch::Matchers::ContainsSubstring("run.json#/data: the training part"));
  corpus = SyntheticCorpus(2'000);
  corpus.vocabulary = 300;
  CHECK_THROWS_WITH(Trainer(config, corpus, "run.json"),
                    Catch::Matchers::ContainsSubstring("run.json#/model/vocabulary: the corpus"));
}

TEST_CASE("An evaluation belongs to its weights and its precision", "[train]") {
  const Corpus corpus = SyntheticCorpus();
  const auto losses = [](Trainer* trainer, EvaluationPrecision precision) {
    return trainer->Evaluate(precision).chunk_losses;
  };
  constexpr auto kTraining = EvaluationPrecision::kTraining, kHigh = EvaluationPrecision::kHigh;
  for (const char* recipe : {"bf16", "fp32", "te_nvfp4"}) {
    CAPTURE(recipe);
    Trainer trainer(Tiny(recipe), corpus);
    const bool quantized = std::string(recipe) == "te_nvfp4";
    const std::vector<double> first = losses(&trainer, kTraining);
    CHECK((losses(&trainer, kHigh) == first) == !quantized);
    const std::vector<std::byte> state = trainer.SaveState();
    Train(&trainer, 2);
    CHECK(losses(&trainer, kTraining) != first);
    trainer.LoadState(state, "test");
    CHECK(losses(&trainer, kTraining) == first);
  }
}

}  // namespace
}  // namespace fp4lab
