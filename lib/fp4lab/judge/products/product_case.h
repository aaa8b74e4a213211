// Directed cases for GEMM kernels: small operands of stated values, on which every wrong kernel of
// the tables (gemm_kernel.h, scale_readings.h) differs from the right one and from every other.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/judge/products/gemm_kernel.h"
#include "fp4lab/tensor/tensor_core_gemm.h"

namespace fp4lab {

// d = alpha a b^T (+ beta c), a (M, K), b (N, K). Sums of order-free cases have at most 24 bits,
// which every order of additions in binary32 gives.
struct ProductCase {
  std::string_view name;  // "nvfp4-tails"
  std::string_view what;  // the tested causes of error
  MmaOperand a, b;
  float alpha = 1.0f;
  float tensor_scale_a = 1.0f, tensor_scale_b = 1.0f;  // factors of alpha; 1: none
  GemmOutput output = GemmOutput::kFp32;
  bool order_free = true;
  Matrix<float> before = {};  // (M, N): what D holds before the kernel runs
  Matrix<float> c = {};       // (M, N): d = alpha a b^T + beta c; empty: none
  float beta = 0.0f;
};

constexpr std::string_view Name(GemmOutput output) {
  return kGemmOutputs[static_cast<std::size_t>(output)].name;
}

// The case as a claim about a product d.
GemmClaim ClaimOf(const ProductCase& c, MatrixView<const float> d);

std::vector<ProductCase> MakeProductCases();

// The right kernel's answers, and those of every wrong kernel.
class ProductBench {
 public:
  explicit ProductBench(std::vector<ProductCase> cases);

  const std::vector<ProductCase>& cases() const { return cases_; }
  const std::vector<WrongGemm>& wrong() const { return wrong_; }
  const Matrix<float>& Right(std::size_t c) const { return right_[c]; }
  // The answer of a wrong kernel; the right one where the deviation does not change the case.
  const Matrix<float>& Answer(std::size_t w, std::size_t c) const;
  bool Catches(std::size_t c, std::size_t w) const { return answers_[w][c].has_value(); }

  // The answers of a kernel that has the deviations w, one after the other.
  std::vector<Matrix<float>> AnswersOf(std::span<const std::size_t> w) const;

  // Whether an answer is right: bit for bit, or, where the order of additions matters, within the
  // bound of any order.
  bool IsRight(std::size_t c, const Matrix<float>& answer) const;

  // The wrong kernels that give all answers bit for bit; an answer that is missing (a case that the
  // kernel declines) is not compared. Where the order of additions matters, an answer within the
  // bound of any order is taken for a wrong kernel's that does not change the case.
  std::vector<std::size_t> Name(std::span<const std::optional<Matrix<float>>> answers) const;

 private:
  std::vector<ProductCase> cases_;
  std::vector<WrongGemm> wrong_;
  std::vector<Matrix<float>> right_;
  std::vector<std::vector<std::optional<Matrix<float>>>> answers_;  // [wrong][case], if it differs
};

}  // namespace fp4lab
