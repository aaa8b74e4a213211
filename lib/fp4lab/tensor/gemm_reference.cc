#include <algorithm>
#include <cmath>
#include <cstddef>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab::reference {
namespace {

float Dot(MatrixView<const float> a, MatrixView<const float> b, std::size_t m, std::size_t n,
          std::size_t begin, std::size_t end) {
  float d = 0.0f;
  for (std::size_t k = begin; k < end; ++k) d = std::fma(a(m, k), b(n, k), d);
  return d;
}

float SumOfBlocks(MatrixView<const float> a, MatrixView<const float> b, std::size_t m,
                  std::size_t n, std::size_t block) {
  if (block >= a.cols) return Dot(a, b, m, n, 0, a.cols);
  float y = 0.0f;
  for (std::size_t k = 0; k < a.cols; k += block) {
    y = y + Dot(a, b, m, n, k, std::min(k + block, a.cols));
  }
  return y;
}

}  // namespace

void Gemm(MatrixView<const float> a, MatrixView<const float> b, const GemmOptions& options,
          MatrixView<float> c) {
  const IeeeArithmetic ieee;
  Expects(a.cols == b.cols && c.rows == a.rows && c.cols == b.rows, "a (M, K), b (N, K), c (M, N)");
  Expects(options.block >= 0, "block >= 0");
  const std::size_t block = options.block == 0 ? a.cols : static_cast<std::size_t>(options.block);
  for (std::size_t m = 0; m < c.rows; ++m) {
    for (std::size_t n = 0; n < c.cols; ++n) {
      const float y = options.alpha * SumOfBlocks(a, b, m, n, block);
      c(m, n) = options.accumulate ? c(m, n) + y : y;
    }
  }
}

}  // namespace fp4lab::reference
