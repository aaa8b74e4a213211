#include <type_traits>
#include <vector>

#include "fp4lab/cuda/launch.h"
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

// x holds rounded values. Nothing is copied that can be used as it is.
template <class T>
Operand<T> Prepare(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                   const Place& place, const T* x, std::uint32_t* amax, T* out) {
  if (!recipe.format && recipe.hadamard == 0) return {x, nullptr};
  QuantizeJob job{place.rows,      place.cols,  place.along_rows, recipe.format,
                  recipe.rounding, call.random, recipe.hadamard};
  job.random.tensor += static_cast<std::uint32_t>(operand);
  if (NeedsAmax(recipe)) MeasureAmax(job, x, amax, call.stream);
  QuantizeToValues(job, x, amax, out, call.stream);
  if (call.observer != nullptr && recipe.format) {
    Observe(recipe, operand, call, place, x, out, amax);
  }
  return {out, amax};
}

// Two operands of one tensor (tokens, width): along its rows, and down its columns.
struct OperandPair {
  const OperandRecipe &row, &column;
  LinearOperand row_operand, column_operand;
  std::size_t tokens, width;
};

cuda::QuantizedSide SideOf(const OperandRecipe& recipe, LinearOperand operand,
                           const DeviceCall& call, Bf16* values) {
  cuda::QuantizedSide side;
  side.values = reinterpret_cast<std::uint16_t*>(values);
  side.amax = reinterpret_cast<const float*>(call.amax + operand);
  if (recipe.rounding == Rounding::kStochastic) side.random_bits = cuda::RandomBits::kCounter;
  side.random = call.random;
  side.random.tensor += static_cast<std::uint32_t>(operand);
  side.hadamard = recipe.hadamard;
  side.sign_mask = recipe.hadamard == 32 ? kTeSignMask32 : kTeSignMask16;
  return side;
}

// Both in one pass over the tensor, where cuda/quantize.h has a kernel of tiles for them; false
// where it has none, and nothing is done.
bool PrepareBoth(const OperandPair& pair, const DeviceCall& call, const Bf16* x, Bf16* row_values,
                 Bf16* column_values) {
  const auto& [row, column, row_operand, column_operand, tokens, width] = pair;
  if (call.observer != nullptr || !row.format || row.format != column.format) return false;
  const cuda::DeviceMatrix matrix{x, cuda::ElementType::kBf16, tokens, width};
  const cuda::QuantizedSide along = SideOf(row, row_operand, call, row_values);
  const cuda::QuantizedSide down = SideOf(column, column_operand, call, column_values);
  if (!cuda::FitsTiles(matrix, *row.format, &along, &down)) return false;
  if (NeedsAmax(row)) {
    float* const amax = reinterpret_cast<float*>(call.amax);
    if (down.hadamard == 0) {
      cuda::Amax(matrix, amax + row_operand, false, call.stream);
      cuda::Amax(matrix, amax + column_operand, false, call.stream);
    } else {
      cuda::AmaxWithHadamard(matrix, down.hadamard, down.sign_mask, amax + row_operand,
                             amax + column_operand, call.stream);
    }
  }
  cuda::Quantize(matrix, *row.format, &along, &down, call.stream);
  return true;
}

