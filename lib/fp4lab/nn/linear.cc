#include "fp4lab/nn/linear.h"

#include <algorithm>
#include <array>

#include "fp4lab/base/error.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/tensor/gemm.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {
namespace {

using View = MatrixView<const float>;

// `memory` seen as a matrix laid out like x (row-major, or the transpose of a row-major one).
MatrixView<float> Like(View x, FloatBuffer* memory) {
  Reserve(memory, x.size());
  if (x.col_stride == 1) return {memory->data(), x.rows, x.cols};
  return MatrixView<float>(memory->data(), x.cols, x.rows).Transposed();
}

// In memory order, so that columns have unit stride.
template <class T>
MatrixView<T> Unturned(MatrixView<T> x) {
  return x.col_stride == 1 ? x : x.Transposed();
}

// `from` may be `to`. An observer sees `from` as it was.
void QuantizeOperand(const OperandRecipe& recipe, LinearOperand operand, const LinearCall& call,
                     float amax, View from, MatrixView<float> to) {
  QuantizeOptions options{
      .format = *recipe.format, .rounding = recipe.rounding, .random = call.random, .amax = amax};
  options.random.tensor += static_cast<std::uint32_t>(operand);
  if (call.observer == nullptr) return QuantizeToValues(from, options, to);
  FloatBuffer before;
  const MatrixView<float> copy = Like(from, &before);
  for (std::size_t r = 0; r < from.rows; ++r) {
    for (std::size_t c = 0; c < from.cols; ++c) copy(r, c) = from(r, c);
  }
  QuantizeToValues(from, options, to);
  (*call.observer)(operand, copy, to, options);
}

// x.x is the operand as its GEMM sees it: the reduction axis along columns. Nothing is copied that
// can be used as it is.
void Prepare(const OperandRecipe& recipe, bool bf16, LinearOperand operand, const LinearCall& call,
             const LinearInput& x, LinearOperandValues* out) {
  out->ready = true;
  out->amax = x.amax;
  View values = x.x;
  bool knows_amax = x.rounded;
  const auto to = [&] { return Like(x.x, &out->memory); };
  if (bf16 && !x.rounded) {
    out->amax = RoundBf16(Unturned(values), Unturned(to()));
    values = to();
    knows_amax = true;
  }
  if (recipe.hadamard != 0) {
    const std::uint32_t signs = recipe.hadamard == 16 ? kTeSignMask16 : kTeSignMask32;
    RandomHadamard(values, recipe.hadamard, signs, to());
    values = to();
    knows_amax = false;
  }
  if (recipe.format) {
    if (HasTensorScale(*recipe.format) && !knows_amax) out->amax = TensorAmax(values);
    QuantizeOperand(recipe, operand, call, out->amax, values, to());
    values = to();
  }
  out->values = values;
}

GemmOptions OptionsFor(const GemmRecipe& recipe, float amax_a, float amax_b) {
  const std::optional<BlockFormat>&a = recipe.a.format, &b = recipe.b.format;
  GemmOptions options;
  if (a && b) {
    options.block = std::min(a->block_cols, b->block_cols);
    options.alpha = GemmAlpha(*a, amax_a, *b, amax_b);
  } else if (a || b) {
    options.alpha = a ? TensorDecodeScale(*a, amax_a) : TensorDecodeScale(*b, amax_b);
  }
  return options;
}

LinearInput Transposed(LinearInput input) {
  input.x = input.x.Transposed();
  return input;
}

// Whether quantizing the transpose gives the transposed values.
bool IsTransposable(const OperandRecipe& recipe) {
  return recipe.rounding == Rounding::kNearestEven && recipe.hadamard == 0 &&
         (!recipe.format || recipe.format->block_rows == recipe.format->block_cols);
}

// The weight (or gradient) operand that another one of the same tensor already is, transposed.
bool SharesTranspose(const OperandRecipe& a, const OperandRecipe& b) {
  return a == b && IsTransposable(a);
}

void CheckWeight(const LinearRecipe& recipe, LinearWeight* weight) {
  if (weight->made_for == recipe) return;
  weight->Changed();
  weight->made_for = recipe;
}

const LinearOperandValues& FpropWeight(const LinearRecipe& recipe, const LinearCall& call,
                                       LinearWeight* weight) {
  CheckWeight(recipe, weight);
  if (!weight->fprop.ready) {
    Prepare(recipe.fprop.b, recipe.bf16, kFpropWeight, call, {weight->w}, &weight->fprop);
  }
  return weight->fprop;
}

struct GemmOperand {
  View values;
  float amax;
};

GemmOperand DgradWeight(const LinearRecipe& recipe, const LinearCall& call, LinearWeight* weight) {
  if (SharesTranspose(recipe.fprop.b, recipe.dgrad.b)) {
    const LinearOperandValues& w = FpropWeight(recipe, call, weight);
    return {w.values.Transposed(), w.amax};
  }
  CheckWeight(recipe, weight);
  if (!weight->dgrad.ready) {
    Prepare(recipe.dgrad.b, recipe.bf16, kDgradWeight, call, {weight->w.Transposed()},
            &weight->dgrad);
  }
  return {weight->dgrad.values, weight->dgrad.amax};
}

}  // namespace

