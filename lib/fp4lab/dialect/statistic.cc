#include "fp4lab/dialect/statistic.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fp4lab/base/reduce.h"
#include "fp4lab/dialect/blocks.h"

namespace fp4lab {

float QuestStatistic(MatrixView<const float> block) {
  std::vector<float> x, squares;
  for (std::size_t r = 0; r < block.rows; ++r) {
    for (std::size_t c = 0; c < block.cols; ++c) {
      x.push_back(block(r, c));
      squares.push_back(block(r, c) * block(r, c));
    }
  }
  const auto n = static_cast<float>(x.size());
  const float mean = SumInOrder(x) / n;
  const float variance = SumInOrder(squares) / n - mean * mean;
  return std::sqrt(std::max(variance, 0.0f)) * 2.92247856f + 6e-8f;
}

float StatisticOf(const Dialect& dialect, MatrixView<const float> block) {
  if (dialect.statistic == BlockStatistic::kQuest) return QuestStatistic(block);
  return MaxMagnitudeOf(block, dialect.nan != NanRule::kElement);
}

}  // namespace fp4lab
