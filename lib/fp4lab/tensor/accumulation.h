// The orders and precisions in which a GEMM can sum, as a named parameter of the product.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fp4lab/base/matrix.h"
#include "fp4lab/tensor/mma/mma_operand.h"
#include "fp4lab/tensor/tensor_core.h"
#include "fp4lab/tensor/tensor_core_gemm.h"

namespace fp4lab {

// Notation: p_k = a_k * b_k, where a_k and b_k include their block scales but no tensor scale; [..]
// is one rounding, RNE.
enum class SumOrder : std::uint8_t {
  kFp32Blocks,      // y = [y + d], d a block's sum by FMAs: Gemm with block = the scales' group
  kFp32Sequential,  // y = [y + a_k * b_k], fused, k ascending: Gemm with block = 0
  kFp32Pairwise,    // [p_k] in binary32, then a tree: the first ceil(n/2) terms + the others
  kFp64,            // y = y + p_k in binary64, k ascending, rounded to binary32 at the end
  kExact,           // the exact sum of the exact products, rounded once
  kTensorCore       // TensorCoreGemm under `model`
};

struct Accumulation {
  std::string_view name;
  std::string_view what;
  std::string_view evidence;
  SumOrder order;
  const TensorCoreModel* model = nullptr;
};

// "fp32-blocks" (what Transformer Engine's reference computes), "fp32-sequential",
// "fp32-pairwise", "fp64", "exact", then every row of kTensorCoreModels by its name.
std::span<const Accumulation> Accumulations();
const Accumulation* FindAccumulation(std::string_view name);

// Empty if the accumulation takes these operands, else the reason in words. A tensor core without
// block scales takes scaled operands whose values are numbers of its operand format: chips without
// FP4 emulate FP4 in this way.
std::string WhyNot(const Accumulation& accumulation, const MmaOperand& a, const MmaOperand& b);

// The operands that the accumulation multiplies: a and b, or, on a tensor core that emulates, their
// values as codes of its operand format (BF16 before TF32 before FP16). nullopt if WhyNot gives a
// reason.
struct MmaOperands {
  MmaOperand a, b;
};
std::optional<MmaOperands> OperandsFor(const Accumulation& accumulation, const MmaOperand& a,
                                       const MmaOperand& b);

// c(m, n) = FinishProduct(sum), a (M, K), b (N, K), c (M, N). options.accumulate is for tensor
// cores only. The operands must pass WhyNot. The same bits for any number of threads and on every
// SIMD target.
void GemmAs(const Accumulation& accumulation, const MmaOperand& a, const MmaOperand& b,
            const ProductOptions& options, MatrixView<float> c);

// The alpha of two NVFP4 operands from the amax of their tensors, C = 448 * 6 = 2688 (nvfp4: E4M3
// scales up to 448). `alpha` is the caller's factor:
//   kKernel     fl(fl(fl(alpha * amax_b) * amax_a) * fl(1 / 2688^2)): Transformer Engine's kernel,
//               whose first operand is cuBLAS's A, our b (the weight in fprop)
//   kReference  fl(fl(amax_a * amax_b) / 2688^2), times alpha: its PyTorch reference
//   kJax        fl(fl(amax_a / 2688) * fl(amax_b / 2688)), times alpha: its JAX layer
enum class AlphaRule : std::uint8_t { kKernel, kReference, kJax };

struct NamedAlphaRule {
  AlphaRule rule;
  std::string_view name;
};
inline constexpr std::array kAlphaRules = {
    NamedAlphaRule{AlphaRule::kKernel, "kernel"},
    NamedAlphaRule{AlphaRule::kReference, "reference"},
    NamedAlphaRule{AlphaRule::kJax, "jax"},
};

constexpr float Nvfp4Alpha(AlphaRule rule, float amax_a, float amax_b, float alpha = 1.0f) {
  constexpr float kDivisor = 2688.0f * 2688.0f;  // 7225344, exact
  switch (rule) {
    case AlphaRule::kKernel:
      return alpha * amax_b * amax_a * (1.0f / kDivisor);
    case AlphaRule::kReference:
      return alpha * (amax_a * amax_b / kDivisor);
    case AlphaRule::kJax:
      return alpha * ((amax_a / 2688.0f) * (amax_b / 2688.0f));
  }
  return alpha;
}

}  // namespace fp4lab
