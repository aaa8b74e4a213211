#include "fp4lab/nn/linear.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/step_parts.h"
#include "fp4lab/nn/linear/accumulated.h"
#include "fp4lab/nn/linear/operand.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/nn/side/side_term.h"
#include "fp4lab/quantize/operand.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {
namespace {

using View = MatrixView<const float>;

// Scales of rows are not part of alpha.
GemmOptions OptionsFor(const GemmRecipe& recipe, float amax_a, float amax_b) {
  const std::optional<Dialect>&a = recipe.a.format, &b = recipe.b.format;
  GemmOptions options;
  if (a && b) options.block = std::min(a->block_cols, b->block_cols);
  options.alpha = AlphaOf(recipe, amax_a, amax_b);
  return options;
}

LinearInput Transposed(LinearInput input) {
  input.x = input.x.Transposed();
  return input;
}

void CheckWeight(const LinearRecipe& recipe, LinearWeight* weight) {
  if (weight->made_for == recipe) return;
  weight->Changed();
  weight->made_for = recipe;
}

// Whether the GEMM's operands are made as FP4 integers; an observer needs values.
bool UseIntegers(const GemmRecipe& recipe, const LinearCall& call) {
  return call.observer == nullptr && CanUseIntegers(recipe);
}

// Prepares an operand. FP4 integers need no values in `out`: the tensor rounded to BF16 on the way
// to integers, whole or in bands of rows, lies in the weight's scratch for the moment. With windows
// of scales, PrepareOperand rounds.
void Prepare(const GemmRecipe& gemm, const OperandRecipe& recipe, bool bf16, LinearOperand operand,
             const LinearCall& call, LinearInput input, LinearScratch* scratch,
             LinearOperandValues* out) {
  const bool integers = UseIntegers(gemm, call);
  if (integers && bf16 && !input.rounded && recipe.scale_window == 0) {
    FloatBuffer& spare = scratch->weight.memory;
    if (PrepareRounded(recipe, input.x, &spare, out)) return;
    const bool turned = input.x.col_stride != 1;
    const View x = turned ? input.x.Transposed() : input.x;
    Reserve(&spare, x.size());
    const MatrixView<float> rounded(spare.data(), x.rows, x.cols);
    const float amax = RoundBf16(x, rounded);
    input = {turned ? rounded.Transposed() : rounded, true, amax};
  }
  PrepareOperand(recipe, bf16, operand, call, input, integers, &scratch->transformed, out,
                 &scratch->windows);
}

constexpr double kLarge = 1 << 18;  // elements: 1 MiB
bool IsLarge(View w) { return static_cast<double>(w.size()) > kLarge; }

// Whether the weight's operand is kept. Integers are a quarter as large as values and are kept. An
// operand that an observer sees is kept so that the observer sees a weight once.
bool IsKept(const LinearRecipe& linear, const GemmRecipe& recipe, const LinearCall& call, View w) {
  return UseIntegers(recipe, call) || call.observer != nullptr ||
         KeepsWeightValues(linear, recipe.b, static_cast<double>(w.size()));
}

LinearOperandValues* PrepareWeight(const LinearRecipe& recipe, const GemmRecipe& gemm,
                                   LinearOperand operand, const LinearCall& call,
                                   const LinearInput& w, LinearScratch* scratch,
                                   LinearOperandValues* kept) {
  LinearOperandValues* const out = IsKept(recipe, gemm, call, w.x) ? kept : &scratch->weight;
  if (out == kept && kept->ready) return kept;
  if (IsLarge(w.x)) FloatBuffer().swap(kept->memory);  // frees values that an observer saw
  Prepare(gemm, gemm.b, recipe.bf16, operand, call, w, scratch, out);
  return out;
}

OperandUse FpropWeight(const LinearRecipe& recipe, const LinearCall& call, LinearScratch* scratch,
                       LinearWeight* weight) {
  CheckWeight(recipe, weight);
  return {PrepareWeight(recipe, recipe.fprop, kFpropWeight, call, {weight->w}, scratch,
                        &weight->fprop)};
}

// The tensor from which an operand of the backward pass is made: `input`, (tokens, in) or (out,
// in), or the tensor that fprop's operand decodes to.
LinearInput SourceOf(const LinearRecipe& recipe, const OperandRecipe& backward,
                     LinearOperand fprop_operand, const LinearCall& call, const LinearInput& input,
                     LinearScratch* scratch) {
  if (!backward.from_fprop) return input;
  Reserve(&scratch->decoded, input.x.size());
  const MatrixView<float> decoded(scratch->decoded.data(), input.x.rows, input.x.cols);
  const OperandRecipe& fprop = fprop_operand == kFpropInput ? recipe.fprop.a : recipe.fprop.b;
  LinearOperandValues memory;
  DecodeOperand(fprop, recipe.bf16, fprop_operand, call, input, &memory, decoded);
  return {.x = decoded, .rounded = recipe.bf16};
}

OperandUse DgradWeight(const LinearRecipe& recipe, const LinearCall& call, LinearScratch* scratch,
                       LinearWeight* weight) {
  if (SharesTranspose(recipe.fprop.b, recipe.dgrad.b)) {
    return {FpropWeight(recipe, call, scratch, weight).operand, true};
  }
  CheckWeight(recipe, weight);
  if (recipe.dgrad.b.from_fprop && weight->dgrad.ready) return {&weight->dgrad};
  const LinearInput w = SourceOf(recipe, recipe.dgrad.b, kFpropWeight, call, {weight->w}, scratch);
  LinearOperandValues* const out = PrepareWeight(recipe, recipe.dgrad, kDgradWeight, call,
                                                 Transposed(w), scratch, &weight->dgrad);
  // An operand that is the decoded tensor itself, and is kept, takes that tensor's memory along:
  // the next tensor to be decoded would overwrite it.
  const bool refers = !scratch->decoded.empty() && out->values.data == scratch->decoded.data();
  if (refers && out == &weight->dgrad) out->memory.swap(scratch->decoded);
  return {out};
}

// The tensor (tokens, channels) that an operand is made of: x itself, or what its side term leaves
// of it.
LinearInput RestOf(const OperandRecipe& operand, bool bf16, const LinearInput& x,
                   SplitTensor SideScratch::*place, LinearScratch* scratch) {
  if (!operand.side) return x;
  if (scratch->side == nullptr) scratch->side = std::make_shared<SideScratch>();
  SplitTensor& split = scratch->side.get()->*place;
  Split(operand.side, bf16, x, &split);
  return split.rest;
}

// Makes what only the operand itself shows of its side term, once it has been made.
void FinishSplit(const OperandRecipe& recipe, bool bf16, const LinearOperandValues& operand,
                 bool turned, SplitTensor* split) {
  if (recipe.side.Is(SideTermKind::kPatch)) TakeResidual(recipe, bf16, operand, turned, split);
}

// y = [y +] x w^T of the operands, without a side term; x's operand stays in scratch->a.
void MakeOutput(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& x,
                LinearWeight* weight, LinearScratch* scratch, Write write, MatrixView<float> y) {
  if (recipe.fprop.accumulation != nullptr) {
    return MultiplyAccumulated(recipe.fprop, call, {recipe.fprop.a, kFpropInput, x.x},
                               {recipe.fprop.b, kFpropWeight, weight->w},
                               write == Write::kAccumulate, y);
  }
  const OperandUse w = FpropWeight(recipe, call, scratch, weight);
  Prepare(recipe.fprop, recipe.fprop.a, recipe.bf16, kFpropInput, call, x, scratch, &scratch->a);
  GemmOptions options = OptionsFor(recipe.fprop, scratch->a.amax, w.operand->amax);
  options.accumulate = write == Write::kAccumulate;
  MultiplyOperands({&scratch->a}, w, options, y);
}

// dx = dy w, without a side term; dy's operand stays in scratch->a.
void MakeInputGradient(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& grad,
                       LinearWeight* weight, LinearScratch* scratch, MatrixView<float> dx) {
  if (recipe.dgrad.accumulation != nullptr) {
    const LinearInput w =
        SourceOf(recipe, recipe.dgrad.b, kFpropWeight, call, {weight->w}, scratch);
    return MultiplyAccumulated(recipe.dgrad, call, {recipe.dgrad.a, kDgradGrad, grad.x},
                               {recipe.dgrad.b, kDgradWeight, w.x.Transposed()}, false, dx);
  }
  LinearOperandValues& a = scratch->a;
  Prepare(recipe.dgrad, recipe.dgrad.a, recipe.bf16, kDgradGrad, call, grad, scratch, &a);
  const OperandUse w = DgradWeight(recipe, call, scratch, weight);
  MultiplyOperands({&a}, w, OptionsFor(recipe.dgrad, a.amax, w.operand->amax), dx);
}

// dw = dw + dy^T x, without side terms, after MakeInputGradient. The operands stay in scratch->b
// and, unless dgrad's serves, in scratch->a.
void MakeWeightGradient(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& x,
                        const LinearInput& grad, LinearScratch* scratch, MatrixView<float> dw) {
  if (recipe.wgrad.accumulation != nullptr) {
    return MultiplyAccumulated(recipe.wgrad, call,
                               {recipe.wgrad.a, kWgradGrad, grad.x.Transposed()},
                               {recipe.wgrad.b, kWgradInput, x.x.Transposed()}, true, dw);
  }
  LinearOperandValues &a = scratch->a, &b = scratch->b;
  const bool shares =
      SharesTranspose(recipe.dgrad.a, recipe.wgrad.a) && recipe.dgrad.accumulation == nullptr;
  if (!shares) {
    Prepare(recipe.wgrad, recipe.wgrad.a, recipe.bf16, kWgradGrad, call, Transposed(grad), scratch,
            &a);
  }
  Prepare(recipe.wgrad, recipe.wgrad.b, recipe.bf16, kWgradInput, call, Transposed(x), scratch, &b);
  GemmOptions options = OptionsFor(recipe.wgrad, a.amax, b.amax);
  options.accumulate = true;
  MultiplyOperands({&a, shares}, {&b}, options, dw);
}

// dx = dy w, with the side term of dy.
void InputGradient(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& grad,
                   LinearWeight* weight, LinearScratch* scratch, MatrixView<float> dx) {
  const OperandRecipe& a = recipe.dgrad.a;
  const LinearInput rest = RestOf(a, recipe.bf16, grad, &SideScratch::a, scratch);
  MakeInputGradient(recipe, call, rest, weight, scratch, dx);
  if (!a.side) return;
  SideScratch& side = *scratch->side;
  FinishSplit(a, recipe.bf16, scratch->a, false, &side.a);
  AddSideAlongChannels(a.side, recipe.bf16, side.a, weight->w.Transposed(), &side, dx);
}

// dw = dw + dy^T x, with the side terms of both.
void WeightGradient(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& input,
                    const LinearInput& grad, LinearScratch* scratch, MatrixView<float> dw) {
  const OperandRecipe &a = recipe.wgrad.a, &b = recipe.wgrad.b;
  const LinearInput x = SourceOf(recipe, b, kFpropInput, call, input, scratch);
  const LinearInput grad_rest = RestOf(a, recipe.bf16, grad, &SideScratch::a, scratch);
  const LinearInput rest = RestOf(b, recipe.bf16, x, &SideScratch::b, scratch);
  MakeWeightGradient(recipe, call, rest, grad_rest, scratch, dw);
  if (a.side) {
    SideScratch& side = *scratch->side;
    FinishSplit(a, recipe.bf16, scratch->a, true, &side.a);
    AddSideAlongTokens(a.side, recipe.bf16, side.a, x, true, &side, dw);
  }
  if (b.side) {
    SideScratch& side = *scratch->side;
    FinishSplit(b, recipe.bf16, scratch->b, true, &side.b);
    AddSideAlongTokens(b.side, recipe.bf16, side.b, grad_rest, false, &side, dw);
  }
}

}  // namespace

