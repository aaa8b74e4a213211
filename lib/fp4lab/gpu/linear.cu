#include <type_traits>
#include <vector>

#include "fp4lab/gpu/kernels.cuh"
#include "fp4lab/gpu/linear.cuh"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::gpu {
namespace {

// Whether quantizing the transpose gives the transposed values; nn/linear.cc.
bool SharesTranspose(const OperandRecipe& a, const OperandRecipe& b) {
  return a == b && a.rounding == Rounding::kNearestEven && a.hadamard == 0 &&
         (!a.format || a.format->block_rows == a.format->block_cols);
}

bool NeedsAmax(const OperandRecipe& recipe) {
  return recipe.format && HasTensorScale(*recipe.format);
}

float ToFloat(float x) { return x; }
float ToFloat(Bf16 x) { return __bfloat162float(x); }

// Where an operand lies: (rows, cols), the reduction axis along rows or along cols.
struct Place {
  std::size_t rows = 0, cols = 0;
  bool along_rows = false;
};

// Copies the operand and its values to the host, for diagnostics.
template <class T>
void Observe(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
             const Place& place, const T* x, const T* values, const std::uint32_t* amax) {
  const auto fetch = [&](const T* from) {
    std::vector<T> raw(place.rows * place.cols);
    Check(cudaMemcpyAsync(raw.data(), from, raw.size() * sizeof(T), cudaMemcpyDeviceToHost,
                          call.stream),
          "copy from the GPU");
    Check(cudaStreamSynchronize(call.stream), "training");
    Matrix<float> matrix(place.rows, place.cols);
    for (std::size_t i = 0; i < raw.size(); ++i) matrix.values[i] = ToFloat(raw[i]);
    return matrix;
  };
  Matrix<float> before = fetch(x), after = fetch(values);
  const auto oriented = [&](Matrix<float>& m) {
    return place.along_rows ? m.View().Transposed() : m.View();
  };
  if (recipe.hadamard != 0) {
    const std::uint32_t signs = recipe.hadamard == 16 ? kTeSignMask16 : kTeSignMask32;
    RandomHadamard(oriented(before), recipe.hadamard, signs, oriented(before));
  }
  QuantizeOptions options{
      .format = *recipe.format, .rounding = recipe.rounding, .random = call.random};
  options.random.tensor += static_cast<std::uint32_t>(operand);
  if (NeedsAmax(recipe)) {
    Check(cudaMemcpy(&options.amax, amax, sizeof(float), cudaMemcpyDeviceToHost),
          "copy from the GPU");
  }
  (*call.observer)(operand, oriented(before), oriented(after), options);
}

// x holds rounded values. Nothing is copied that can be used as it is. `measured`: *amax is there.
template <class T>
Operand<T> Prepare(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                   const Place& place, const T* x, std::uint32_t* amax, T* out,
                   bool measured = false) {
  if (!recipe.format && recipe.hadamard == 0) return {x, nullptr};
  QuantizeJob job{place.rows,      place.cols,  place.along_rows, recipe.format,
                  recipe.rounding, call.random, recipe.hadamard};
  job.random.tensor += static_cast<std::uint32_t>(operand);
  if (NeedsAmax(recipe) && !measured) MeasureAmax(job, x, amax, call.stream);
  QuantizeToValues(job, x, amax, out, call.stream);
  if (call.observer != nullptr && recipe.format) {
    Observe(recipe, operand, call, place, x, out, amax);
  }
  return {out, amax};
}

// Whether the amax of both operands of one tensor, along its rows and down its columns, come from
// one pass over it.
bool MeasuresBoth(const OperandRecipe& row, const OperandRecipe& column) {
  return NeedsAmax(row) && NeedsAmax(column) && row.hadamard == 0 && column.hadamard != 0;
}

template <class T>
void MeasureBothOf(const OperandRecipe& column, const DeviceCall& call, const Place& place,
                   const T* x, LinearOperand row_operand, LinearOperand column_operand) {
  MeasureBoth(
      {.rows = place.rows, .cols = place.cols, .along_rows = true, .hadamard = column.hadamard}, x,
      call.amax + row_operand, call.amax + column_operand, call.stream);
}

template <class T>
void CheckWeight(const LinearRecipe& recipe, DeviceWeight<T>* weight) {
  if (weight->made_for == recipe) return;
  weight->has_fprop = weight->has_dgrad = false;
  weight->made_for = recipe;
}

// The weight rounded to T, once a change.
template <class T>
const T* RoundedWeight(const DeviceCall& call, DeviceWeight<T>* weight) {
  if constexpr (std::is_same_v<T, float>) {
    return weight->w;
  } else {
    const std::size_t size = weight->out * weight->in;
    if (weight->rounded.size() == 0) weight->rounded = DeviceArray<T>(size);
    if (!weight->has_rounded) RoundTo(weight->w, size, weight->rounded.data(), call.stream);
    weight->has_rounded = true;
    return weight->rounded.data();
  }
}

// The fprop operand, or the dgrad operand: the reduction axis along rows.
template <class T>
Operand<T> WeightOperand(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                         DeviceWeight<T>* weight) {
  const bool along_rows = operand == kDgradWeight;
  DeviceArray<T>& memory = along_rows ? weight->dgrad : weight->fprop;
  bool& has = along_rows ? weight->has_dgrad : weight->has_fprop;
  std::uint32_t* const amax = weight->amax + (along_rows ? 1 : 0);
  const T* const rounded = RoundedWeight(call, weight);
  if (!recipe.format && recipe.hadamard == 0) return {rounded, nullptr};
  if (has) return {memory.data(), amax};
  const std::size_t size = weight->out * weight->in;
  if (memory.size() == 0) memory = DeviceArray<T>(size);
  has = true;
  if (NeedsAmax(recipe)) Check(cudaMemsetAsync(amax, 0, sizeof *amax, call.stream), "memset");
  return Prepare(recipe, operand, call, {weight->out, weight->in, along_rows}, rounded, amax,
                 memory.data());
}

template <class T>
Operand<T> DgradWeight(const LinearRecipe& recipe, const DeviceCall& call,
                       DeviceWeight<T>* weight) {
  if (SharesTranspose(recipe.fprop.b, recipe.dgrad.b)) {
    return WeightOperand(recipe.fprop.b, kFpropWeight, call, weight);
  }
  return WeightOperand(recipe.dgrad.b, kDgradWeight, call, weight);
}

// The place of alpha, made; null: 1.
template <class T>
const float* Alpha(const GemmRecipe& recipe, const DeviceCall& call, int which, const Operand<T>& a,
                   const Operand<T>& b) {
  if (!NeedsAmax(recipe.a) && !NeedsAmax(recipe.b)) return nullptr;
  WriteAlpha(recipe.a.format, a.amax, recipe.b.format, b.amax, call.alpha + which, call.stream);
  return call.alpha + which;
}

}  // namespace

