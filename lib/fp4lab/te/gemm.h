// Products of quantized operands as Transformer Engine's JAX GEMM hands them over: packed codes,
// scale bytes, an alpha that the caller has made, BF16 or binary32 out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// An NVFP4 operand (rows, depth), the reduction axis along its lines.
struct PackedFp4 {
  const std::uint8_t* codes = nullptr;   // (rows, depth / 2), even element in the low nibble
  const std::uint8_t* scales = nullptr;  // E4M3, one a block of 16
  std::size_t scale_stride = 0;          // bytes from row to row
  std::size_t rows = 0, depth = 0;
};

// Where a product goes: (rows, cols), row-major, BF16 bits or binary32; one pointer is null.
struct GemmResult {
  std::uint16_t* bf16 = nullptr;
  float* fp32 = nullptr;
  std::size_t rows = 0, cols = 0;
};

// A bias of one number a column, or none (both null).
struct GemmBias {
  const std::uint16_t* bf16 = nullptr;
  const float* fp32 = nullptr;
};

// out = round(fl(alpha * sum) [+ bias]) with a (M, K), b (N, K). The sum is that of Fp4Gemm
// (tensor/fp4_gemm.h): blocks of 16 in ascending order, y = fl(y + sa * sb * dot), Transformer
// Engine's reference order; binary32 plus bias rounds once, BF16 (RNE, NaN as 0x7FC0 with its sign)
// once more. A block scale NaN makes every sum of its row NaN. K is a multiple of 16.
void PackedFp4Gemm(const PackedFp4& a, const PackedFp4& b, float alpha, const GemmBias& bias,
                   const GemmResult& out);

// out = round(fl(alpha * a b^T) [+ bias]) of binary32 operands, by Gemm with blocks of `block` (0:
// none).
void PlainGemm(MatrixView<const float> a, MatrixView<const float> b, int block, float alpha,
               const GemmBias& bias, const GemmResult& out);

namespace reference {
void PackedFp4Gemm(const PackedFp4& a, const PackedFp4& b, float alpha, const GemmBias& bias,
                   const GemmResult& out);
}  // namespace reference

}  // namespace fp4lab
