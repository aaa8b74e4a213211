#include "fp4lab/quantize/diagnostics/statistic.h"

#include <cmath>
#include <limits>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/tensor_scale.h"

namespace fp4lab {

float QuestStatistic(MatrixView<const float> block) {
  const IeeeArithmetic ieee;
  OrderedSum sum, squares;
  for (std::size_t r = 0; r < block.rows; ++r) {
    for (std::size_t c = 0; c < block.cols; ++c) {
      const float x = block(r, c);
      sum.Add(x);
      squares.Add(x * x);
    }
  }
  return QuestOfSigma(std::sqrt(VarianceOf(sum.Total(), squares.Total(), block.size())));
}

float MaxMagnitudeOf(MatrixView<const float> x, bool keeps_nan) {
  const IeeeArithmetic ieee;
  float amax = 0.0f;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const float magnitude = Magnitude(x(r, c));
      if (magnitude > amax) amax = magnitude;  // false for NaN
      if (keeps_nan && magnitude != magnitude) return std::numeric_limits<float>::quiet_NaN();
    }
  }
  return amax;
}

float StatisticOf(const Dialect& dialect, MatrixView<const float> block) {
  const IeeeArithmetic ieee;
  if (dialect.statistic == BlockStatistic::kQuest) return QuestStatistic(block);
  return MaxMagnitudeOf(block, dialect.nan != NanRule::kElement);
}

}  // namespace fp4lab