std::string_view OperandName(LinearOperand operand) {
  constexpr std::array<std::string_view, kLinearOperands> kNames = {
      "fprop.input", "fprop.weight", "dgrad.grad", "dgrad.weight", "wgrad.grad", "wgrad.input"};
  return kNames[operand];
}

void LinearForward(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& input,
                   LinearWeight* weight, LinearScratch* scratch, Write write, MatrixView<float> y) {
  const View x = input.x;
  Expects(
      x.col_stride == 1 && x.cols == weight->w.cols && y.rows == x.rows && y.cols == weight->w.rows,
      "LinearForward: x (tokens, in), w (out, in), y (tokens, out)");
  const LinearOperandValues& w = FpropWeight(recipe, call, weight);
  Prepare(recipe.fprop.a, recipe.bf16, kFpropInput, call, input, &scratch->a);
  GemmOptions options = OptionsFor(recipe.fprop, scratch->a.amax, w.amax);
  options.accumulate = write == Write::kAccumulate;
  Gemm(scratch->a.values, w.values, options, y);
}

void LinearBackward(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& input,
                    LinearWeight* weight, MatrixView<const float> dy, LinearScratch* scratch,
                    MatrixView<float> dx, MatrixView<float> dw) {
  Expects(input.x.col_stride == 1 && dy.col_stride == 1 && input.x.rows == dy.rows &&
              input.x.cols == weight->w.cols && dy.cols == weight->w.rows,
          "LinearBackward: x (tokens, in), dy (tokens, out), w (out, in)");
  LinearInput grad{dy};
  if (recipe.bf16) {  // once for both GEMMs
    const MatrixView<float> rounded = Like(dy, &scratch->grad);
    grad = {rounded, true, RoundBf16(dy, rounded)};
  }
  LinearOperandValues &a = scratch->a, &b = scratch->b;
  Prepare(recipe.dgrad.a, recipe.bf16, kDgradGrad, call, grad, &a);
  const GemmOperand w = DgradWeight(recipe, call, weight);
  Gemm(a.values, w.values, OptionsFor(recipe.dgrad, a.amax, w.amax), dx);

  View grad_t = a.values.Transposed();
  if (!SharesTranspose(recipe.dgrad.a, recipe.wgrad.a)) {
    Prepare(recipe.wgrad.a, recipe.bf16, kWgradGrad, call, Transposed(grad), &a);
    grad_t = a.values;
  }
  Prepare(recipe.wgrad.b, recipe.bf16, kWgradInput, call, Transposed(input), &b);
  GemmOptions options = OptionsFor(recipe.wgrad, a.amax, b.amax);
  options.accumulate = true;
  Gemm(grad_t, b.values, options, dw);
}

}  // namespace fp4lab
