// What an optimizer is: a row of the table in optimizers.h. The CPU's rows stand here, the GPU's in
// gpu/optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp4lab/train/config.h"
#include "fp4lab/train/model/parameters.h"

namespace fp4lab {

// The decoupled decay of a group's weights.
inline float WeightDecayOf(const OptimizerConfig& config, const ParameterGroup& group) {
  return group.kind == ParameterKind::kGains ? 0.0f : config.weight_decay * group.decay;
}

inline float LearningRateOf(const OptimizerConfig& config, float rate,
                            const ParameterGroup& group) {
  switch (group.kind) {
    case ParameterKind::kEmbeddings:
      return rate * config.rates.embeddings;
    case ParameterKind::kMatrices:
      return rate * config.rates.matrices * group.rate;
    case ParameterKind::kGains:
      return rate * config.rates.gains;
    case ParameterKind::kBalance:
      return group.balance_rate;
  }
  return rate;
}

// What differs from one update to the next.
struct UpdateStep {
  float learning_rate = 0.0f;   // the schedule's
  float gradient_scale = 1.0f;  // clip factor, applied to the gradient first
  std::int64_t step = 1;        // 1 for the first update
};

// The numbers of all parameters. `states`: Optimizer::states spans, each of one number per
// parameter, all 0 before the first update.
struct OptimizerNumbers {
  std::span<const float> gradients;
  std::span<float> parameters;
  std::span<const std::span<float>> states;
};

struct Optimizer {
  std::string_view name;   // "adamw"
  std::string_view title;  // "AdamW"
  std::size_t states = 0;  // the numbers per parameter that it keeps from step to step
  bool on_gpu = false;     // whether gpu/optimizer has its twin
  // Whether an update of a kMatrices group needs whole matrices, and not any of their elements.
  bool whole_matrices = false;
  // Updates the parameters and states of one group, or of a process's share of it (shares.h).
  void (*update)(const OptimizerConfig& config, const UpdateStep& step, const ParameterGroup& group,
                 const OptimizerNumbers& numbers) = nullptr;
};

}  // namespace fp4lab
