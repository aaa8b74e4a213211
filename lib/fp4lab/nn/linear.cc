#include "fp4lab/nn/linear.h"

#include <algorithm>
#include <array>
#include <vector>

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

void Copy(View x, MatrixView<float> out) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    std::copy_n(x.data + r * x.row_stride, x.cols, out.data + r * out.row_stride);
  }
}

void QuantizeInPlace(const OperandRecipe& recipe, LinearOperand operand, const LinearCall& call,
                     float amax, MatrixView<float> x) {
  QuantizeOptions options{
      .format = *recipe.format, .rounding = recipe.rounding, .random = call.random, .amax = amax};
  options.random.tensor += static_cast<std::uint32_t>(operand);
  if (call.observer == nullptr) {
    QuantizeToValues(x, options, x);
    return;
  }
  std::vector<float> before(x.size());
  const MatrixView<float> flat = Unturned(x);
  const MatrixView<float> copy(before.data(), flat.rows, flat.cols);
  Copy(flat, copy);
  QuantizeToValues(x, options, x);
  (*call.observer)(operand, x.col_stride == 1 ? copy : copy.Transposed(), x, options);
}

// x is the operand as its GEMM sees it: the reduction axis along columns.
void Prepare(const OperandRecipe& recipe, bool bf16, LinearOperand operand, const LinearCall& call,
             View x, LinearOperandValues* out) {
  out->ready = true;
  if (!bf16 && !recipe.format) {
    out->values = x;
    return;
  }
  const MatrixView<float> values = Like(x, &out->memory);
  out->values = values;
  if (bf16) {
    out->amax = RoundBf16(Unturned(x), Unturned(values));
  } else {
    Copy(Unturned(x), Unturned(values));
  }
  if (recipe.hadamard != 0) {
    const std::uint32_t signs = recipe.hadamard == 16 ? kTeSignMask16 : kTeSignMask32;
    RandomHadamard(values, recipe.hadamard, signs, values);
  }
  if (!recipe.format) return;
  if (HasTensorScale(*recipe.format) && (!bf16 || recipe.hadamard != 0)) {
    out->amax = TensorAmax(values);
  }
  QuantizeInPlace(recipe, operand, call, out->amax, values);
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
    Prepare(recipe.fprop.b, recipe.bf16, kFpropWeight, call, weight->w, &weight->fprop);
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
    Prepare(recipe.dgrad.b, recipe.bf16, kDgradWeight, call, weight->w.Transposed(),
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

void LinearForward(const LinearRecipe& recipe, const LinearCall& call, MatrixView<const float> x,
                   LinearWeight* weight, LinearScratch* scratch, Write write, MatrixView<float> y) {
  Expects(
      x.col_stride == 1 && x.cols == weight->w.cols && y.rows == x.rows && y.cols == weight->w.rows,
      "LinearForward: x (tokens, in), w (out, in), y (tokens, out)");
  const LinearOperandValues& w = FpropWeight(recipe, call, weight);
  Prepare(recipe.fprop.a, recipe.bf16, kFpropInput, call, x, &scratch->a);
  GemmOptions options = OptionsFor(recipe.fprop, scratch->a.amax, w.amax);
  options.accumulate = write == Write::kAccumulate;
  Gemm(scratch->a.values, w.values, options, y);
}

void LinearBackward(const LinearRecipe& recipe, const LinearCall& call, MatrixView<const float> x,
                    LinearWeight* weight, MatrixView<const float> dy, LinearScratch* scratch,
                    MatrixView<float> dx, MatrixView<float> dw) {
  Expects(x.col_stride == 1 && dy.col_stride == 1 && x.rows == dy.rows &&
              x.cols == weight->w.cols && dy.cols == weight->w.rows,
          "LinearBackward: x (tokens, in), dy (tokens, out), w (out, in)");
  LinearOperandValues &grad = scratch->a, &input = scratch->b;
  Prepare(recipe.dgrad.a, recipe.bf16, kDgradGrad, call, dy, &grad);
  const GemmOperand w = DgradWeight(recipe, call, weight);
  Gemm(grad.values, w.values, OptionsFor(recipe.dgrad, grad.amax, w.amax), dx);

  View grad_t = grad.values.Transposed();
  if (!SharesTranspose(recipe.dgrad.a, recipe.wgrad.a)) {
    Prepare(recipe.wgrad.a, recipe.bf16, kWgradGrad, call, dy.Transposed(), &grad);
    grad_t = grad.values;
  }
  Prepare(recipe.wgrad.b, recipe.bf16, kWgradInput, call, x.Transposed(), &input);
  GemmOptions options = OptionsFor(recipe.wgrad, grad.amax, input.amax);
  options.accumulate = true;
  Gemm(grad_t, input.values, options, dw);
}

}  // namespace fp4lab
