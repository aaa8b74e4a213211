// The memory layout of the codes and scales of a quantized matrix, as index functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// 4-bit codes: two a byte, the even column in the low nibble, rows padded to whole bytes. Wider
// codes: one a byte.
struct CodeLayout {
  bool packed;
  std::uint32_t mask;     // the bits of a code
  std::size_t row_bytes;  // bytes of a row

  constexpr CodeLayout(const Dialect& dialect, std::size_t cols)
      : packed(TunedOrder(dialect) == CodeOrder::kLowFirst),
        mask((1u << FormatOf(dialect.element).bits) - 1),
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

  constexpr ScaleLayout(const Dialect& d, std::size_t x_rows, std::size_t x_cols)
      : block_rows(d.block_rows == 0 ? x_rows : static_cast<std::size_t>(d.block_rows)),
        block_cols(d.block_cols == 0 ? x_cols : static_cast<std::size_t>(d.block_cols)),
        rows(x_rows == 0 ? 0 : DivideUp(x_rows, block_rows)),
        cols(x_cols == 0 ? 0 : DivideUp(x_cols, block_cols)) {}
  constexpr std::size_t Index(std::size_t r, std::size_t c) const {
    return r / block_rows * cols + c / block_cols;
  }
};

// Where codes and scale bytes go, laid out as in the tuned Quantize. scales: null without blocks.
struct CodeOutput {
  const Dialect& dialect;
  std::uint8_t *codes, *scales;
};

// Expects that the kernels of block/ compute options.dialect (block/tuned.h).
void CheckOptions(const QuantizeOptions& options);

// The options with the amax that the dialect needs: options.amax if given, else TensorAmax(x).
QuantizeOptions WithAmax(MatrixView<const float> x, QuantizeOptions options);

// Sets the shape, order, buffer sizes and amax of *q. Expects options.amax where HasTensorScale.
// Old codes and scales in *q are not cleared.
void ShapeTuned(std::size_t rows, std::size_t cols, const QuantizeOptions& options, Quantized* q);

}  // namespace fp4lab
