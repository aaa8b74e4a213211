// Where the codes and scales of a quantized matrix lie: pure index functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/block/block_format.h"
#include "fp4lab/block/quantize.h"

namespace fp4lab {

// 4-bit codes: two a byte, the even column in the low nibble, rows padded to whole bytes. Wider
// codes: one a byte.
struct CodeLayout {
  bool packed;
  std::uint32_t mask;     // of a code
  std::size_t row_bytes;  // bytes of a row

  constexpr CodeLayout(const BlockFormat& format, std::size_t cols)
      : packed(FormatOf(format.element).bits == 4),
        mask((1u << FormatOf(format.element).bits) - 1),
        row_bytes(packed ? (cols + 1) / 2 : cols) {}
  constexpr std::size_t Byte(std::size_t r, std::size_t c) const {
    return r * row_bytes + (packed ? c / 2 : c);
  }
  constexpr int Shift(std::size_t c) const { return packed && c % 2 == 1 ? 4 : 0; }
};

// The grid of blocks; a tensor without block scales is one block.
struct ScaleLayout {
  std::size_t block_rows, block_cols;
  std::size_t rows, cols;  // of the grid of scales

  constexpr ScaleLayout(const BlockFormat& format, std::size_t x_rows, std::size_t x_cols)
      : block_rows(format.rule == ScaleRule::kTensor ? x_rows
                                                     : static_cast<std::size_t>(format.block_rows)),
        block_cols(format.rule == ScaleRule::kTensor ? x_cols
                                                     : static_cast<std::size_t>(format.block_cols)),
        rows(x_rows == 0 ? 0 : (x_rows + block_rows - 1) / block_rows),
        cols(x_cols == 0 ? 0 : (x_cols + block_cols - 1) / block_cols) {}
  constexpr std::size_t Index(std::size_t r, std::size_t c) const {
    return r / block_rows * cols + c / block_cols;
  }
};

// The options' format, checked: the rule fits the scale and element formats, blocks are (1 to 128)
// x (8 to 128, a multiple of 8).
void CheckOptions(const QuantizeOptions& options);

// The options with the amax that the format needs: theirs, or TensorAmax(x).
QuantizeOptions WithAmax(MatrixView<const float> x, QuantizeOptions options);

// Gives *q the shape and sizes of a result (and options.amax, which is known where it is needed);
// codes and scales that it held may stay in it.
void ShapeQuantizedMatrix(std::size_t rows, std::size_t cols, const QuantizeOptions& options,
                          QuantizedMatrix* q);

// A result with its shape and sizes, all codes and scales 0.
QuantizedMatrix EmptyQuantizedMatrix(std::size_t rows, std::size_t cols,
                                     const QuantizeOptions& options);

}  // namespace fp4lab
