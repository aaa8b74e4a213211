// Learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <string>

#include "fp4lab/io/json.h"

namespace fp4lab {

// wsd: warm-up, constant, decay over the last decay_fraction of all steps; cosine: warm-up, then
// half a cosine down; constant: warm-up only. The warm-up is a number of steps, not a share, so
// that runs of different lengths share their trunk.
struct ScheduleConfig {
  std::string kind = "wsd";  // "wsd" | "cosine" | "constant"
  double learning_rate = 5e-3;
  std::int64_t warmup_steps = 25;
  double decay_fraction = 0.2;         // wsd
  std::string decay_shape = "linear";  // wsd: "linear" | "sqrt" (1 - sqrt)
  double final_ratio = 0.0;            // of the peak; wsd and cosine

  friend bool operator==(const ScheduleConfig&, const ScheduleConfig&) = default;
};

// The rate of step `step`, the next to be made; steps count from 0.
//   warm-up          peak * (step + 1) / warmup_steps             for step < warmup_steps
//   wsd decay        p = (step - first) / DecaySteps, first = total - DecaySteps
//                    peak * (final_ratio + (1 - final_ratio) * (1 - p))          linear
//                    peak * (final_ratio + (1 - final_ratio) * (1 - sqrt(p)))    sqrt
//   cosine           p = (step - warmup) / (total - warmup)
//                    peak * (final_ratio + (1 - final_ratio) * (1 + cos(pi p)) / 2)
// p is 0 at the first step of the decay and 1 only after the last: no step is made at the final
// rate itself. A step that is both in warm-up and decay takes the smaller of the two rates.
double LearningRate(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total_steps);

// wsd: round(decay_fraction * total_steps), at most total_steps; 0 for the other kinds.
std::int64_t DecaySteps(const ScheduleConfig& schedule, std::int64_t total_steps);

ScheduleConfig ReadScheduleConfig(const Json& json, const std::string& where);
Json ToJson(const ScheduleConfig& schedule);

}  // namespace fp4lab
