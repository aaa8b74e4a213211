// The two-level paired bootstrap of a study: every gap and every token ratio of every draw.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "fp4lab/study/analysis.h"
#include "fp4lab/study/loss_cube.h"
#include "fp4lab/study/ratio_estimates.h"
#include "fp4lab/study/results_file.h"

namespace fp4lab::study {

// Everything about one precision that the steps below share.
struct Work {
  const Results& results;
  Precision precision;
  LossCube cube;
  ChunkLosses chunks;
  std::size_t baseline;           // the reference arm
  std::vector<std::size_t> arms;  // of the fits
  std::vector<RatioKey> keys;
  std::vector<ArmPair> gap_pairs;

  bool WasRun(std::size_t seed, std::size_t arm) const {  // to its end or until it diverged
    for (std::size_t k = 0; k < cube.Budgets(); ++k) {
      if (std::isnan(cube.At(seed, arm, k))) return false;
    }
    return true;
  }
  std::vector<bool> Present(std::size_t a, std::size_t b) const {
    std::vector<bool> present;
    for (std::size_t s = 0; s < cube.seeds; ++s) present.push_back(WasRun(s, a) && WasRun(s, b));
    return present;
  }
};

// `results` must outlive it.
Work MakeWork(const Results& results, Precision precision);

// Means of all drawn cubes: one row a key or gap, one column a draw.
struct BootstrapMeans {
  std::vector<std::vector<double>> log_ratios, gaps;
};

// The power law takes no part: its rows stay 0.
BootstrapMeans Bootstrap(const Work& work, int draws);

}  // namespace fp4lab::study
