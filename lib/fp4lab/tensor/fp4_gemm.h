// The block-scaled FP4 GEMM on integers: the same bits as Gemm, from int8 dot products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/matrix.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {

// A quantized operand. Element (r, k) is
//   (codes(r, k) - 12) / 2 * scales(r / block_rows, k / block)
// where `block` is GemmOptions::block: a code is 12 + 2 * E2M1 value, a byte in 0..24, and a scale
// is the scale of the element's block.
struct Fp4Operand {
  MatrixView<const std::uint8_t> codes;  // (rows, K), unit stride in one direction
  MatrixView<const float> scales;        // (ceil(rows / block_rows), ceil(K / block)), likewise
  std::size_t block_rows = 1;            // 1, 16 or 32
};

// c = alpha * a * b^T, a (M, K), b (N, K), c (M, N), options.block 16 or 32. For every element:
//   y = +0;  for blocks ascending:  dot = the exact sum over the block of (a - 12) * (b - 12),
//                                   y = fma(dot, fl(fl(sa / 4) * sb), y)
//   y = fl(alpha * y);  c = accumulate ? fl(c + y) : y
// The result has the same bits as Gemm on the elements' values if every scale is +0 or in
// [2^-60, 2^58] and has at most 4 significant bits (as E4M3 and E8M0 scales have): then only the
// addition to y rounds.
void Fp4Gemm(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
             MatrixView<float> c);

namespace reference {
void Fp4Gemm(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
             MatrixView<float> c);
}

// Throws std::logic_error unless the views have the shapes and strides that Fp4Gemm requires.
void ExpectFp4Product(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
                      MatrixView<float> c);

}  // namespace fp4lab