bool KeepsWeightValues(const LinearRecipe& linear, const OperandRecipe& operand, double size) {
  const auto random = [](const OperandRecipe& weight) {
    return weight.format && TakesRandomBits(*weight.format);
  };
  return size <= kLarge || random(operand) || (operand.from_fprop && random(linear.fprop.b));
}

void LinearForward(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& input,
                   LinearWeight* weight, LinearScratch* scratch, Write write, MatrixView<float> y) {
  const IeeeArithmetic ieee;
  const StepScope part(StepPart::kQuantization);  // but for the products
  const View x = input.x;
  Expects(
      x.col_stride == 1 && x.cols == weight->w.cols && y.rows == x.rows && y.cols == weight->w.rows,
      "LinearForward: x (tokens, in), w (out, in), y (tokens, out)");
  const OperandRecipe& a = recipe.fprop.a;
  const LinearInput rest = RestOf(a, recipe.bf16, input, &SideScratch::a, scratch);
  MakeOutput(recipe, call, rest, weight, scratch, write, y);
  if (!a.side) return;
  SideScratch& side = *scratch->side;
  FinishSplit(a, recipe.bf16, scratch->a, false, &side.a);
  AddSideAlongChannels(a.side, recipe.bf16, side.a, weight->w, &side, y);
}

void LinearBackward(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& input,
                    LinearWeight* weight, const LinearInput& dy, LinearScratch* scratch,
                    MatrixView<float> dx, MatrixView<float> dw) {
  const IeeeArithmetic ieee;
  const StepScope part(StepPart::kQuantization);  // but for the products
  Expects(input.x.col_stride == 1 && dy.x.col_stride == 1 && input.x.rows == dy.x.rows &&
              input.x.cols == weight->w.cols && dy.x.cols == weight->w.rows,
          "LinearBackward: x (tokens, in), dy (tokens, out), w (out, in)");
  LinearInput grad = dy;
  if (recipe.bf16 && !dy.rounded) {  // once for both GEMMs
    Reserve(&scratch->grad, dy.x.size());
    const MatrixView<float> rounded(scratch->grad.data(), dy.x.rows, dy.x.cols);
    grad = {rounded, true, RoundBf16(dy.x, rounded)};
  }
  InputGradient(recipe, call, grad, weight, scratch, dx);
  WeightGradient(recipe, call, input, grad, scratch, dw);
}

}  // namespace fp4lab
