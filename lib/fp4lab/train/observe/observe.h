// Measures one step of a run for its observation, on the CPU and in memory of its own, so that the
// run stays as it is on any device.
#pragma once

#include <cstdint>
#include <span>

#include "fp4lab/train/config.h"
#include "fp4lab/train/engine.h"
#include "fp4lab/train/observe/observation.h"
#include "fp4lab/train/observe/weight_codes.h"

namespace fp4lab {

// Cosine, projection and noise of a vector q against a vector h of the same size. Sums are in
// double, in order.
struct VectorComparison {
  double hh = 0.0, qq = 0.0, qh = 0.0, noise = 0.0;  // sums of h h, q q, q h, (q - h)^2

  void Add(std::span<const float> q, std::span<const float> h);
  void Add(const VectorComparison& other);
  double Cosine() const;         // 1 where both are 0; 0 where one is
  double NormRatio() const;      // |q| / |h|
  double Projection() const;     // <q, h> / <h, h>
  double NoiseRatio() const;     // |h| / |q - h|
  double RelativeError() const;  // |q - h| / |h|
};

// One forward and backward pass under `recipe` and one without quantization, over whole sequences
// of the step that follows `step` steps. `codes` keeps the weights' codes for the next observation.
// `teacher`: that of the run; null: none.
Observation Observe(const TrainConfig& config, const Recipe& recipe, const TrainingNumbers& numbers,
                    std::int64_t step, std::span<const std::uint16_t> inputs,
                    std::span<const std::uint16_t> targets, WeightCodes* codes,
                    LogitSource* teacher = nullptr);

}  // namespace fp4lab