bool PrepareBoth(const OperandPair&, const DeviceCall&, const float*, float*, float*) {
  return false;
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
                   bool trains, DeviceInput<T>* input, DeviceWeight<T>* weight,
                   DeviceScratch<T>* scratch, const float* c, float* y) {
  CheckWeight(recipe, weight);
  const Operand<T> w = WeightOperand(recipe.fprop.b, kFpropWeight, call, weight);
  Operand<T> a{scratch->a.data(), call.amax + kFpropInput};
  const OperandPair pair{recipe.fprop.a, recipe.wgrad.b, kFpropInput,
                         kWgradInput,    tokens,         weight->in};
  input->has_columns = false;
  if (trains && recipe.wgrad.b.format && recipe.fprop.a.format == recipe.wgrad.b.format) {
    if (input->columns.size() < tokens * weight->in) {
      input->columns = DeviceArray<T>(tokens * weight->in);
    }
    input->has_columns =
        PrepareBoth(pair, call, input->x, scratch->a.data(), input->columns.data());
  }
  if (!input->has_columns) {
    a = Prepare(recipe.fprop.a, kFpropInput, call, {tokens, weight->in, false}, input->x,
                call.amax + kFpropInput, scratch->a.data());
  }
  GemmProblem<T> gemm{tokens, weight->out, weight->in, a.values, w.values};
  gemm.b_transposed = true;
  gemm.alpha = Alpha(recipe.fprop, call, 0, a, w);
  gemm.c = c;
  gemm.d = y;
  call.gemms->Run(gemm);
}

template <class T>
void LinearBackward(const LinearRecipe& recipe, const DeviceCall& call, std::size_t tokens,
                    const DeviceInput<T>& input, DeviceWeight<T>* weight, const T* dy,
                    DeviceScratch<T>* scratch, float* dx, float* dw) {
  CheckWeight(recipe, weight);
  const std::size_t out = weight->out, in = weight->in;
  T *const first = scratch->a.data(), *const second = scratch->b.data();
  Operand<T> grad{first, call.amax + kDgradGrad}, grad_t{second, call.amax + kWgradGrad};
  const OperandPair pair{recipe.dgrad.a, recipe.wgrad.a, kDgradGrad, kWgradGrad, tokens, out};
  const bool has_both = PrepareBoth(pair, call, dy, first, second);
  if (!has_both) {
    grad = Prepare(recipe.dgrad.a, kDgradGrad, call, {tokens, out, false}, dy,
                   call.amax + kDgradGrad, first);
  }
  const Operand<T> w = DgradWeight(recipe, call, weight);
  GemmProblem<T> dgrad{tokens, in, out, grad.values, w.values};
  dgrad.alpha = Alpha(recipe.dgrad, call, 1, grad, w);
  dgrad.d = dx;
  call.gemms->Run(dgrad);

  const bool shares = SharesTranspose(recipe.dgrad.a, recipe.wgrad.a);
  if (!has_both) {
    grad_t = shares ? grad
                    : Prepare(recipe.wgrad.a, kWgradGrad, call, {tokens, out, true}, dy,
                              call.amax + kWgradGrad, second);
  }
  Operand<T> x{input.columns.data(), call.amax + kWgradInput};
  if (!input.has_columns) {  // `first` is free again, unless wgrad takes it too
    x = Prepare(recipe.wgrad.b, kWgradInput, call, {tokens, in, true}, input.x,
                call.amax + kWgradInput, grad_t.values == first ? second : first);
  }
  GemmProblem<T> wgrad{out, in, tokens, grad_t.values, x.values};
  wgrad.a_transposed = true;
  wgrad.alpha = Alpha(recipe.wgrad, call, 2, grad_t, x);
  wgrad.c = wgrad.d = dw;
  call.gemms->Run(wgrad);
}

template void LinearForward(const LinearRecipe&, const DeviceCall&, std::size_t, bool,
                            DeviceInput<float>*, DeviceWeight<float>*, DeviceScratch<float>*,
                            const float*, float*);
template void LinearForward(const LinearRecipe&, const DeviceCall&, std::size_t, bool,
                            DeviceInput<Bf16>*, DeviceWeight<Bf16>*, DeviceScratch<Bf16>*,
                            const float*, float*);
template void LinearBackward(const LinearRecipe&, const DeviceCall&, std::size_t,
                             const DeviceInput<float>&, DeviceWeight<float>*, const float*,
                             DeviceScratch<float>*, float*, float*);
template void LinearBackward(const LinearRecipe&, const DeviceCall&, std::size_t,
                             const DeviceInput<Bf16>&, DeviceWeight<Bf16>*, const Bf16*,
                             DeviceScratch<Bf16>*, float*, float*);

}  // namespace fp4lab::gpu
