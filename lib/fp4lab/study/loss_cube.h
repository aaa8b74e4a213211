// The losses of a study as a cube: seeds x arms x budgets, and its bootstrap resamples.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "fp4lab/study/results_file.h"
#include "fp4lab/study/statistics.h"
#include "fp4lab/study/token_gap.h"

namespace fp4lab::study {

// Which validation loss: the forward pass as in training, or the same weights in high precision.
enum class Precision { kTraining, kHigh };

struct LossCube {
  std::size_t seeds = 0, arms = 0;
  std::vector<double> log_tokens;  // ln of the budgets
  // [seed][arm][budget]. NaN: not run. +inf: the run diverged before it.
  std::vector<double> losses;

  std::size_t Budgets() const { return log_tokens.size(); }
  double& At(std::size_t seed, std::size_t arm, std::size_t budget) {
    return losses[(seed * arms + arm) * Budgets() + budget];
  }
  double At(std::size_t seed, std::size_t arm, std::size_t budget) const {
    return losses[(seed * arms + arm) * Budgets() + budget];
  }
  LossCurve Curve(std::size_t seed, std::size_t arm) const;
  // Any loss at all (a study may leave out the high-precision validation).
  bool Empty() const;
};

LossCube LossesOf(const Results& results, Precision precision);

// The chunk losses behind a cube.
struct ChunkLosses {
  std::size_t chunks = 0;  // 0: not the same number everywhere, so chunks cannot be resampled
  std::vector<std::vector<double>> series;  // [seed][arm][budget], each `chunks` long or empty
};

ChunkLosses ChunksOf(const Results& results, Precision precision);

// The cube of one bootstrap draw: the drawn seeds in a row, each loss moved by what the drawn
// chunks move its mean.
LossCube Resample(const LossCube& cube, const ChunkLosses& chunks, const BootstrapDraw& draw);

std::size_t IndexOf(const std::vector<std::string>& names, std::string_view name);

}  // namespace fp4lab::study
