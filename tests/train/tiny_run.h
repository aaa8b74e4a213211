// Tiny runs, for tests of what a recipe's keys do in training.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"

namespace fp4lab {

inline constexpr double kTinyRate = 5e-3;

inline Json TinyData() { return {{"source", "synthetic"}, {"synthetic_bytes", 20000}}; }

// The run "run.json": 12 steps of four sequences in two micro-batches, with the members of `model`.
inline TrainConfig TinyRun(const Json& recipe, const Json& model) {
  Json json = {{"model", {{"layers", 2}, {"heads", 2}}},
               {"schedule", {{"learning_rate", kTinyRate}, {"warmup_steps", 3}}},
               {"data", TinyData()},
               {"recipe", recipe},
               {"batch", 4},
               {"micro_batches", 2},
               {"evaluation", {{"tokens", 64}}}};
  json["model"].update(model);
  json["tokens"] = 12 * 4 * json["model"]["sequence"].get<std::int64_t>();
  return ReadTrainConfig(json, "run.json");
}

inline const Corpus& TinyText() {
  static const Corpus corpus = LoadCorpus(ReadDataConfig(TinyData(), "run.json#/data"));
  return corpus;
}

inline void TrainTo(std::int64_t steps, Trainer* trainer) {
  while (trainer->Steps() < steps) REQUIRE_FALSE(trainer->Step(kTinyRate).non_finite.has_value());
}

inline std::vector<std::byte> StateAfter(const TrainConfig& config, std::int64_t steps) {
  Trainer trainer(config, TinyText());
  TrainTo(steps, &trainer);
  return trainer.SaveState();
}

// The state after `steps`, which 1 and 3 threads, the SIMD target and a trainer that has made other
// steps and loads the state after `part` of them have to give.
inline std::vector<std::byte> SameStateEverywhere(const TrainConfig& config, std::int64_t steps,
                                                  std::int64_t part, std::string_view target) {
  const int threads = Threads();
  SetThreads(1);
  const std::vector<std::byte> whole = StateAfter(config, steps);
  SetThreads(3);
  CHECK((StateAfter(config, steps) == whole));
  PinSimdTarget(target);
  CHECK((StateAfter(config, steps) == whole));
  PinSimdTarget("best");
  const std::vector<std::byte> early = StateAfter(config, part);
  Trainer other(config, TinyText());
  TrainTo(part / 2, &other);
  CHECK(std::isfinite(other.Evaluate(EvaluationPrecision::kTraining).loss));
  other.LoadState(early, "part");
  for (const TensorStatistics& t : other.Diagnose()) {
    CAPTURE(t.name);
    CHECK(std::isfinite(t.values["kurtosis"]));
  }
  TrainTo(steps, &other);
  CHECK((other.SaveState() == whole));
  SetThreads(threads);
  return whole;
}

}  // namespace fp4lab
