// Made-up loss curves of training runs with a known gap, deterministic.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/study/parity/parity.h"

namespace fp4lab::study {

struct SeriesOptions {
  std::size_t steps = 100;
  double correlation = 0;  // of neighbours
  std::uint64_t seed = 0;
};

// A standard normal number, by Box and Muller.
inline double NormalOf(std::uint64_t seed, std::uint64_t i) {
  const RandomStream bits{.seed = seed, .step = 0, .tensor = 0};
  const double u = (bits.Bits32(2 * i) + 0.5) / 4294967296.0;
  const double v = (bits.Bits32(2 * i + 1) + 0.5) / 4294967296.0;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

// First-order autoregression of mean 0 and deviation 1.
inline std::vector<double> Autoregression(const SeriesOptions& options) {
  std::vector<double> series;
  double value = NormalOf(options.seed, 0);
  const double fresh = std::sqrt(1 - options.correlation * options.correlation);
  for (std::size_t i = 0; i < options.steps; ++i) {
    value = options.correlation * value + fresh * NormalOf(options.seed, i + 1);
    series.push_back(value);
  }
  return series;
}

struct CurveOptions {
  std::size_t steps = 300;
  double noise = 0.01;       // of each run's steps, of the loss
  double correlation = 0.3;  // of neighbouring steps
  double seed_noise = 0;     // of a run as a whole
  double arm_noise = 0;      // of the steps of all runs of an arm
};

// Arms of as many runs, whose losses fall alike; those of the runs lie `gap` higher. `number` picks
// the noise.
inline ParityArms MadeArms(const CurveOptions& options, int seeds, double gap,
                           std::uint64_t number) {
  ParityArms arms;
  std::uint64_t next = number * 7919;
  const auto noise = [&] {
    return Autoregression(
        {.steps = options.steps, .correlation = options.correlation, .seed = ++next});
  };
  for (const bool is_baseline : {false, true}) {
    const std::vector<double> shared = noise();
    for (int r = 0; r < seeds; ++r) {
      MetricLog log{.name = std::string(is_baseline ? "base" : "run") + std::to_string(r)};
      log.names["loss"] = "loss";
      const std::vector<double> own = noise();
      const double seed = options.seed_noise * NormalOf(++next, 0);
      for (std::size_t t = 0; t < options.steps; ++t) {
        const double at = static_cast<double>(t);
        const double fall = 2.5 + 3 / (1 + at / 10);
        log.series["loss"][at] =
            fall * (1 + (is_baseline ? 0 : gap)) *
            (1 + seed + options.noise * own[t] + options.arm_noise * shared[t]);
      }
      (is_baseline ? arms.baseline : arms.runs).push_back(std::move(log));
    }
  }
  return arms;
}

}  // namespace fp4lab::study
