#include "fp4lab/dialect/statistic.h"

#include <cmath>

#include "fp4lab/dialect/blocks.h"

namespace fp4lab {

float QuestStatistic(MatrixView<const float> block) {
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

float StatisticOf(const Dialect& dialect, MatrixView<const float> block) {
  if (dialect.statistic == BlockStatistic::kQuest) return QuestStatistic(block);
  return MaxMagnitudeOf(block, dialect.nan != NanRule::kElement);
}

}  // namespace fp4lab
