// The block-scaled FP4 matrix product on integers: Gemm's bits without its multiplications.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/matrix.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {

// A quantized operand. Element (r, k) is (codes(r, k) - 12) / 2 * scales(r / block_rows, k /
// block), where `block` belongs to the product: an E2M1 value counted in halves, as an unsigned
// byte 0..24, times the scale of its block.
struct Fp4Operand {
  MatrixView<const std::uint8_t> codes;  // (rows, K), unit stride in one direction
  MatrixView<const float> scales;        // (ceil(rows / block_rows), ceil(K / block)), likewise
  std::size_t block_rows = 1;            // 1, 16 or 32
};

// c = alpha * a * b^T, a (M, K), b (N, K), c (M, N), options.block 16 or 32. For every element:
//   y = +0;  for blocks ascending:  dot = the exact sum over the block of (a - 12) * (b - 12),
//                                   y = fma(dot, fl(fl(sa / 4) * sb), y)
//   y = fl(alpha * y);  c = accumulate ? fl(c + y) : y
// These are the bits of Gemm on the elements' values if every scale is +0 or in [2^-60, 2^58] and
// has at most 4 significant bits (E4M3 and E8M0 scales do): then nothing but the addition to y
// rounds.
void Fp4Gemm(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
             MatrixView<float> c);

namespace reference {
void Fp4Gemm(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
             MatrixView<float> c);
}

// Throws std::logic_error unless the views fit together as Fp4Gemm asks.
void ExpectFp4Product(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
                      MatrixView<float> c);

}  // namespace fp4lab
