#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/engine/linears.cuh"

namespace fp4lab::gpu {

template <class T>
DeviceLinears<T>::DeviceLinears(const TrainConfig& config, const float* parameters,
                                float* gradients, float* amax_histories, cudaStream_t stream)
    : plan_(config.model, config.recipe),
      pad_(static_cast<std::size_t>(config.model.moe.pad_tokens)),
      parameters_(parameters),
      gradients_(gradients),
      amax_histories_(amax_histories),
      stream_(stream),
      gemms_(stream) {
  for (std::size_t l = 0; l < plan_.Count(); ++l) {
    DeviceWeight<T>& w = weights_.emplace_back();
    w.w = Parameter(plan_.Weight(l));
    w.out = plan_.Weight(l).rows;
    w.in = plan_.Weight(l).cols;
  }
  UseRecipe(config.recipe);
  inputs_.resize(weights_.size());
  weight_amax_ = DeviceArray<std::uint32_t>(2 * weights_.size());
  amax_ = DeviceArray<std::uint32_t>(kLinearOperands * weights_.size());
  alpha_ = DeviceArray<float>(3 * weights_.size());
  for (std::size_t l = 0; l < weights_.size(); ++l) weights_[l].amax = weight_amax_.data() + 2 * l;
}

template <class T>
void DeviceLinears<T>::TakeMemory(std::size_t rows) {
  // The head does not count: its operands have no format.
  std::size_t widest = 0;
  for (std::size_t l = 0; l < plan_.Head(); ++l) {
    widest = std::max({widest, weights_[l].in, weights_[l].out});
  }
  const std::size_t most = RoundUp(rows, pad_);
  scratch_.a = DeviceArray<T>(most * widest);
  scratch_.b = DeviceArray<T>(most * widest);
}

template <class T>
void DeviceLinears<T>::UseRecipe(const Recipe& recipe) {
  plan_.UseRecipe(recipe);
  if (plan_.HistoryStride() == 0) return;
  const std::vector<DelayedScaling> delayed = plan_.Delayed();
  delayed_ = DeviceArray<DelayedScaling>(delayed.size());
  delayed_.CopyFrom(delayed, stream_);
  Check(cudaStreamSynchronize(stream_), "copy to the GPU");
}

template <class T>
void DeviceLinears<T>::AdvanceAmaxHistories() {
  gpu::AdvanceAmaxHistories(delayed_.data(), delayed_.size(), amax_histories_,
                            plan_.HistoryStride(), stream_);
}

template <class T>
void DeviceLinears<T>::ParametersChanged() {
  for (DeviceWeight<T>& w : weights_) w.Changed();
}

template <class T>
void DeviceLinears<T>::BeginPass(std::size_t rows, bool trains) {
  rows_ = rows;
  trains_ = trains;
  Check(cudaMemsetAsync(amax_.data(), 0, amax_.size() * sizeof(std::uint32_t), stream_), "memset");
}

template <class T>
DeviceCall DeviceLinears<T>::CallOf(const Pass& pass, std::size_t linear, std::size_t rows,
                                    OperandObserver* observer) {
  return {plan_.CallOf(pass, linear, amax_histories_, observer),
          amax_.data() + linear * kLinearOperands,
          alpha_.data() + linear * 3,
          stream_,
          &gemms_,
          rows != rows_};  // an expert's
}

template <class T>
AmaxPlaces DeviceLinears<T>::InputPlaces(const Pass& pass, std::size_t linear) const {
  return InputAmax<T>(plan_.RecipeOf(pass, linear), amax_.data() + linear * kLinearOperands, rows_,
                      weights_[linear].in, trains_);
}

template <class T>
AmaxPlaces DeviceLinears<T>::GradientPlaces(const Pass& pass, std::size_t linear) const {
  return GradientAmax<T>(plan_.RecipeOf(pass, linear), amax_.data() + linear * kLinearOperands,
                         rows_, weights_[linear].out);
}

template <class T>
void DeviceLinears<T>::Normalize(const Pass& pass, const float* x, const ParameterSlice& gain,
                                 float epsilon, float* inverse_rms, T* y, std::size_t linear) {
  RmsNorm(x, Parameter(gain), epsilon, rows_, gain.cols, y, inverse_rms, stream_,
          InputPlaces(pass, linear));
}

template <class T>
void DeviceLinears<T>::RunRows(const Pass& pass, std::size_t linear, std::size_t rows, T* x,
                               const float* add, float* y, const AmaxPlaces& measured, bool keeps) {
  OperandObserver observer;
  const DeviceCall call = CallOf(pass, linear, rows, &observer);
  inputs_[linear] = {x, LinearForward(plan_.RecipeOf(pass, linear), call, rows, trains_, measured,
                                      x, !keeps, &weights_[linear], &scratch_, add, y)};
}

template <class T>
template <class D>
void DeviceLinears<T>::RunBackwardRows(const Pass& pass, std::size_t linear, std::size_t rows,
                                       const T* dy, D* dx, const AmaxPlaces& measured) {
  OperandObserver observer;
  const DeviceCall call = CallOf(pass, linear, rows, &observer);
  LinearBackward(plan_.RecipeOf(pass, linear), call, rows, measured, inputs_[linear].x,
                 inputs_[linear].is_operand, &weights_[linear], dy, &scratch_, dx,
                 Gradient(plan_.Weight(linear)));
  InspectGradients(pass, linear, rows, dx);
}

template <class T>
template <class D>
void DeviceLinears<T>::InspectGradients(const Pass& pass, std::size_t linear, std::size_t rows,
                                        const D* dx) const {
  if (pass.inspector == nullptr) return;
  const ParameterSlice& slice = plan_.Weight(linear);
  Inspect(pass, plan_.Name(linear) + ".input.gradient", dx, rows, slice.cols);
  Inspect(pass, plan_.Name(linear) + ".weight.gradient", Gradient(slice), slice.rows, slice.cols);
}

template <class T>
void DeviceLinears<T>::RunInBinary32(std::size_t linear, const float* x, float* y) {
  const DeviceWeight<T>& w = weights_[linear];
  GemmProblem<float> product{rows_, w.out, w.in, x, w.w};
  product.b_transposed = true;
  product.d = y;
  gemms_.Run(product);
}

template <class T>
void DeviceLinears<T>::RunBackwardInBinary32(const Pass& pass, std::size_t linear, const float* x,
                                             const float* dy, float* dx) {
  const DeviceWeight<T>& w = weights_[linear];
  GemmProblem<float> dgrad{rows_, w.in, w.out, dy, w.w};
  dgrad.d = dx;
  gemms_.Run(dgrad);
  GemmProblem<float> wgrad{w.out, w.in, rows_, dy, x};
  wgrad.a_transposed = true;
  wgrad.c = wgrad.d = Gradient(plan_.Weight(linear));
  gemms_.Run(wgrad);
  InspectGradients(pass, linear, rows_, dx);
}

template class DeviceLinears<float>;
template class DeviceLinears<Bf16>;
template void DeviceLinears<float>::RunBackwardRows(const Pass&, std::size_t, std::size_t,
                                                    const float*, float*, const AmaxPlaces&);
template void DeviceLinears<Bf16>::RunBackwardRows(const Pass&, std::size_t, std::size_t,
                                                   const Bf16*, float*, const AmaxPlaces&);
template void DeviceLinears<Bf16>::RunBackwardRows(const Pass&, std::size_t, std::size_t,
                                                   const Bf16*, Bf16*, const AmaxPlaces&);

}  // namespace fp4lab::gpu
