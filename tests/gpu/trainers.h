// Helpers for the tests of whole training runs on the GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/gpu/engine/engine.h"
#include "fp4lab/train/trainer.h"
#include "tests/gpu/no_gpu.h"
#include "tests/support/catch.h"

namespace fp4lab {

inline const Corpus& Text() {
  static const Corpus corpus = [] {
    DataConfig data;
    data.source = "synthetic";
    data.synthetic_bytes = 400'000;
    return LoadCorpus(data);
  }();
  return corpus;
}

inline Trainer OnGpu(TrainConfig config,
                     gpu::AttentionPrecision attention = gpu::AttentionPrecision::kTensorCore) {
  config.device = Device::kCuda;
  return Trainer(config, Text(), "test",
                 [=] { return gpu::MakeCudaEngine(config, "test#/device", {}, attention); });
}

// Trains until the trainer has made `steps` steps in all; returns the losses of the steps it made.
inline std::vector<double> Train(Trainer* trainer, std::int64_t steps) {
  const TrainConfig& config = trainer->Config();
  std::vector<double> losses;
  while (trainer->Steps() < steps) {
    const StepResult result =
        trainer->Step(LearningRate(config.schedule, trainer->Steps(), TotalSteps(config)));
    REQUIRE_FALSE(result.non_finite.has_value());
    losses.push_back(result.loss);
  }
  return losses;
}

inline double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

}  // namespace fp4lab
