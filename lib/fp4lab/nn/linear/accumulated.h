// A linear's GEMMs under a stated accumulation (tensor/accumulation.h) instead of Gemm's order.
#pragma once

#include <string>

#include "fp4lab/base/matrix.h"
#include "fp4lab/nn/linear_recipe.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {

// One operand of a GEMM with a stated accumulation: the tensor with the reduction axis along
// columns, of any strides.
struct AccumulatedOperand {
  const OperandRecipe& recipe;
  LinearOperand operand;
  MatrixView<const float> x;
};

// c = [c +] alpha * a b^T, as `recipe.accumulation` adds; the operands are rounded to BF16,
// transformed and quantized as in LinearForward. Operands without a format are BF16 numbers. Throws
// Error if the accumulation does not take the operands.
void MultiplyAccumulated(const GemmRecipe& recipe, const LinearCall& call,
                         const AccumulatedOperand& a, const AccumulatedOperand& b, bool accumulate,
                         MatrixView<float> c);

// The reason why the accumulation of `recipe` does not take operands of its formats, as a message;
// empty if it does.
std::string WhyNotAccumulated(const GemmRecipe& recipe);

}  // namespace fp4lab
