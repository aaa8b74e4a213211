#include "fp4lab/dialect/blocks.h"

#include <algorithm>
#include <limits>

#include "fp4lab/base/error.h"
#include "fp4lab/dialect/adaptive.h"
#include "fp4lab/dialect/statistic.h"

namespace fp4lab {
namespace {

float BlockError(const Dialect& d, const BlockNumbers& n, const Level& l,
                 MatrixView<const float> block) {
  return AdaptiveBlockError(d, n, l, block.rows, block.cols,
                            [&](std::size_t r, std::size_t c) { return block(r, c); });
}

}  // namespace

BlockGrid::BlockGrid(const Dialect& dialect, std::size_t matrix_rows, std::size_t matrix_cols)
    : stores_scales(dialect.block_rows > 0) {
  block_rows = stores_scales ? static_cast<std::size_t>(dialect.block_rows) : 1;
  block_cols = stores_scales ? static_cast<std::size_t>(dialect.block_cols)
                             : std::max<std::size_t>(matrix_cols, 1);
  rows = (matrix_rows + block_rows - 1) / block_rows;
  cols = (matrix_cols + block_cols - 1) / block_cols;
}

MatrixView<const float> BlockGrid::Block(MatrixView<const float> x, std::size_t i,
                                         std::size_t j) const {
  const std::size_t r = i * block_rows, c = j * block_cols;
  return x.Block(r, c, std::min(block_rows, x.rows - r), std::min(block_cols, x.cols - c));
}

void CheckOptions(const Dialect& dialect, MatrixView<const float> x,
                  const DialectOptions& options) {
  const std::size_t amaxes = dialect.row_scaled ? x.rows : 1;
  Expects(options.amax.empty() || !HasLevelTwo(dialect) || options.amax.size() == amaxes,
          "amax is one value, or one a row for a row-scaled dialect");
  const bool given = options.random.size() == x.size() && RandomBitsOf(dialect.rounding) <= 16;
  Expects(!IsStochastic(dialect) || options.source.has_value() || given,
          "stochastic rounding takes one random field an element, or a source of them");
  Expects(!dialect.row_scaled || dialect.block_rows <= 1, "row-scaled blocks have one row");
  Expects(dialect.unbias == Unbias::kNone || options.source.has_value(),
          "unbiased scales take a source of random bits");
  Expects(
      dialect.adaptive == Adaptive::kNo ||
          (dialect.block_rows >= 1 && dialect.block_rows <= static_cast<int>(kMostAdaptiveLines)),
      "four over six has blocks of 1 to 32 rows");
}

void ShapeQuantized(const Dialect& dialect, const BlockGrid& grid, Quantized* q) {
  q->codes.resize(q->rows * q->cols);
  if (!grid.stores_scales) return;
  q->scale_rows = grid.rows;
  q->scale_cols = grid.cols;
  const bool floats = dialect.scale_encoding == ScaleEncoding::kBinary32;
  (floats ? q->scale_values.resize(grid.rows * grid.cols)
          : q->scales.resize(grid.rows * grid.cols));
}

float MaxMagnitudeOf(MatrixView<const float> x, bool keeps_nan) {
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

Level LevelOfRow(const Dialect& dialect, const std::vector<float>& amax, std::size_t row) {
  if (amax.empty()) return {};
  return LevelOf(dialect, amax[dialect.row_scaled ? row : 0]);
}

ChosenBlock ChooseBlock(const Dialect& dialect, const Level& level, MatrixView<const float> block) {
  const float b = StatisticOf(dialect, block);
  return ChooseBlock(dialect, level, block, b, ScaleBefore(dialect, b, level));
}

ChosenBlock ChooseBlock(const Dialect& dialect, const Level& level, MatrixView<const float> block,
                        float b, float t) {
  const BlockNumbers six = NumbersFrom(dialect, b, t, level);
  if (dialect.adaptive == Adaptive::kNo) return {six, false};
  const BlockNumbers four = NumbersFrom(dialect, b, t * 1.5f, level);
  const bool four_is_better =
      BlockError(dialect, four, level, block) < BlockError(dialect, six, level, block);
  return {four_is_better ? four : six, four_is_better};
}

}  // namespace fp4lab
