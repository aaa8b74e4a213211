// A matrix product: operands, the scales of their blocks, and what is added.
#pragma once

#include <cstddef>

namespace fp4lab::gpu {

// Scales in binary32 of an operand's blocks along the reduction axis: that of row r and element k
// is scales[r / rows * row_stride + k / block * block_stride].
struct BlockScales {
  const float* scales = nullptr;  // null: all are 1
  std::size_t rows = 1, block = 0;
  std::size_t row_stride = 0, block_stride = 0;

  // The scales of square blocks if the product reduces along the other axis.
  BlockScales Turned() const { return {scales, block, rows, block_stride, row_stride}; }
};

// d = alpha a b + c, row-major: a (m, k), b (k, n), c and d (m, n). `a_transposed`: a lies in
// memory as (k, m); `b_transposed`: b lies in memory as (n, k). A null c adds nothing; d may be c.
// D is float, or Bf16 (binary32 results rounded once, without c). `batch`: as many products, whose
// matrices follow each other in memory. `tokens_vary`: m, or k where a is transposed, is a number
// of tokens that changes from call to call.
template <class T, class D = float>
struct GemmProblem {
  std::size_t m = 0, n = 0, k = 0;
  const T *a = nullptr, *b = nullptr;
  bool a_transposed = false, b_transposed = false;
  const float* alpha = nullptr;  // on the device; null: 1
  const float* c = nullptr;
  D* d = nullptr;
  std::size_t batch = 1;
  bool tokens_vary = false;
  BlockScales a_scales = {}, b_scales = {};  // of BF16 operands (scaled_gemm.cuh)
};

}  // namespace fp4lab::gpu
