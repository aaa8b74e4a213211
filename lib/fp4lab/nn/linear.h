// A linear layer without bias, y = x w^T. Each of its three GEMMs takes its operands in the number
// formats that a training recipe states.
#pragma once

#include <memory>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/nn/linear/operand.h"
#include "fp4lab/nn/linear_recipe.h"
#include "fp4lab/nn/rmsnorm.h"

namespace fp4lab {

// A weight (out, in) and its operands, which micro-batches share until the weight changes. Operands
// as integers are kept; values, four times as large, are kept only for small weights and operands
// with random bits.
struct LinearWeight {
  MatrixView<const float> w;
  LinearRecipe made_for;
  LinearOperandValues fprop, dgrad;

  void Changed() { fprop.ready = dgrad.ready = false; }
};

// Whether an operand of a weight of `size` elements stays from use to use as values, observers
// apart. Those of a large weight are made for each use, which takes less time than a row of the
// product. Random bits are drawn once for all micro-batches: for the operand itself, or for
// fprop's, whose values it is made from.
bool KeepsWeightValues(const LinearRecipe& linear, const OperandRecipe& operand, double size);

struct SideScratch;  // nn/side/side_term.h

// Memory that linears share; each buffer grows to the largest need and stays.
struct LinearScratch {
  LinearOperandValues a, b, weight;
  FloatBuffer grad;
  WordBuffer transformed;             // an operand between its transform and its integers
  FloatBuffer windows;                // an operand with windows of scales, before its integers
  FloatBuffer decoded;                // fprop's operand decoded, if the backward pass starts there
  std::shared_ptr<SideScratch> side;  // null without side terms
};

// An operand is prepared in this order: rounding to BF16 (if the recipe says so); the split, if it
// has a side term (side/side_term.h), whose product is added last; the transform (`hadamard`);
// values of `format`, under the amax of the tensor or, with delayed scaling, of the steps before. A
// GEMM with two block formats adds its blocks in order (GemmOptions::block = the smaller
// block_cols); any other GEMM is one sum over the whole axis. If both operands are FP4 in blocks of
// the same length, the GEMM runs on integers (Fp4Gemm) with the same bits, except with an observer
// or with scales beyond its range. alpha undoes the tensor scales; the scales of rows are undone
// after alpha, y = fl(fl(y * D_a(row)) * D_b(column)). The dgrad weight is the transposed fprop
// weight if both are the same (equal recipes, nearest rounding, and square blocks, one scale, or no
// format). A GEMM with an accumulation of its own is GemmAs of the operands' codes and scales
// instead, several times slower.

// y = x w^T, or y = y + x w^T if `write` is kAccumulate. input.x (tokens, in), y (tokens, out).
void LinearForward(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& input,
                   LinearWeight* weight, LinearScratch* scratch, Write write, MatrixView<float> y);

// dx = dy w (overwritten), dw = dw + dy^T x. dy (tokens, out) may be rounded already, as x may.
void LinearBackward(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& input,
                    LinearWeight* weight, const LinearInput& dy, LinearScratch* scratch,
                    MatrixView<float> dx, MatrixView<float> dw);

}  // namespace fp4lab
