#include "fp4lab/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fp4lab/base/elementary.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

// The optimizer takes the rate in binary32.
constexpr double kLeastRate = 1e-37, kMostRate = 1e38;

// The rate when the share `remaining` of the way from the final rate to the peak is left.
double Decayed(const ScheduleConfig& s, double remaining) {
  return s.learning_rate * (s.final_ratio + (1.0 - s.final_ratio) * remaining);
}

double AfterWarmup(const ScheduleConfig& s, std::int64_t step, std::int64_t total) {
  if (s.kind == "cosine") {
    if (step < s.warmup_steps || total <= s.warmup_steps) return s.learning_rate;
    const double p =
        static_cast<double>(step - s.warmup_steps) / static_cast<double>(total - s.warmup_steps);
    return Decayed(s, (1.0 + SineCosine(std::numbers::pi * p).cos) / 2.0);
  }
  const std::int64_t decay_steps = DecaySteps(s, total), first = total - decay_steps;
  if (step < first || decay_steps == 0) return s.learning_rate;
  const double p = static_cast<double>(step - first) / static_cast<double>(decay_steps);
  return Decayed(s, s.decay_shape == "sqrt" ? 1.0 - std::sqrt(p) : 1.0 - p);
}

}  // namespace

std::int64_t DecaySteps(const ScheduleConfig& s, std::int64_t total_steps) {
  const IeeeArithmetic ieee;
  if (s.kind != "wsd") return 0;
  return std::min<std::int64_t>(std::llround(s.decay_fraction * static_cast<double>(total_steps)),
                                total_steps);
}

double LearningRate(const ScheduleConfig& s, std::int64_t step, std::int64_t total_steps) {
  const IeeeArithmetic ieee;
  Expects(0 <= step && step < total_steps, "LearningRate: 0 <= step < total_steps");
  const double rate = AfterWarmup(s, step, total_steps);
  if (step >= s.warmup_steps) return rate;
  return std::min(
      rate, s.learning_rate * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps));
}

ScheduleConfig ReadScheduleConfig(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  ScheduleConfig s;
  JsonObject o(json, where);
  o.Read("kind", &s.kind);
  o.Read("learning_rate", &s.learning_rate);
  o.Read("warmup_steps", &s.warmup_steps);
  o.Read("decay_fraction", &s.decay_fraction);
  o.Read("decay_shape", &s.decay_shape);
  o.Read("final_ratio", &s.final_ratio);
  o.Finish();
  const auto check = [&](bool good, std::string_view key, std::string_view what) {
    if (!good) throw Error(o.Where(key), what);
  };
  check(s.kind == "wsd" || s.kind == "cosine" || s.kind == "constant", "kind",
        "must be \"wsd\", \"cosine\" or \"constant\", not \"" + s.kind + "\"");
  check(s.decay_shape == "linear" || s.decay_shape == "sqrt", "decay_shape",
        "must be \"linear\" or \"sqrt\", not \"" + s.decay_shape + "\"");
  check(s.learning_rate >= kLeastRate && s.learning_rate <= kMostRate, "learning_rate",
        "must be a positive number that binary32 holds, from 1e-37 to 1e38");
  check(s.warmup_steps >= 0, "warmup_steps", "must not be negative");
  check(s.decay_fraction >= 0 && s.decay_fraction <= 1, "decay_fraction", "must be in [0, 1]");
  check(s.final_ratio >= 0 && s.final_ratio <= 1, "final_ratio", "must be in [0, 1]");
  return s;
}

Json ToJson(const ScheduleConfig& s) {
  const IeeeArithmetic ieee;
  return {{"kind", s.kind},
          {"learning_rate", s.learning_rate},
          {"warmup_steps", s.warmup_steps},
          {"decay_fraction", s.decay_fraction},
          {"decay_shape", s.decay_shape},
          {"final_ratio", s.final_ratio}};
}

}  // namespace fp4lab
