// The operands of a linear's GEMMs: preparation from tensors, and products.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/nn/linear_recipe.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/tensor/fp4_gemm.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {

// An operand of a GEMM: values, or FP4 integers with their scales, in the memory order of the
// tensor from which they were made.
struct LinearOperandValues {
  FloatBuffer memory;
  MatrixView<const float> values;  // null data if only integers were made
  ByteBuffer code_memory;
  FloatBuffer scale_memory;
  Fp4Operand integers;
  std::size_t block = 0;  // columns of integers.codes per scale
  bool has_integers = false;
  float amax = 0.0f;  // of the tensor, if the format has a tensor scale
  // Decode scales of the rows, if the format is row-scaled, or of the windows of each row, row by
  // row, if the recipe has windows.
  std::vector<float> row_decode;
  std::size_t scale_window = 0;  // elements of a row per scale; 0: all
  bool ready = false;

  // Before it is made anew: empty, but for its memory.
  void Begin() {
    ready = true;
    has_integers = false;
    values = {};
    row_decode.clear();
    scale_window = 0;
    amax = 0.0f;
  }
  // The windows of a row of `cols` elements; 1 without windows.
  std::size_t WindowsOf(std::size_t cols) const {
    return scale_window == 0 ? 1 : (cols + scale_window - 1) / scale_window;
  }
  // The decode scale of element (r, c) of `cols`; `decode` is the tensor's.
  float DecodeAt(std::size_t r, std::size_t c, std::size_t cols, float decode) const {
    if (row_decode.empty()) return decode;
    return row_decode[scale_window == 0 ? r : r * WindowsOf(cols) + c / scale_window];
  }
};

// x (tokens, in), row-major. `rounded`: x holds BF16 values already and is not rounded again; then
// `amax` may be TensorAmax(x), which saves measuring it.
struct LinearInput {
  MatrixView<const float> x;
  bool rounded = false;
  std::optional<float> amax = {};
};

// Whether the recipe's GEMM can run on integers (tensor/fp4_gemm.h).
bool CanUseIntegers(const GemmRecipe& recipe);

// Makes `out` of x, rounded to BF16, as FP4 integers, a band of rows at a time, which takes little
// memory. Returns whether `out` has been made: x must be row-major, bands of rows must have the
// tensor's bytes (no random bits, no scale of rows), the recipe has neither transform nor delayed
// scaling, and integers must be able to represent the operand. Otherwise PrepareOperand must make
// `out`.
bool PrepareRounded(const OperandRecipe& recipe, MatrixView<const float> x, FloatBuffer* band,
                    LinearOperandValues* out);

// Makes `out` of input.x, the tensor with its GEMM's reduction axis along columns. If the recipe
// changes nothing, `out` refers to input.x without a copy. `integers`: `out` has FP4 integers if
// they can represent the operand, else values. With windows of scales the operand is quantized as
// the matrix whose rows are its windows, in row-major order, the last window of each row filled up
// with zeros; element i of that matrix takes the random bits of element i. `spare`: memory for that
// matrix while only its integers stay; null: `out` keeps both.
void PrepareOperand(const OperandRecipe& recipe, bool bf16, LinearOperand operand,
                    const LinearCall& call, const LinearInput& input, bool integers,
                    WordBuffer* transformed, LinearOperandValues* out,
                    FloatBuffer* spare = nullptr);

// out = the tensor that fprop's operand of input.x decodes to, rounded to BF16 if `bf16`, its
// transform undone. input.x and `out` are (tokens, in) or, for the weight, (out, in). `memory`
// holds the operand meanwhile.
void DecodeOperand(const OperandRecipe& fprop, bool bf16, LinearOperand operand,
                   const LinearCall& call, const LinearInput& input, LinearOperandValues* memory,
                   MatrixView<float> out);

// Options with the operand's random bits. The amaxes are not set.
DialectOptions OptionsOf(const OperandRecipe& recipe, LinearOperand operand,
                         const LinearCall& call);

// The amax to quantize an operand with delayed scaling: that of the steps before. `amax`, the amax
// of this use, becomes part of the history, for a weight always, for other tensors if the call
// records.
float DelayedAmax(LinearOperand operand, const LinearCall& call, float amax);

// Keeps the tensor's amax for AlphaOf, or the decode scales of the rows for ScaleRows.
void KeepAmax(const Dialect& dialect, std::span<const float> amax, float* tensor_amax,
              std::vector<float>* row_decode);

// The factor of the whole product, which undoes tensor scales and prescales; 1 without either.
// Scales of rows and of windows are not part of it.
float AlphaOf(const GemmRecipe& recipe, float amax_a, float amax_b);

// c = [c +] fl(fl(product * rows[i]) * cols[j]); an empty vector leaves its factor out.
void ScaleRows(MatrixView<const float> product, std::span<const float> rows,
               std::span<const float> cols, bool accumulates, MatrixView<float> c);

// An operand, or its transpose.
struct OperandUse {
  LinearOperandValues* operand;
  bool transposed = false;
};

// c = [c +] a b^T as Gemm computes it; runs on integers, with the same bits, if both operands have
// them. Scales of rows follow, fl(fl(y D_a(i)) D_b(j)).
//
// If an operand has windows of scales, the axis is cut at every multiple of w, the smaller window.
// In ascending order of the pieces k,
//   q_k = fl(fl(p_k D_a(i, k)) D_b(j, k)), p_k = Gemm of the piece, without alpha
//   s = q_0, then s = fl(s + q_k)
// where D_a(i, k) is the decode scale of the window of a's row i that holds the piece, and likewise
// for b; an operand without windows has no factor there. Then c = [c +] fl(s alpha), which is s
// where alpha is 1, with the scales of rows of the other operand after it.
void MultiplyOperands(OperandUse a, OperandUse b, const GemmOptions& options, MatrixView<float> c);

}  // namespace fp4lab