template <class T>
void LinearForward(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens,
                   bool trains, const T* x, DeviceWeight<T>* weight, DeviceScratch<T>* scratch,
                   const float* c, float* y) {
  CheckWeight(recipe, weight);
  const Operand<T> w = WeightOperand(recipe.fprop.b, kFpropWeight, call, weight);
  const Place place{tokens, weight->in, false};
  const bool measured = trains && MeasuresBoth(recipe.fprop.a, recipe.wgrad.b);
  if (measured) MeasureBothOf(recipe.wgrad.b, call, place, x, kFpropInput, kWgradInput);
  const Operand<T> a = Prepare(recipe.fprop.a, kFpropInput, call, place, x, call.amax + kFpropInput,
                               scratch->a.data(), measured);
  GemmProblem<T> gemm{tokens, weight->out, weight->in, a.values, w.values};
  gemm.b_transposed = true;
  gemm.alpha = Alpha(recipe.fprop, call, 0, a, w);
  gemm.c = c;
  gemm.d = y;
  call.gemms->Run(gemm);
}

template <class T, class D>
void LinearBackward(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens,
                    const T* x, DeviceWeight<T>* weight, const T* dy, DeviceScratch<T>* scratch,
                    D* dx, float* dw) {
  CheckWeight(recipe, weight);
  const Place along{tokens, weight->out, false}, down{tokens, weight->out, true};
  const bool measured = MeasuresBoth(recipe.dgrad.a, recipe.wgrad.a);
  if (measured) MeasureBothOf(recipe.wgrad.a, call, along, dy, kDgradGrad, kWgradGrad);
  const Operand<T> grad = Prepare(recipe.dgrad.a, kDgradGrad, call, along, dy,
                                  call.amax + kDgradGrad, scratch->a.data(), measured);
  const Operand<T> w = DgradWeight(recipe, call, weight);
  GemmProblem<T, D> dgrad{tokens, weight->in, weight->out, grad.values, w.values};
  dgrad.alpha = Alpha(recipe.dgrad, call, 1, grad, w);
  dgrad.d = dx;
  call.gemms->Run(dgrad);

  Operand<T> grad_t = grad;
  if (!SharesTranspose(recipe.dgrad.a, recipe.wgrad.a)) {
    grad_t = Prepare(recipe.wgrad.a, kWgradGrad, call, down, dy, call.amax + kWgradGrad,
                     scratch->a.data(), measured);
  }
  const Operand<T> input = Prepare(recipe.wgrad.b, kWgradInput, call, {tokens, weight->in, true}, x,
                                   call.amax + kWgradInput, scratch->b.data(),
                                   MeasuresBoth(recipe.fprop.a, recipe.wgrad.b));
  GemmProblem<T> wgrad{weight->out, weight->in, tokens, grad_t.values, input.values};
  wgrad.a_transposed = true;
  wgrad.alpha = Alpha(recipe.wgrad, call, 2, grad_t, input);
  wgrad.c = wgrad.d = dw;
  call.gemms->Run(wgrad);
}

template void LinearForward(const LinearRecipe&, const DeviceCall&, std::size_t, bool, const float*,
                            DeviceWeight<float>*, DeviceScratch<float>*, const float*, float*);
template void LinearForward(const LinearRecipe&, const DeviceCall&, std::size_t, bool, const Bf16*,
                            DeviceWeight<Bf16>*, DeviceScratch<Bf16>*, const float*, float*);
template void LinearBackward(const LinearRecipe&, const DeviceCall&, std::size_t, const float*,
                             DeviceWeight<float>*, const float*, DeviceScratch<float>*, float*,
                             float*);
template void LinearBackward(const LinearRecipe&, const DeviceCall&, std::size_t, const Bf16*,
                             DeviceWeight<Bf16>*, const Bf16*, DeviceScratch<Bf16>*, float*,
                             float*);
template void LinearBackward(const LinearRecipe&, const DeviceCall&, std::size_t, const Bf16*,
                             DeviceWeight<Bf16>*, const Bf16*, DeviceScratch<Bf16>*, Bf16*, float*);

}  // namespace fp4lab::gpu
