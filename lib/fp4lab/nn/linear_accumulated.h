// A linear's GEMMs under a stated accumulation (tensor/accumulation.h) instead of Gemm's order.
#pragma once

#include "fp4lab/base/matrix.h"
#include "fp4lab/nn/linear.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {

// One operand of such a GEMM: the tensor as the GEMM sees it, the reduction axis along columns.
struct AccumulatedOperand {
  const OperandRecipe& recipe;
  LinearOperand operand;
  MatrixView<const float> x;
};

// c = [c +] alpha * a b^T, as `recipe.accumulation` adds; the operands become BF16, are transformed
// and quantized as in LinearForward. Unquantized ones are BF16 numbers. Error where the
// accumulation does not take the operands.
void MultiplyAccumulated(const GemmRecipe& recipe, const LinearCall& call,
                         const AccumulatedOperand& a, const AccumulatedOperand& b, bool accumulate,
                         MatrixView<float> c);

// Empty where the accumulation of `recipe` takes operands of its formats, else why not, for people.
std::string WhyNotAccumulated(const GemmRecipe& recipe);

}  // namespace fp4lab
