// The operands of a linear's GEMMs: made from tensors, multiplied. For linear.cc.
#pragma once

#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/nn/linear.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {

// Whether a GEMM of two such operands can run on integers (tensor/fp4_gemm.h).
bool CanUseIntegers(const GemmRecipe& recipe);

// Makes `out` of x rounded to BF16 as FP4 integers, a band of rows at a time, which takes little
// memory. Returns whether it did: x has to be row-major, the recipe without transform and random
// bits, and the integers have to say all. Else `out` waits for PrepareOperand.
bool PrepareRounded(const OperandRecipe& recipe, MatrixView<const float> x, FloatBuffer* band,
                    LinearOperandValues* out);

// Makes `out` of input.x, the tensor as its GEMM sees it: the reduction axis along columns. Nothing
// is copied that can be used as it is. `integers`: as FP4 integers where those say all, else as
// values.
void PrepareOperand(const OperandRecipe& recipe, bool bf16, LinearOperand operand,
                    const LinearCall& call, const LinearInput& input, bool integers,
                    WordBuffer* transformed, LinearOperandValues* out);

// out(r, c) = what fprop's operand decodes to, its transform undone, rounded to BF16 if `bf16`:
// input.x is (tokens, in) or the weight (out, in), out of its shape. `memory` holds the operand
// meanwhile.
void DecodeOperand(const OperandRecipe& fprop, bool bf16, LinearOperand operand,
                   const LinearCall& call, const LinearInput& input, LinearOperandValues* memory,
                   MatrixView<float> out);

// The operand's random bits; its amaxes are not set.
DialectOptions OptionsOf(const OperandRecipe& recipe, LinearOperand operand,
                         const LinearCall& call);

// For an operand with delayed scaling: the amax of the steps before. `amax`, that of this use,
// becomes part of the history: an activation's where the call records, a weight's always.
float DelayedAmax(LinearOperand operand, const LinearCall& call, float amax);

// Keeps the tensor's amax for AlphaOf, or the rows' scales for ScaleRows.
void KeepAmax(const Dialect& dialect, std::span<const float> amax, float* tensor_amax,
              std::vector<float>* row_decode);

// The factor of the whole product: 1 where neither operand has a scale of its tensor.
float AlphaOf(const GemmRecipe& recipe, float amax_a, float amax_b);

// c = [c +] fl(fl(product * rows[i]) * cols[j]); an empty vector leaves its factor out.
void ScaleRows(MatrixView<const float> product, std::span<const float> rows,
               std::span<const float> cols, bool accumulates, MatrixView<float> c);

// An operand, or its transpose.
struct OperandUse {
  LinearOperandValues* operand;
  bool transposed = false;
};

// c = a b^T as Gemm, on integers if both operands have them. The same bits either way.
void MultiplyOperands(OperandUse a, OperandUse b, const GemmOptions& options, MatrixView<float> c);

}  // namespace fp4lab
