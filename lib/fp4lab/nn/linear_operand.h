// The operands of a linear's GEMMs: made from tensors, multiplied. For linear.cc.
#pragma once

#include "fp4lab/base/matrix.h"
#include "fp4lab/nn/linear.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {

// Whether a GEMM of two such operands can run on integers (tensor/fp4_gemm.h).
bool CanUseIntegers(const GemmRecipe& recipe);

// Makes `out` of input.x, the tensor as its GEMM sees it: the reduction axis along columns. Nothing
// is copied that can be used as it is. `integers`: as FP4 integers where those say all, else as
// values.
void PrepareOperand(const OperandRecipe& recipe, bool bf16, LinearOperand operand,
                    const LinearCall& call, const LinearInput& input, bool integers,
                    WordBuffer* transformed, LinearOperandValues* out);

// An operand, or its transpose.
struct OperandUse {
  LinearOperandValues* operand;
  bool transposed = false;
};

// c = a b^T as Gemm, on integers if both operands have them. The same bits either way.
void MultiplyOperands(OperandUse a, OperandUse b, const GemmOptions& options, MatrixView<float> c);

}  // namespace fp4lab
