// Matrix products with a stated order of all roundings: the same bits on every machine.
#pragma once

#include <cstddef>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// c = alpha * a * b^T, a (M, K), b (N, K), c (M, N), all binary32; each view has unit stride in one
// direction (any of the three may be a transposed view). For every element, with K cut into blocks
// of `block` (0: one block of K; a last shorter block is allowed):
//   d = +0;  for k ascending in the block: d = fma(a(m,k), b(n,k), d)     [IEEE fused multiply-add]
//   y = +0;  for blocks ascending: y = fl(y + d)          (a single block: y = d)
//   y = fl(alpha * y);  c = accumulate ? fl(c + y) : y
// With dequantized NVFP4 (block 16) or MXFP4 (block 32) operands without tensor scales, every d is
// exact (an integer of at most 12 bits times a product of two scales), so that the result is the
// block-scaled GEMM of Transformer Engine's reference: y = fl(y + sx * sw * dot).
struct GemmOptions {
  int block = 0;
  float alpha = 1.0f;
  bool accumulate = false;
};

void Gemm(MatrixView<const float> a, MatrixView<const float> b, const GemmOptions& options,
          MatrixView<float> c);

// Whether x has unit stride in one direction; a single row or column counts as such.
template <class T>
bool HasUnitStride(MatrixView<T> x) {
  return x.rows <= 1 || x.cols <= 1 || x.row_stride == 1 || x.col_stride == 1;
}

namespace reference {
void Gemm(MatrixView<const float> a, MatrixView<const float> b, const GemmOptions& options,
          MatrixView<float> c);
}

}  // namespace fp4lab
