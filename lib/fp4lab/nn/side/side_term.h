// High-precision side terms of a GEMM's operand (SideTerm, linear_recipe.h): the operand is split
// into a part that is quantized and a part that stays in high precision, whose product is added.
//
// The operand is made of a tensor x (tokens, channels): the input of a linear, or a gradient. R
// rounds to BF16 (RNE) if LinearRecipe::bf16, else it changes nothing; x~ = R(x), and b~ = R(b) of
// the GEMM's other tensor. fl is one rounding to binary32. Q is all that the operand's recipe does:
// transform and quantization. The GEMM's product of quantized operands is c, its side term is S,
// and the result is fl(c + S), element by element; where the GEMM adds to y or dw, S comes after c.
//
// mean: x~ = 1 mu^T + r, Q takes r.
//   mu(j)   = R(fl(s(j) / tokens)), sum s(j) of x~(t, j) over t ascending and quotient in binary64;
//       0 without tokens
//   r(t, j) = R(fl(x~(t, j) - mu(j)))
//   fprop's input, dgrad's gradient:  S(t, n) = p(n), p = mu b~^T as Gemm sums it (tensor/gemm.h,
//       one block: fused multiply-adds over channels ascending)
//   wgrad's gradient:  S(i, n) = fl(mu(i) * z(n)), z(n) = fl(sum of b~(t, n) over t ascending, in
//       binary64); wgrad's input the same with rows and columns exchanged
// columns: hot channels H (below) stay out of Q, which takes x~ with +0 in them.
//   fprop's input, dgrad's gradient:  S = x~(:, H) b~(:, H)^T as Gemm sums it, one block, channels
//       ascending
//   wgrad's gradient:  S(H, :) = x~(:, H)^T b~ as Gemm sums it, one block, tokens ascending; other
//       rows have no side term. wgrad's input the same with columns in place of rows
// patch: Q takes x~ whole, and the residual of the hot channels is given back:
//   e(t, j) = R(fl(x~(t, j) - fl(q(t, j) * D))), q the operand's values (element * block scale), D
//       its tensor's or row's decode scale
//   S as that of `columns`, with e in place of x~
//
// If both operands of wgrad have a side term, the gradient's is added first; b~ of the input's is
// then r of `mean`, x~ with +0 in the hot channels of `columns`, or x~ of `patch`, so that the
// three products of `mean` and `columns` add up to that of the whole tensors.
//
// H: the channels with the largest statistic of x~, of equal ones those that come first. They are
// chosen anew in each use of the operand, as the mean is: of a micro-batch's tokens, an expert's
// padding rows (zeros) included.
//
// Sources: mean, Averis (arXiv 2603.10444); patch, CHON's Hot-Channel Patch (arXiv 2602.02047).
// Orders of sums, roundings, the statistics and the time of choice are fp4lab's: the sources, as
// far as they were read, state none.
#pragma once

#include <cstddef>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/nn/linear/operand.h"

namespace fp4lab {

// A tensor (tokens, channels), split. Buffers grow to the largest need and stay.
struct SplitTensor {
  LinearInput rest;  // what is quantized: r, x~ without hot channels, or x~
  std::vector<float> mean;
  std::vector<std::size_t> hot;  // ascending
  MatrixView<float> side;        // (tokens, hot.size()): x~ or e of the hot channels

  FloatBuffer rest_memory, side_memory;
};

// Memory of the products.
struct SideScratch {
  SplitTensor a, b;            // of a GEMM's operands
  FloatBuffer other, product;  // b~, or its hot columns; the side term of hot rows
};

// Splits x (tokens, channels), unit column stride; `bf16`: LinearRecipe::bf16. x must stay as it is
// while *out is used. The side of `patch` is not made yet.
void Split(const SideTerm& term, bool bf16, const LinearInput& x, SplitTensor* out);

// Makes the side of `patch` after the operand has been made of split->rest. `turned`: the operand
// was made of the tensor's transpose.
void TakeResidual(const OperandRecipe& recipe, bool bf16, const LinearOperandValues& operand,
                  bool turned, SplitTensor* split);

// c (tokens, n) += S of fprop's input or dgrad's gradient. other (n, channels), of unit stride in
// one direction.
void AddSideAlongChannels(const SideTerm& term, bool bf16, const SplitTensor& split,
                          MatrixView<const float> other, SideScratch* scratch, MatrixView<float> c);

// c += S of an operand of wgrad. other (tokens, n), unit column stride. c (channels, n) if the
// operand is the gradient, else (n, channels), unit column stride.
void AddSideAlongTokens(const SideTerm& term, bool bf16, const SplitTensor& split,
                        const LinearInput& other, bool is_gradient, SideScratch* scratch,
                        MatrixView<float> c);

}  // namespace fp4lab
