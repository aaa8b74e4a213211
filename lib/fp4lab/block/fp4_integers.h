// FP4 as integers: a quantized matrix as an exact integer GEMM multiplies it.
//
// Twice an E2M1 value is one of 0, 1, 2, 3, 4, 6, 8, 12 with a sign, so a product of two elements
// is an integer / 4 and a block's dot product an exact small integer: int8 dot products compute it
// (tensor/fp4_gemm.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/matrix.h"
#include "fp4lab/block/quantize.h"

namespace fp4lab {

// 12 + 2 * element value, 0..24, one byte an element (both zeros are 12), and each block's scale
// as a float.
struct Fp4Integers {
  MatrixView<std::uint8_t> codes;  // (rows, cols)
  // (ceil(rows / block_rows), ceil(cols / block_cols)), unit stride in the same direction as codes
  MatrixView<float> scales;
};

// E2M1 elements in blocks of 16 or 32 columns, 1 or as many rows.
constexpr bool HasFp4Integers(const BlockFormat& format) {
  return format.element == FormatId::kE2M1 &&
         (format.block_cols == 16 || format.block_cols == 32) &&
         (format.block_rows == 1 || format.block_rows == format.block_cols);
}

// The scales with which a product of two blocks' scales and an integer / 4 stays exact in binary32,
// and the sum of a block's products finite, however it is formed: 32 * 36 * 2^116 < 2^128.
inline constexpr float kLeastFp4IntegerScale = 0x1p-60f, kLargestFp4IntegerScale = 0x1p58f;

// Quantizes x, as Quantize does, into `out`: fastest where x and out.codes have unit stride in the
// same direction. A scale is that of ScaleValue, but +0 where it is below 2^-60 and the block's
// elements are all zeros.
// Returns whether every scale is +0 or lies in [2^-60, 2^58]. If not (an MX block of tiny, huge or
// infinite elements), some of `out` says less than QuantizeToValues: use that.
bool QuantizeToFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                           const Fp4Integers& out);

// Checks what the above asks of its arguments, as Expects.
void CheckFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                      const Fp4Integers& out);

namespace reference {
bool QuantizeToFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                           const Fp4Integers& out);
}  // namespace reference

}  // namespace fp4lab
