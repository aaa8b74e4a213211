// QuantizeToFp4Integers: the scalar definition, and what it shares with the kernel.
#include "fp4lab/block/fp4_integers.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/error.h"
#include "fp4lab/base/memory_order.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/scale_rules.h"

namespace fp4lab {
namespace {

constexpr bool InRange(float scale) {
  return scale == 0.0f || (scale >= kLeastFp4IntegerScale && scale <= kLargestFp4IntegerScale);
}

// Whether all of a row are, without a branch for each: compilers vectorise it. As integers, floats
// that are not negative order as their values do, with NaN above them.
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

// A scale of a block of zeros becomes +0 if it is not in range; returns whether all then are.
bool FinishScale(MatrixView<const std::uint8_t> block, float* scale) {
  if (InRange(*scale)) return true;
  if (!(*scale < kLeastFp4IntegerScale && AllZeros(block))) return false;
  *scale = 0.0f;
  return true;
}

// Blocks of rows x cols.
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
  Expects(HasFp4Integers(options.format), "E2M1 elements in blocks of 16 or 32 columns");
  const ScaleLayout grid(options.format, x.rows, x.cols);
  Expects(out.codes.rows == x.rows && out.codes.cols == x.cols, "out.codes has the shape of x");
  Expects(out.scales.rows == grid.rows && out.scales.cols == grid.cols,
          "out.scales has the shape of the grid of blocks");
  const MatrixView<const std::uint8_t> codes = out.codes;
  Expects(codes.col_stride == 1 || codes.cols <= 1 || codes.row_stride == 1 || codes.rows <= 1,
          "out.codes has unit stride in one direction");
}

namespace internal {

bool FinishFp4Scales(const BlockFormat& format, const Fp4Integers& out) {
  const auto rows = static_cast<std::size_t>(format.block_rows);
  const auto cols = static_cast<std::size_t>(format.block_cols);
  if (out.scales.col_stride == 1) return FinishRows(rows, cols, out);
  return FinishRows(cols, rows, {out.codes.Transposed(), out.scales.Transposed()});
}

}  // namespace internal

namespace reference {

bool QuantizeToFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                           const Fp4Integers& out) {
  CheckFp4Integers(x, options, out);
  const QuantizedMatrix q = reference::Quantize(x, options);
  const CodeLayout layout(q.format, q.cols);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const std::uint32_t code = q.codes[layout.Byte(r, c)] >> layout.Shift(c) & layout.mask;
      const float twice = 2.0f * Decode(q.format.element, code);
      out.codes(r, c) = static_cast<std::uint8_t>(12 + static_cast<int>(twice));
    }
  }
  for (std::size_t i = 0; i < out.scales.rows; ++i) {
    for (std::size_t j = 0; j < out.scales.cols; ++j) {
      out.scales(i, j) = ScaleValue(q.format, q.scales[i * out.scales.cols + j]);
    }
  }
  return internal::FinishFp4Scales(q.format, out);
}

}  // namespace reference
}  // namespace fp4lab
