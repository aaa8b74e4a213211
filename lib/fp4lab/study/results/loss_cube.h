// The losses of a study as a cube: seeds x arms x budgets, and its bootstrap resamples.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/numbers/token_gap.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// The precision of the forward pass of a validation: that of the training, or high precision with
// the same weights.
enum class Precision { kTraining, kHigh };

struct LossCube {
  std::size_t seeds = 0, arms = 0;
  std::vector<double> log_tokens;  // ln of the budgets
  // [seed][arm][budget], nats per token. NaN: not run. +inf: the run diverged before the budget.
  std::vector<double> losses;

  std::size_t Budgets() const { return log_tokens.size(); }
  double& At(std::size_t seed, std::size_t arm, std::size_t budget) {
    return losses[(seed * arms + arm) * Budgets() + budget];
  }
  double At(std::size_t seed, std::size_t arm, std::size_t budget) const {
    return losses[(seed * arms + arm) * Budgets() + budget];
  }
  LossCurve Curve(std::size_t seed, std::size_t arm) const;
  // Whether no loss is finite (a study may leave out the high-precision validation).
  bool Empty() const;
};

LossCube LossesOf(const Results& results, Precision precision);

// The losses of the single chunks of the validation text, whose means are the losses of a cube.
struct ChunkLosses {
  // 0: fewer than 2, or not the same number in all runs, so that chunks cannot be resampled.
  std::size_t chunks = 0;
  std::vector<std::vector<double>> series;  // [seed][arm][budget], each `chunks` long or empty
  // Chunks that the bootstrap draws together: the longest BlockLength of the gaps between each arm
  // and the reference at the largest budget, means over seeds.
  std::size_t block = 1;
};

ChunkLosses ChunksOf(const Results& results, Precision precision);

// The cube of one bootstrap draw: seed s holds the losses of seed draw.seeds[s], each shifted by
// the difference that the drawn chunks make to its mean.
LossCube Resample(const LossCube& cube, const ChunkLosses& chunks, const BootstrapDraw& draw);

// The index of `name` in `names`, which must hold it.
std::size_t IndexOf(const std::vector<std::string>& names, std::string_view name);

}  // namespace fp4lab::study
