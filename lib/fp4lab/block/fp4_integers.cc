// QuantizeToFp4Integers: the scalar definition, and what it shares with the kernel.
#include "fp4lab/block/fp4_integers.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/memory_order.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/scale_rules.h"

namespace fp4lab {
namespace {

constexpr bool InRange(float scale) {
  return scale == 0.0f || (scale >= kLeastFp4IntegerScale && scale <= kLargestFp4IntegerScale);
}

bool AllZeros(MatrixView<const std::uint8_t> codes) {
  for (std::size_t r = 0; r < codes.rows; ++r) {
    for (std::size_t c = 0; c < codes.cols; ++c) {
      if (codes(r, c) != 12) return false;
    }
  }
  return true;
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
  bool all = true;
  for (std::size_t i = 0; i < out.scales.rows; ++i) {
    for (std::size_t j = 0; j < out.scales.cols; ++j) {
      float& scale = out.scales(i, j);
      if (InRange(scale)) continue;
      const std::size_t r = i * rows, c = j * cols;
      const bool zeros = scale < kLeastFp4IntegerScale &&
                         AllZeros(out.codes.Block(r, c, std::min(rows, out.codes.rows - r),
                                                  std::min(cols, out.codes.cols - c)));
      if (zeros) scale = 0.0f;
      all = all && zeros;
    }
  }
  return all;
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
