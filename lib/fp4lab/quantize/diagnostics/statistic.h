// b, the statistic of a block from which its scale is computed. Host and device share the constexpr
// parts.
#pragma once

#include <cstddef>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/simd/reduce.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// SumInOrder of base/simd/reduce.h for numbers that are added one by one.
class OrderedSum {
 public:
  constexpr void Add(float x) {
    float& lane = lanes_[count_++ % kReductionLanes];
    lane = lane + x;
  }
  constexpr float Total() const {
    float sums[kReductionLanes] = {};
    for (std::size_t i = 0; i < kReductionLanes; ++i) sums[i] = lanes_[i];
    for (std::size_t width = kReductionLanes / 2; width > 0; width /= 2) {
      for (std::size_t i = 0; i < width; ++i) sums[i] = sums[i] + sums[i + width];
    }
    return sums[0];
  }

 private:
  float lanes_[kReductionLanes] = {};
  std::size_t count_ = 0;
};

// sigma^2 of n numbers from their sum and that of their squares, m = fl(sum / n):
// max(fl(fl(squares / n) - fl(m^2)), 0).
constexpr float VarianceOf(float sum, float squares, std::size_t count) {
  const auto n = static_cast<float>(count);
  const float mean = sum / n;
  const float variance = squares / n - mean * mean;
  return variance < 0.0f ? 0.0f : variance;
}
constexpr float QuestOfSigma(float sigma) { return sigma * 2.92247856f + 6e-8f; }

// BlockStatistic::kQuest of a block: QuestOfSigma(fl(sqrt(VarianceOf the block))), over its
// elements row by row, with the sums of base/simd/reduce.h. (IST-DASLab/Quartet, mxfp4.py: std *
// (2.92247856 / 6) + 1e-8; here times 6.)
float QuestStatistic(MatrixView<const float> block);

// max |x|, 0 for an empty x; a NaN is ignored, or makes the maximum NaN if keeps_nan.
float MaxMagnitudeOf(MatrixView<const float> x, bool keeps_nan);

// b of a block: the statistic of the dialect (amax or kQuest).
float StatisticOf(const Dialect& dialect, MatrixView<const float> block);

}  // namespace fp4lab
