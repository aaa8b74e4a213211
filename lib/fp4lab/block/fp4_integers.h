// FP4 as integers: a quantized matrix as the operand of an exact integer GEMM.
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

// Whether Fp4Integers can hold the dialect: E2M1 elements in blocks of 16 or 32 columns, with one
// row or as many rows as columns, under scales of a format with at most 3 fraction bits.
constexpr bool HasFp4Integers(const Dialect& dialect) {
  return dialect.element == FormatId::kE2M1 && dialect.scale_encoding != ScaleEncoding::kBinary32 &&
         FormatOf(dialect.scale).mantissa_bits <= 3 &&
         (dialect.block_cols == 16 || dialect.block_cols == 32) &&
         (dialect.block_rows == 1 || dialect.block_rows == dialect.block_cols);
}

// The range of block scales in which the product of two blocks' scales and an integer / 4 is exact
// in binary32, and the sum of a block's products finite in any order: 32 * 36 * 2^116 < 2^128.
inline constexpr float kLeastFp4IntegerScale = 0x1p-60f, kLargestFp4IntegerScale = 0x1p58f;

// Quantizes x, as Quantize does, into `out`: fastest where x and out.codes have unit stride in the
// same direction. A scale equals ScaleValueOf its byte, but is +0 if it is below 2^-60 and all
// elements of the block are zeros.
// Returns whether every scale is +0 or in [2^-60, 2^58]. On false (an MX block of tiny, huge or
// infinite elements) an integer GEMM of `out` is not exact: the caller must use QuantizeToValues.
bool QuantizeToFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                           const Fp4Integers& out);

// Expects the preconditions of QuantizeToFp4Integers: the dialect, the shapes and a unit stride of
// out.codes.
void CheckFp4Integers(MatrixView<const float> x, const QuantizeOptions& options,
                      const Fp4Integers& out);

}  // namespace fp4lab
