// The two-level paired bootstrap of a study: every gap and every token ratio of every draw.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/analysis/ratio_estimates.h"
#include "fp4lab/study/results/loss_cube.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// The losses of one precision, and the ratios and gaps to compute from them.
struct Work {
  const Results& results;
  Precision precision;
  LossCube cube;
  ChunkLosses chunks;
  std::size_t baseline;           // the reference arm
  std::vector<std::size_t> arms;  // the arms of the fits: all but the null arms
  std::vector<RatioKey> keys;
  std::vector<ArmPair> gap_pairs;

  // Whether the run has a loss at every budget; a run that diverged has +infinity.
  bool WasRun(std::size_t seed, std::size_t arm) const {
    for (std::size_t k = 0; k < cube.Budgets(); ++k) {
      if (std::isnan(cube.At(seed, arm, k))) return false;
    }
    return true;
  }
  // For each seed, whether both arms were run.
  std::vector<bool> Present(std::size_t a, std::size_t b) const {
    std::vector<bool> present;
    for (std::size_t s = 0; s < cube.seeds; ++s) present.push_back(WasRun(s, a) && WasRun(s, b));
    return present;
  }
};

// `results` must outlive the returned Work.
Work MakeWork(const Results& results, Precision precision);

// The means over seeds in every bootstrap draw: log_ratios (ln r) as [key of Work::keys][draw],
// gaps as [pair of Work::gap_pairs * budgets + budget][draw].
struct BootstrapMeans {
  std::vector<std::vector<double>> log_ratios, gaps;
};

// Draws seeds and chunks `draws` times. The power law is not fitted to draws: the rows of its keys
// stay 0.
BootstrapMeans Bootstrap(const Work& work, int draws);

}  // namespace fp4lab::study
