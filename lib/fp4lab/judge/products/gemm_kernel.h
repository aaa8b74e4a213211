// A GEMM kernel as a plan: what it reads, how it sums and what it writes. A wrong kernel is a
// changed plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/judge/products/gemm.h"
#include "fp4lab/judge/products/scale_readings.h"
#include "fp4lab/tensor/accumulation.h"
#include "fp4lab/tensor/mma/mma_operand.h"

namespace fp4lab {

// How a kernel keeps partial sums, if not as its accumulation does. [..] is one rounding, RNE.
enum class PartialSums : std::uint8_t {
  kAsStated,
  kBf16,         // y = [[y + p_k] to binary32] to BF16, k ascending
  kFp16,         // the same in FP16; beyond 65504 an infinity
  kBf16Splits,   // two halves of K, each rounded to BF16, then added in binary32
  kPromoted128,  // an FP8 wgmma of Hopper over 128 elements, its results added in binary32
};

// What happens to alpha y on its way to the output, if not one rounding, RNE.
enum class Finish : std::uint8_t {
  kAsStated,
  kThroughBf16,        // rounded to BF16, then to the output
  kThroughFp16,        // rounded to FP16, beyond 65504 an infinity, then to the output
  kTowardZero,         // truncated to the output
  kTiesAway,           // ties away from zero
  kSaturates,          // beyond the largest finite number of the output: that number
  kFlushes,            // subnormal results are zeros of their sign
  kNanAsZero,          // NaN is +0
  kInfinityAsNan,      // an infinity is NaN
  kDropsNegativeZero,  // -0 is +0
};

inline constexpr std::size_t kAllOfThem = std::numeric_limits<std::size_t>::max();

struct GemmKernel {
  MmaOperand a, b;                                     // as the kernel reads them
  float alpha = 1.0f;                                  // as the kernel applies it
  float tensor_scale_a = 1.0f, tensor_scale_b = 1.0f;  // the operands' factors of alpha; 1: unknown
  GemmOutput output = GemmOutput::kFp32;
  const Accumulation* under = nullptr;
  PartialSums sums = PartialSums::kAsStated;
  Finish finish = Finish::kAsStated;
  MatrixView<const float> before = {};  // what D held before, (M, N); empty: unknown
  MatrixView<const float> c = {};       // (M, N), added as beta c; empty: none
  float beta = 0.0f;
  bool adds_before = false;        // alpha y + what D held, in binary32
  bool transposed_output = false;  // writes element (m, n) to place n M + m of D's buffer
  std::size_t rows_written = kAllOfThem, cols_written = kAllOfThem;
  bool keeps_rest = false;  // elements that are not written keep what D held; else they are +0
};

// The kernel that computes a claim as it is stated.
GemmKernel KernelOf(const GemmClaim& claim, const Accumulation& under);

// Empty if RunGemmKernel can run the kernel, else the reason.
std::string WhyNot(const GemmKernel& kernel);

// D (M, N) as the kernel writes it. The same bits for any number of threads.
Matrix<float> RunGemmKernel(const GemmKernel& kernel);

// Whether two products have the same shape and bits; any NaN equals any NaN.
bool SameProduct(const Matrix<float>& x, const Matrix<float>& y);

// A wrong kernel. `apply` changes a plan, and returns false if that changes nothing.
struct GemmDeviation {
  std::string_view name;  // "alpha-twice"
  std::string_view what;  // "multiplies by alpha twice", the subject being the kernel
  bool (*apply)(GemmKernel&);
};

// All wrong kernels, readings of scale bytes (scale_readings.h) excepted.
std::span<const GemmDeviation> GemmDeviations();

// The readings of scale bytes, of both operands, and then the table above.
struct WrongGemm {
  std::string_view name, what;
  const ScaleReading* reading = nullptr;  // of both operands, or
  bool (*change)(GemmKernel&) = nullptr;
  bool Apply(GemmKernel& kernel) const;
};
std::vector<WrongGemm> WrongGemms();

}  // namespace fp4lab
