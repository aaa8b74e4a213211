// A whole matrix product as a GPU's tensor cores compute it: TensorCoreDot for every element.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fp4lab/base/matrix.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/tensor/mma/mma_operand.h"
#include "fp4lab/tensor/tensor_core.h"

namespace fp4lab {

// The type of a product's result.
enum class GemmOutput : std::uint8_t { kFp32, kBf16, kFp16 };

struct NamedGemmOutput {
  GemmOutput output;
  std::string_view name;
};
inline constexpr std::array kGemmOutputs = {
    NamedGemmOutput{GemmOutput::kFp32, "f32"},
    NamedGemmOutput{GemmOutput::kBf16, "bf16"},
    NamedGemmOutput{GemmOutput::kFp16, "f16"},
};

struct ProductOptions {
  float alpha = 1.0f;
  bool accumulate = false;  // the accumulator starts at c instead of +0
  GemmOutput output = GemmOutput::kFp32;
  OpenChoices open = {};
};

// fl(alpha * y) rounded to the output type, RNE; every NaN is 0x7FFFFFFF.
float FinishProduct(float y, const ProductOptions& options);

// Empty if the model takes these operands: their element formats, and block scales of the right
// format and group if its instructions need them. Otherwise the reason in words.
std::string_view WhyNot(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b);

// c(m, n) = FinishProduct(TensorCoreDot(a's row m, b's row n, accumulate ? c(m, n) : +0)), a (M,
// K), b (N, K), both of one scale format and group. A binary16 accumulator starts at c rounded to
// binary16. The same bits on every SIMD target, for any number of threads.
//
// Vector kernels compute all outputs except those whose row of a or b holds a NaN, an infinity or,
// within one step of an instruction, exponents more than 40 apart: such outputs are computed one by
// one, a hundred times slower. All outputs are computed one by one if a scale's group is no
// multiple of a step (kScaledChain) or the elements of kScaledGroups are not E2M1.
void TensorCoreGemm(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
                    const ProductOptions& options, MatrixView<float> c);

namespace reference {
void TensorCoreGemm(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
                    const ProductOptions& options, MatrixView<float> c);
}

}  // namespace fp4lab
