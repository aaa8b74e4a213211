// The two parts of an operand with a side term, and the products of the second (side_term.h has the
// definitions).
#pragma once

#include <cstddef>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/nn/linear_operand.h"
#include "fp4lab/nn/side/side_term.h"

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
