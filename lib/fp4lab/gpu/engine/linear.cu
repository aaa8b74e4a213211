#include <algorithm>

#include "fp4lab/gpu/engine/linear.cuh"
#include "fp4lab/gpu/engine/operand/operand.cuh"
#include "fp4lab/gpu/engine/operand/operand_pair.cuh"
#include "fp4lab/gpu/engine/step_parts.cuh"
#include "fp4lab/gpu/gemm/scaled_gemm.cuh"
#include "fp4lab/recipe/recipe.h"

namespace fp4lab::gpu {
namespace {

template <class T>
void CheckWeight(const LinearRecipe& recipe, DeviceWeight<T>* weight) {
  if (weight->made_for == recipe) return;
  weight->Changed();
  weight->made_for = recipe;
}

// The weight, rounded to BF16 if the recipe says so, once after each change of the weight.
template <class T>
const T* RoundedWeight(const DeviceCall& call, DeviceWeight<T>* weight) {
  if constexpr (std::is_same_v<T, float>) {
    if (!weight->made_for.bf16) return weight->w;
  }
  const std::size_t size = weight->out * weight->in;
  T* const rounded = Reserve(&weight->rounded, size);
  if (!weight->has_rounded) RoundTo(weight->w, size, rounded, call.stream);
  weight->has_rounded = true;
  return rounded;
}

// Separate memory for the decoded tensor from which an operand is made: an observer reads both, so
// the operand may not overwrite the tensor.
template <class T>
struct Apart {
  DeviceArray<T> memory;  // allocated only with an observer

