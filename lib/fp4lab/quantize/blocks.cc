#include "fp4lab/quantize/blocks.h"

#include <algorithm>
#include <limits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/adaptive.h"
#include "fp4lab/quantize/diagnostics/statistic.h"

namespace fp4lab {
namespace {

float BlockError(const Dialect& d, const BlockNumbers& n, const TensorScale& l,
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
  rows = DivideUp(matrix_rows, block_rows);
  cols = DivideUp(matrix_cols, block_cols);
}

MatrixView<const float> BlockGrid::Block(MatrixView<const float> x, std::size_t i,
                                         std::size_t j) const {
  const std::size_t r = i * block_rows, c = j * block_cols;
  return x.Block(r, c, std::min(block_rows, x.rows - r), std::min(block_cols, x.cols - c));
}

void CheckOptions(const Dialect& dialect, MatrixView<const float> x,
                  const DialectOptions& options) {
  const std::size_t amaxes = dialect.row_scaled ? x.rows : 1;
  Expects(options.amax.empty() || !HasTensorScale(dialect) || options.amax.size() == amaxes,
          "amax is one value, or one per row for a row-scaled dialect");
  const bool given = options.random.size() == x.size() && RandomBitsOf(dialect.rounding) <= 16;
  Expects(!IsStochastic(dialect) || options.source.has_value() || given,
          "stochastic rounding takes one random field per element, or a source of them");
  Expects(!options.source || Feeds(options.source->generator, dialect),
          "the generator gives the bits that rounding takes");
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

TensorScale TensorScaleOfRow(const Dialect& dialect, const std::vector<float>& amax,
                             std::size_t row) {
  const IeeeArithmetic ieee;
  if (amax.empty()) return {};
  return TensorScaleOf(dialect, amax[dialect.row_scaled ? row : 0]);
}

ChosenBlock ChooseBlock(const Dialect& dialect, const TensorScale& tensor,
                        MatrixView<const float> block) {
  const IeeeArithmetic ieee;
  const float b = StatisticOf(dialect, block);
  return ChooseBlock(dialect, tensor, block, b, ScaleBefore(dialect, b, tensor));
}

ChosenBlock ChooseBlock(const Dialect& dialect, const TensorScale& tensor,
                        MatrixView<const float> block, float b, float t) {
  const IeeeArithmetic ieee;
  const BlockNumbers six = NumbersFrom(dialect, b, t, tensor);
  if (dialect.adaptive == Adaptive::kNo) return {six, false};
  const BlockNumbers four = NumbersFrom(dialect, b, t * 1.5f, tensor);
  const bool four_is_better =
      BlockError(dialect, four, tensor, block) < BlockError(dialect, six, tensor, block);
  return {four_is_better ? four : six, four_is_better};
}

}  // namespace fp4lab
