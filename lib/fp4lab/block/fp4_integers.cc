// QuantizeToFp4Integers: the checks of its arguments and the final pass over the scales.
#include "fp4lab/block/fp4_integers.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/block/layout.h"

namespace fp4lab {
namespace {

constexpr bool InRange(float scale) {
  return scale == 0.0f || (scale >= kLeastFp4IntegerScale && scale <= kLargestFp4IntegerScale);
}

// Whether all scales of a row are in range, without a branch per scale, so that compilers vectorise
// the loop. As integers, non-negative floats order as their values do, with NaN above them.
bool AllInRange(const float* scales, std::size_t count) {
  constexpr auto kLeast = std::bit_cast<std::int32_t>(kLeastFp4IntegerScale);
  constexpr auto kLargest = std::bit_cast<std::int32_t>(kLargestFp4IntegerScale);
  std::int32_t outside = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::int32_t>(scales[i]);
    outside |= (bits > kLargest) | ((bits < kLeast) & (bits != 0));
  }
  return outside == 0;
}

bool AllZeros(MatrixView<const std::uint8_t> codes) {
  for (std::size_t r = 0; r < codes.rows; ++r) {
    for (std::size_t c = 0; c < codes.cols; ++c) {
      if (codes(r, c) != 12) return false;
    }
  }
  return true;
}

// Sets the scale to +0 if it is below the range and the block is all zeros. Returns whether the
// scale is then in range.
bool FinishScale(MatrixView<const std::uint8_t> block, float* scale) {
  if (InRange(*scale)) return true;
  if (!(*scale < kLeastFp4IntegerScale && AllZeros(block))) return false;
  *scale = 0.0f;
  return true;
}

// Finishes the scales of blocks of rows x cols elements; returns whether all are in range.
bool FinishRows(std::size_t rows, std::size_t cols, const Fp4Integers& out) {
  bool all = true;
  for (std::size_t i = 0; i < out.scales.rows; ++i) {
    if (out.scales.col_stride == 1 && AllInRange(&out.scales(i, 0), out.scales.cols)) continue;
    for (std::size_t j = 0; j < out.scales.cols; ++j) {
      const std::size_t r = i * rows, c = j * cols;
      all &= FinishScale(out.codes.Block(r, c, std::min(rows, out.codes.rows - r),
                                         std::min(cols, out.codes.cols - c)),
                         &out.scales(i, j));
    }
  }
  return all;
}

}  // namespace

void CheckFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                      const Fp4Integers& out) {
  CheckOptions(options);
  Expects(HasFp4Integers(options.dialect), "E2M1 elements in blocks of 16 or 32 columns");
  const ScaleLayout grid(options.dialect, x.rows, x.cols);
  Expects(out.codes.rows == x.rows && out.codes.cols == x.cols, "out.codes has the shape of x");
  Expects(out.scales.rows == grid.rows && out.scales.cols == grid.cols,
          "out.scales has the shape of the grid of blocks");
  const MatrixView<const std::uint8_t> codes = out.codes;
  Expects(codes.col_stride == 1 || codes.cols <= 1 || codes.row_stride == 1 || codes.rows <= 1,
          "out.codes has unit stride in one direction");
}

namespace internal {

bool FinishFp4Scales(const Dialect& dialect, const Fp4Integers& out) {
  const IeeeArithmetic ieee;
  const auto rows = static_cast<std::size_t>(dialect.block_rows);
  const auto cols = static_cast<std::size_t>(dialect.block_cols);
  if (out.scales.col_stride == 1) return FinishRows(rows, cols, out);
  return FinishRows(cols, rows, {out.codes.Transposed(), out.scales.Transposed()});
}

}  // namespace internal

}  // namespace fp4lab
