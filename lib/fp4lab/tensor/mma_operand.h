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

// (rows, cols) with the sum of the product along cols. Scales are those of `group` consecutive
// elements of a row; a scale's sign bit is ignored (UE4M3 is E4M3 read so).
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

// Sizes as the shape demands them; throws std::logic_error otherwise.
void ExpectSound(const MmaOperand& x);

// The codes and block scales of a quantized matrix (a tile of several rows gives each its scale).
// The tensor's scale stays out: it belongs to alpha.
MmaOperand MakeMmaOperand(const QuantizedMatrix& q);

// Values rounded to a format, RNE, overflow to its Inf or NaN.
MmaOperand MakeMmaOperand(const Format& format, MatrixView<const float> values);

// element * scale, exact in binary64 for every format here; NaN and Inf as the codes say.
Matrix<double> ExactValues(const MmaOperand& x);
// The same rounded to binary32: exact unless a binary32 over- or underflow says otherwise.
Matrix<float> FloatValues(const MmaOperand& x);

// x as codes of `format` without scales; empty codes where some value is not a number of it.
MmaOperand Unscaled(const MmaOperand& x, const Format& format);

}  // namespace fp4lab