  T* Place(const OperandRecipe& recipe, const DeviceCall& call, std::size_t size, T* out) {
    if (call.observer == nullptr || !recipe.format) return out;
    memory = DeviceArray<T>(size);
    return memory.data();
  }
};

// The weight as fprop's operand or, with the reduction axis along rows, as dgrad's operand.
// `fprop`: the recipe of fprop's operand, from whose values dgrad's operand may be made.
template <class T>
Operand<T> WeightOperand(const OperandRecipe& recipe, LinearOperand operand,
                         const OperandRecipe& fprop, const DeviceCall& call,
                         DeviceWeight<T>* weight) {
  const bool along_rows = operand == kDgradWeight;
  DeviceArray<T>& memory = along_rows ? weight->dgrad : weight->fprop;
  bool& has = along_rows ? weight->has_dgrad : weight->has_fprop;
  std::uint32_t* const amax = weight->amax + (along_rows ? 1 : 0);
  RowScales* const rows = along_rows ? &weight->dgrad_rows : &weight->fprop_rows;
  const Place place{weight->out, weight->in, along_rows};
  const T* const rounded = RoundedWeight(call, weight);
  const OperandPlan plan = PlanOf(recipe);
  const bool decodes = recipe.from_fprop && !PlanOf(fprop).is_plain;
  if (plan.is_plain && !decodes) return {rounded, nullptr};
  if (has) return OperandOf<T>(recipe, place, memory.data(), amax, rows);
  const std::size_t size = weight->out * weight->in;
  Reserve(&memory, size);
  has = true;
  const auto clear_amax = [&] {
    Check(cudaMemsetAsync(amax, 0, sizeof *amax, call.stream), "memset");
  };
  const T* from = rounded;
  Apart<T> apart;
  if (decodes) {
    const Place rowwise{weight->out, weight->in, false};
    const bool bf16 = weight->made_for.bf16;
    T* const to = apart.Place(recipe, call, size, memory.data());
    if (weight->has_fprop && fprop.scale_window == 0) {
      if (plan.needs_amax) clear_amax();
      const Operand<T> made =
          OperandOf<T>(fprop, rowwise, weight->fprop.data(), weight->amax, &weight->fprop_rows);
      return PrepareDecoded(fprop, made, bf16, to, recipe, operand, call, place, amax,
                            memory.data(), rows);
    }
    clear_amax();
    from = DecodedOf(fprop, bf16, kFpropWeight, call, rowwise, rounded, amax, to, rows);
  }
  if (plan.needs_amax) clear_amax();
  return Prepare(recipe, operand, call, place, from, amax, memory.data(), rows);
}

template <class T>
Operand<T> FpropWeight(const LinearRecipe& recipe, const DeviceCall& call,
                       DeviceWeight<T>* weight) {
  return WeightOperand(recipe.fprop.b, kFpropWeight, recipe.fprop.b, call, weight);
}

template <class T>
Operand<T> DgradWeight(const LinearRecipe& recipe, const DeviceCall& call,
                       DeviceWeight<T>* weight) {
  if (SharesTranspose(recipe.fprop.b, recipe.dgrad.b)) {
    Operand<T> shared = FpropWeight(recipe, call, weight);
    shared.scales = shared.scales.Turned();
    return shared;
  }
  return WeightOperand(recipe.dgrad.b, kDgradWeight, recipe.fprop.b, call, weight);
}

// How the alpha of a GEMM is computed. `to`: the place of alpha; null: alpha is 1.
struct Alpha {
  AlphaJob tuned;         // alpha that a tuned quantizer can write; null `to`: none
  DialectAlphaJob apart;  // alpha with an operand of another dialect; null `to`: none
  const float* to = nullptr;
};

Alpha AlphaOf(const GemmRecipe& recipe, const DeviceCall& call, int which,
              const std::uint32_t* amax_a, const std::uint32_t* amax_b) {
  const OperandPlan a = PlanOf(recipe.a), b = PlanOf(recipe.b);
  if (!a.has_alpha && !b.has_alpha) return {};
  float* const to = call.alpha + which;
  if (a.kernel != OperandKernel::kDialects && b.kernel != OperandKernel::kDialects) {
    return {{a.format, b.format, amax_a, amax_b, to}, {}, to};
  }
  const auto scaled = [](const OperandPlan& plan, const OperandRecipe& operand) {
    return plan.has_alpha ? operand.format : std::nullopt;
  };
  return {{}, {scaled(a, recipe.a), scaled(b, recipe.b), amax_a, amax_b, to}, to};
}

// Writes alpha unless a quantizer has written it, and returns its place. The operands must have
// been made.
const float* Made(const Alpha& alpha, const AlphaJob& left, const DeviceCall& call) {
  if (left.to != nullptr) WriteAlpha(left, call.stream);
  if (alpha.apart.to != nullptr) WriteAlpha(alpha.apart, call.stream);
  return alpha.to;
}

// Runs the product, then ScaleRows if an operand has scales of rows. ScaleRows also rounds the
// product of binary32 operands to BF16, which cuBLASLt cannot do.
template <class T, class D>
void Multiply(const DeviceCall& call, const GemmProblem<T, D>& gemm, const float* row_decode,
              const float* column_decode, DeviceScratch<T>* scratch) {
  const DeviceStepScope part(StepPart::kGemm);
  if constexpr (std::is_same_v<T, Bf16> || std::is_same_v<D, float>) {
    if (row_decode == nullptr && column_decode == nullptr) return call.gemms->Run(gemm, call.lane);
  }
  GemmProblem<T> product{gemm.m,           gemm.n, gemm.k, gemm.a, gemm.b, gemm.a_transposed,
                         gemm.b_transposed};
  product.tokens_vary = gemm.tokens_vary;
  product.a_scales = gemm.a_scales;
  product.b_scales = gemm.b_scales;
  product.alpha = gemm.alpha;
  product.d = Reserve(&scratch->product, gemm.m * gemm.n);
  call.gemms->Run(product, call.lane);
  ScaleRows(product.d, gemm.m, gemm.n, row_decode, column_decode, gemm.c, gemm.d, call.stream);
}

// Whether a product takes its operands' scales in binary32 apart from their values in BF16.
// a_cols, b_cols: of the operands' memory.
bool TakesScalesOf(const GemmRecipe& recipe, std::size_t length, std::size_t a_cols,
                   std::size_t b_cols) {
  const auto fits = [&](const OperandRecipe& operand) {
    if (operand.side) return false;
    const auto window = static_cast<std::size_t>(operand.scale_window);
    return window == 0 ||
           (length % window == 0 && operand.format->scale_encoding != ScaleEncoding::kBinary32);
  };
  return fits(recipe.a) && fits(recipe.b) &&
         TakesScales(PlanOf(recipe.a).scaled_block, PlanOf(recipe.b).scaled_block, a_cols, b_cols);
}

// Whether the operands of the linear's products have to be in binary32.
bool NeedsWideOperands(const LinearRecipe& recipe, std::size_t tokens,
                       const DeviceWeight<Bf16>& weight) {
  const std::size_t in = weight.in, out = weight.out;
  return HasWideOperands(recipe) &&
         !(TakesScalesOf(recipe.fprop, in, in, in) && TakesScalesOf(recipe.dgrad, out, out, in) &&
           TakesScalesOf(recipe.wgrad, tokens, out, in));
}

// Whether fprop's operand may take the place of x until the backward pass makes wgrad's operand of
// its values: the operand must consist of its values and its amax alone.
bool KeepsFpropOperand(const LinearRecipe& recipe, const DeviceCall& call) {
  const OperandRecipe &fprop = recipe.fprop.a, &wgrad = recipe.wgrad.b;
  const OperandPlan plan = PlanOf(fprop);
  return wgrad.from_fprop && call.observer == nullptr && fprop.format && !fprop.side &&
         !wgrad.side && !recipe.wgrad.a.side && !plan.has_windows && !plan.has_row_scales &&
         !plan.has_delayed_scaling && plan.scaled_block == 0;
}

// The binary32 weight and scratch of a linear with wide operands.
DeviceWeight<float>* Wide(const LinearRecipe& recipe, DeviceWeight<Bf16>* weight) {
  CheckWeight(recipe, weight);  // the wide weight shares its amax
  if (weight->wide == nullptr) {
    weight->wide = std::make_unique<DeviceWeight<float>>();
    weight->wide->w = weight->w;
    weight->wide->out = weight->out;
    weight->wide->in = weight->in;
    weight->wide->amax = weight->amax;
  }
  return weight->wide.get();
}
DeviceScratch<float>* Wide(std::size_t tokens, const DeviceWeight<Bf16>& weight,
                           DeviceScratch<Bf16>* scratch) {
  if (scratch->wide == nullptr) scratch->wide = std::make_unique<DeviceScratch<float>>();
  const std::size_t size = tokens * std::max(weight.in, weight.out);
  Reserve(&scratch->wide->a, size);
  Reserve(&scratch->wide->b, size);
  return scratch->wide.get();
}
// Converts x to binary32.
float* Wide(const Bf16* x, std::size_t size, DeviceArray<float>* memory, cudaStream_t stream) {
  float* const wide = Reserve(memory, size);
  RoundTo(x, size, wide, stream);
  return wide;
}

// The weight as the other tensor of a side term.
template <class T>
SideWeight<T> WeightOf(const DeviceCall& call, DeviceWeight<T>* weight) {
  return {RoundedWeight(call, weight), weight->out, weight->in};
}

template <class T>
DeviceSide<T>& SideOf(DeviceScratch<T>* scratch) {
  if (scratch->side == nullptr) scratch->side = std::make_unique<DeviceSide<T>>();
  return *scratch->side;
}

}  // namespace

bool HasWideOperands(const LinearRecipe& recipe) {
  const std::array operands = OperandsOf(recipe);
  return recipe.bf16 && std::any_of(operands.begin(), operands.end(), [](const OperandRecipe* o) {
           return o->format &&
                  (o->format->scale_encoding == ScaleEncoding::kBinary32 || o->scale_window != 0);
         });
}

template <class T>
AmaxPlaces InputAmax(const LinearRecipe& recipe, std::uint32_t* amax, std::size_t tokens,
                     std::size_t in, bool trains) {
  return PlacesOf<T>(recipe.fprop.a, trains ? recipe.wgrad.b : OperandRecipe{}, tokens, in,
                     amax + kFpropInput, amax + kWgradInput);
}

template <class T>
AmaxPlaces GradientAmax(const LinearRecipe& recipe, std::uint32_t* amax, std::size_t tokens,
                        std::size_t out) {
  return PlacesOf<T>(recipe.dgrad.a, recipe.wgrad.a, tokens, out, amax + kDgradGrad,
                     amax + kWgradGrad);
}

template <class T>
InputHolds LinearForward(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens,
                         bool trains, const AmaxPlaces& measured, T* x, bool may_replace,
                         DeviceWeight<T>* weight, DeviceScratch<T>* scratch, const float* c,
                         float* y) {
  if constexpr (std::is_same_v<T, Bf16>) {
    if (NeedsWideOperands(recipe, tokens, *weight)) {
      float* const wide_x = Wide(x, tokens * weight->in, &scratch->wide_x, call.stream);
      return LinearForward(recipe, call, tokens, trains, measured, wide_x, false,
                           Wide(recipe, weight), Wide(tokens, *weight, scratch), c, y);
    }
  }
  const DeviceStepScope part(StepPart::kQuantization);  // but for the product
  CheckWeight(recipe, weight);
  const Operand<T> w = FpropWeight(recipe, call, weight);
  const Pair pair{recipe.fprop.a, recipe.wgrad.b, kFpropInput, kWgradInput, tokens, weight->in};
  const bool both = trains && pair.plan.amax == PairAmax::kOnePass;
  if (both) MeasureBothOf(pair, call, x, measured);
  const SideTerm& term = pair.row.side;
  const T* const from =
      term ? Split(term, recipe.bf16, call.stream, tokens, weight->in, x, &SideOf(scratch).a) : x;
  std::uint32_t* const amax = call.amax + kFpropInput;
  const Alpha alpha = AlphaOf(recipe.fprop, call, 0, amax, w.amax);
  AlphaJob left = alpha.tuned;
  Operand<T> a{scratch->a.data()};
  may_replace = may_replace && trains;
  InputHolds holds = InputHolds::kTensor;
  if (may_replace && !recipe.wgrad.a.side && QuantizesTogether<T>(pair.plan, call)) {
    QuantizeTogether(pair, call, x, &left, scratch->a.data(), nullptr, x);
    holds = InputHolds::kWgradOperand;
  } else {
    if (may_replace && KeepsFpropOperand(recipe, call)) holds = InputHolds::kFpropOperand;
    T* const out = holds == InputHolds::kFpropOperand ? x : scratch->a.data();
    a = Prepare(pair.row, kFpropInput, call, {tokens, weight->in, false}, from, amax, out,
                &scratch->a_rows, both || measured.plain != nullptr, &left);
  }
  GemmProblem<T> gemm{tokens, weight->out, weight->in, a.values, w.values};
  gemm.b_transposed = true;
  gemm.tokens_vary = call.tokens_vary;
  gemm.alpha = Made(alpha, left, call);
  gemm.c = c;
  gemm.d = y;
  gemm.a_scales = a.scales;
  gemm.b_scales = w.scales;
  Multiply(call, gemm, a.row_decode, w.row_decode, scratch);
  if (term) {
    DeviceSide<T>& side = *scratch->side;
    TakeResidual(pair.row, recipe.bf16, call.stream, tokens, weight->in, from, a, false, &side.a);
    AddSideAlongChannels(term, call, tokens, WeightOf(call, weight), false, side.a, &side, y);
  }
  return holds;
}

// The wgrad operand of the forward pass's x, whose memory `holds` what LinearForward has left.
template <class T>
Operand<T> WgradInput(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens,
                      const T* x, InputHolds holds, const DeviceWeight<T>& weight, T* out,
                      RowScales* rows) {
  std::uint32_t* const amax = WgradInputAmax(recipe, call);
  if (holds == InputHolds::kWgradOperand) return {x, amax};
  const OperandRecipe &operand = recipe.wgrad.b, &fprop = recipe.fprop.a;
  const Place place{tokens, weight.in, true};
  const bool measured = PlanOf(fprop, operand).knows_column_amax;
  Apart<T> apart;
  if (operand.from_fprop) {
    std::uint32_t* const fprop_amax = call.amax + kFpropInput;
    T* const to = apart.Place(operand, call, tokens * weight.in, out);
    if (holds == InputHolds::kFpropOperand) {
      return PrepareDecoded(fprop, {x, fprop_amax}, recipe.bf16, to, operand, kWgradInput, call,
                            place, amax, out, rows, measured);
    }
    x = DecodedOf(fprop, recipe.bf16, kFpropInput, call, {tokens, weight.in, false}, x, fprop_amax,
                  to, rows);
  }
  return Prepare(operand, kWgradInput, call, place, x, amax, out, rows, measured);
}

// dx = the product plus the side term of dy; `from`: what the term leaves of dy.
template <class T, class D>
void SidedDgrad(const LinearRecipe& recipe, const DeviceCall& call, const GemmProblem<T, D>& dgrad,
                const T* from, const Operand<T>& a, const Operand<T>& w, DeviceWeight<T>* weight,
                DeviceScratch<T>* scratch) {
  const OperandRecipe& operand = recipe.dgrad.a;
  const std::size_t tokens = dgrad.m, size = tokens * dgrad.n;
  DeviceSide<T>& side = *scratch->side;
  GemmProblem<T> product{tokens, dgrad.n, dgrad.k, dgrad.a, dgrad.b};
  product.tokens_vary = dgrad.tokens_vary;
  product.alpha = dgrad.alpha;
  if constexpr (std::is_same_v<D, float>) {
    product.d = dgrad.d;
  } else {
    product.d = Reserve(&side.dx, size);
  }
  Multiply(call, product, a.row_decode, w.row_decode, scratch);
  TakeResidual(operand, recipe.bf16, call.stream, tokens, weight->out, from, a, false, &side.a);
  AddSideAlongChannels(operand.side, call, tokens, WeightOf(call, weight), true, side.a, &side,
                       product.d);
  if constexpr (!std::is_same_v<D, float>) RoundTo(product.d, size, dgrad.d, call.stream);
}

// dw += dy^T x with the side terms of wgrad's operands. `shared`: dgrad's operand of dy in
// scratch->a, if it is wgrad's, too. `dgrad_rest`: what dgrad's side term left of dy.
template <class T>
void SidedWgrad(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens, const T* x,
                const T* dy, const T* dgrad_rest, const Operand<T>* shared,
                const DeviceWeight<T>& weight, DeviceScratch<T>* scratch, float* dw) {
  const OperandRecipe &a = recipe.wgrad.a, &b = recipe.wgrad.b;
  DeviceSide<T>& side = SideOf(scratch);
  if (b.from_fprop) {
    x = DecodedOf(recipe.fprop.a, recipe.bf16, kFpropInput, call, {tokens, weight.in, false}, x,
                  call.amax + kFpropInput, Reserve(&side.decoded, tokens * weight.in),
                  &scratch->b_rows);
  }
  const auto rest = [&](const OperandRecipe& operand, const T* tensor, std::size_t channels,
                        DeviceSplit<T>* split) {
    if (!operand.side) return tensor;
    return Split(operand.side, recipe.bf16, call.stream, tokens, channels, tensor, split);
  };
  const bool is_split = a.side == recipe.dgrad.a.side;  // dy, by dgrad
  const T* const dy_rest = is_split ? dgrad_rest : rest(a, dy, weight.out, &side.a);
  const T* const x_rest = rest(b, x, weight.in, &side.b);
  std::uint32_t* const amax_a = call.amax + (shared != nullptr ? kDgradGrad : kWgradGrad);
  std::uint32_t* const amax_b = call.amax + kWgradInput;
  const Alpha alpha = AlphaOf(recipe.wgrad, call, 2, amax_a, amax_b);
  AlphaJob left = alpha.tuned;
  T* const free = shared != nullptr ? scratch->b.data() : scratch->a.data();
  const Operand<T> made_b = Prepare(b, kWgradInput, call, {tokens, weight.in, true}, x_rest, amax_b,
                                    free, &scratch->b_rows);
  const Operand<T> made_a =
      shared != nullptr ? *shared
                        : Prepare(a, kWgradGrad, call, {tokens, weight.out, true}, dy_rest, amax_a,
                                  scratch->b.data(), &scratch->a_rows, false, &left);
  GemmProblem<T> wgrad{weight.out, weight.in, tokens, made_a.values, made_b.values};
  wgrad.a_transposed = true;
  wgrad.tokens_vary = call.tokens_vary;
  wgrad.alpha = Made(alpha, left, call);
  wgrad.c = wgrad.d = dw;
  Multiply(call, wgrad, made_a.row_decode, made_b.row_decode, scratch);
  if (a.side) {
    TakeResidual(a, recipe.bf16, call.stream, tokens, weight.out, dy_rest, made_a, true, &side.a);
    const double* const sums = b.side.Is(SideTermKind::kMean) ? side.b.folds.data() : nullptr;
    AddSideAlongTokens(a.side, call, tokens, weight.out, SideOther<T>{x, weight.in, sums}, true,
                       side.a, &side, dw);
  }
  if (b.side) {
    TakeResidual(b, recipe.bf16, call.stream, tokens, weight.in, x_rest, made_b, true, &side.b);
    AddSideAlongTokens(b.side, call, tokens, weight.in, SideOther<T>{dy_rest, weight.out}, false,
                       side.b, &side, dw);
  }
}

template <class T, class D>
void LinearBackward(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens,
                    const AmaxPlaces& measured, const T* x, InputHolds holds,
                    DeviceWeight<T>* weight, const T* dy, DeviceScratch<T>* scratch, D* dx,
                    float* dw) {
  if constexpr (std::is_same_v<T, Bf16>) {
    if (NeedsWideOperands(recipe, tokens, *weight)) {
      const float* const wide_x = Wide(x, tokens * weight->in, &scratch->wide_x, call.stream);
      const float* const wide_dy = Wide(dy, tokens * weight->out, &scratch->wide_dy, call.stream);
      return LinearBackward(recipe, call, tokens, measured, wide_x, InputHolds::kTensor,
                            Wide(recipe, weight), wide_dy, Wide(tokens, *weight, scratch), dx, dw);
    }
  }
  const DeviceStepScope part(StepPart::kQuantization);  // but for the products
  CheckWeight(recipe, weight);
  const Pair pair{recipe.dgrad.a, recipe.wgrad.a, kDgradGrad, kWgradGrad, tokens, weight->out};
  const bool both = pair.plan.amax == PairAmax::kOnePass;
  if (both) MeasureBothOf(pair, call, dy, measured);
  const bool shares = SharesTranspose(pair.row, pair.column);
  const bool together = !shares && QuantizesTogether<T>(pair.plan, call);
  const bool knows_input = PlanOf(recipe.fprop.a, recipe.wgrad.b).knows_column_amax;
  std::uint32_t* const amax = call.amax + kDgradGrad;
  std::uint32_t* const amax_t = shares ? amax : call.amax + kWgradGrad;

  const Operand<T> w = DgradWeight(recipe, call, weight);
  const Alpha alpha = AlphaOf(recipe.dgrad, call, 1, amax, w.amax);
  const Alpha alpha_t = AlphaOf(recipe.wgrad, call, 2, amax_t, WgradInputAmax(recipe, call));
  AlphaJob left = alpha.tuned, left_t = alpha_t.tuned;
  Operand<T> a{scratch->a.data()};
  const SideTerm& term = pair.row.side;
  const T* const from =
      term ? Split(term, recipe.bf16, call.stream, tokens, weight->out, dy, &SideOf(scratch).a)
           : dy;
  if (together) {
    QuantizeTogether(pair, call, dy, &left, scratch->a.data(), knows_input ? &left_t : nullptr,
                     scratch->b.data());
  } else {
    a = Prepare(pair.row, kDgradGrad, call, {tokens, weight->out, false}, from, amax,
                scratch->a.data(), &scratch->a_rows, both || measured.plain != nullptr, &left);
  }
  GemmProblem<T, D> dgrad{tokens, weight->in, weight->out, a.values, w.values};
  dgrad.tokens_vary = call.tokens_vary;
  dgrad.alpha = Made(alpha, left, call);
  dgrad.d = dx;
  dgrad.b_transposed = w.turned;
  dgrad.a_scales = a.scales;
  dgrad.b_scales = w.scales;
  if (term) {
    SidedDgrad(recipe, call, dgrad, from, a, w, weight, scratch);
  } else {
    Multiply(call, dgrad, a.row_decode, w.row_decode, scratch);
  }
  if (recipe.wgrad.a.side || recipe.wgrad.b.side) {
    return SidedWgrad(recipe, call, tokens, x, dy, from, shares ? &a : nullptr, *weight, scratch,
                      dw);
  }

  // If wgrad shares dgrad's operand in scratch->a, wgrad's other operand goes to scratch->b.
  T* const free = shares ? scratch->b.data() : scratch->a.data();
  Operand<T> a_t{shares ? a.values : scratch->b.data()};
  if (shares) a_t.scales = a.scales.Turned();
  const Operand<T> b = WgradInput(recipe, call, tokens, x, holds, *weight, free, &scratch->b_rows);
  if (!shares && !together) {
    a_t = Prepare(pair.column, kWgradGrad, call, {tokens, weight->out, true}, dy, amax_t,
                  scratch->b.data(), &scratch->a_rows, both, &left_t);
  }
  GemmProblem<T> wgrad{weight->out, weight->in, tokens, a_t.values, b.values};
  wgrad.a_transposed = !a_t.turned;
  wgrad.b_transposed = b.turned;
  wgrad.a_scales = a_t.scales;
  wgrad.b_scales = b.scales;
  wgrad.tokens_vary = call.tokens_vary;
  wgrad.alpha = Made(alpha_t, left_t, call);
  wgrad.c = wgrad.d = dw;
  Multiply(call, wgrad, a_t.row_decode, b.row_decode, scratch);
}

template AmaxPlaces InputAmax<float>(const LinearRecipe&, std::uint32_t*, std::size_t, std::size_t,
                                     bool);
template AmaxPlaces InputAmax<Bf16>(const LinearRecipe&, std::uint32_t*, std::size_t, std::size_t,
                                    bool);
template AmaxPlaces GradientAmax<float>(const LinearRecipe&, std::uint32_t*, std::size_t,
                                        std::size_t);
template AmaxPlaces GradientAmax<Bf16>(const LinearRecipe&, std::uint32_t*, std::size_t,
                                       std::size_t);
template InputHolds LinearForward(const LinearRecipe&, const DeviceCall&, std::size_t, bool,
                                  const AmaxPlaces&, float*, bool, DeviceWeight<float>*,
                                  DeviceScratch<float>*, const float*, float*);
template InputHolds LinearForward(const LinearRecipe&, const DeviceCall&, std::size_t, bool,
                                  const AmaxPlaces&, Bf16*, bool, DeviceWeight<Bf16>*,
                                  DeviceScratch<Bf16>*, const float*, float*);
template void LinearBackward(const LinearRecipe&, const DeviceCall&, std::size_t, const AmaxPlaces&,
                             const float*, InputHolds, DeviceWeight<float>*, const float*,
                             DeviceScratch<float>*, float*, float*);
template void LinearBackward(const LinearRecipe&, const DeviceCall&, std::size_t, const AmaxPlaces&,
                             const Bf16*, InputHolds, DeviceWeight<Bf16>*, const Bf16*,
                             DeviceScratch<Bf16>*, float*, float*);
template void LinearBackward(const LinearRecipe&, const DeviceCall&, std::size_t, const AmaxPlaces&,
                             const Bf16*, InputHolds, DeviceWeight<Bf16>*, const Bf16*,
                             DeviceScratch<Bf16>*, Bf16*, float*);

}  // namespace fp4lab::gpu
