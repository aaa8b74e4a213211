// An operand of a matrix instruction: codes, with or without block scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

// A (rows, cols) operand; the product sums along cols. `group` consecutive elements of a row share
// a scale. The sign bit of a scale is ignored (UE4M3 is E4M3 without its sign bit).
struct MmaOperand {
  std::size_t rows = 0, cols = 0;
  Format format{};
  std::vector<std::uint32_t> codes = {};  // (rows, cols), row-major, the sign included
  int group = 0;                          // 0: no scales
  Format scale_format{};
  std::vector<std::uint8_t> scales = {};  // (rows, ceil(cols / group))

  bool IsScaled() const { return group > 0; }
  std::size_t ScaleCols() const {
    return group > 0
               ? (cols + static_cast<std::size_t>(group) - 1) / static_cast<std::size_t>(group)
               : 0;
  }
  std::span<const std::uint32_t> Row(std::size_t r) const {
    return std::span(codes).subspan(r * cols, cols);
  }
  std::span<const std::uint8_t> ScaleRow(std::size_t r) const {
    return std::span(scales).subspan(r * ScaleCols(), ScaleCols());
  }
};

// Throws std::logic_error unless the numbers of codes and scales match the shape.
void ExpectSound(const MmaOperand& x);

// Makes an operand of codes, one a byte, and of the scales of their grid of blocks, row-major. The
// scale of a block of several rows is repeated for each row. block_cols 0: no scales.
MmaOperand MakeMmaOperand(const Format& element, MatrixView<const std::uint8_t> codes,
                          const Format& scale, int block_rows, int block_cols,
                          std::span<const std::uint8_t> scales);

// Makes an operand of the codes, in any order, and the scale bytes of a quantized matrix. The
// tensor scale is left out: it belongs to alpha.
MmaOperand MakeMmaOperand(const Dialect& dialect, const Quantized& q);

// Makes an unscaled operand of values rounded to a format: RNE, overflow to its Inf or NaN.
MmaOperand MakeMmaOperand(const Format& format, MatrixView<const float> values);

// element * scale, exact in binary64 for every format here; NaN and Inf as the codes say.
Matrix<double> ExactValues(const MmaOperand& x);
// ExactValues rounded to binary32: exact unless a value over- or underflows binary32.
Matrix<float> FloatValues(const MmaOperand& x);

// The values of x as codes of `format` without scales; the codes are empty if `format` cannot
// represent some value exactly.
MmaOperand Unscaled(const MmaOperand& x, const Format& format);

}  // namespace fp4lab
