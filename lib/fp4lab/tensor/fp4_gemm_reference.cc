#include <algorithm>
#include <cmath>
#include <cstddef>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/tensor/fp4_gemm.h"

namespace fp4lab {
namespace {

void ExpectOperand(const Fp4Operand& x, std::size_t block) {
  Expects(x.block_rows == 1 || x.block_rows == 16 || x.block_rows == 32, "block_rows 1, 16 or 32");
  Expects(x.scales.rows == DivideUp(x.codes.rows, x.block_rows) &&
              x.scales.cols == DivideUp(x.codes.cols, block),
          "one scale per block");
  Expects(HasUnitStride(x.codes) && HasUnitStride(x.scales), "a unit stride in each view");
}

int Dot(const Fp4Operand& a, const Fp4Operand& b, std::size_t m, std::size_t n, std::size_t begin,
        std::size_t end) {
  int dot = 0;
  for (std::size_t k = begin; k < end; ++k) dot += (a.codes(m, k) - 12) * (b.codes(n, k) - 12);
  return dot;
}

}  // namespace

void ExpectFp4Product(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
                      MatrixView<float> c) {
  Expects(options.block == 16 || options.block == 32, "block 16 or 32");
  Expects(a.codes.cols == b.codes.cols && c.rows == a.codes.rows && c.cols == b.codes.rows,
          "a (M, K), b (N, K), c (M, N)");
  ExpectOperand(a, static_cast<std::size_t>(options.block));
  ExpectOperand(b, static_cast<std::size_t>(options.block));
  Expects(HasUnitStride(c), "a unit stride in each view");
}

namespace reference {

void Fp4Gemm(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
             MatrixView<float> c) {
  const IeeeArithmetic ieee;
  ExpectFp4Product(a, b, options, c);
  const auto block = static_cast<std::size_t>(options.block);
  for (std::size_t m = 0; m < c.rows; ++m) {
    for (std::size_t n = 0; n < c.cols; ++n) {
      float y = 0.0f;
      for (std::size_t k = 0, i = 0; k < a.codes.cols; k += block, ++i) {
        const int dot = Dot(a, b, m, n, k, std::min(k + block, a.codes.cols));
        const float scale = 0.25f * a.scales(m / a.block_rows, i) * b.scales(n / b.block_rows, i);
        y = std::fma(static_cast<float>(dot), scale, y);
      }
      y = options.alpha * y;
      c(m, n) = options.accumulate ? c(m, n) + y : y;
    }
  }
}

}  // namespace reference
}  // namespace fp4lab
