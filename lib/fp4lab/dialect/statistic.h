// b, a block's statistic from which its scale follows.
#pragma once

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// BlockStatistic::kQuest of a block, rows one after the other: with sums as base/reduce.h has them,
// n elements, m = fl(sum x / n): sigma = sqrt(max(fl(fl(sum x^2 / n) - fl(m^2)), 0)).
// (IST-DASLab/Quartet, mxfp4.py: std * (2.92247856 / 6) + 1e-8; here times 6.)
float QuestStatistic(MatrixView<const float> block);

// b of a block as the dialect has it.
float StatisticOf(const Dialect& dialect, MatrixView<const float> block);

}  // namespace fp4lab
