#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/engine/linears.cuh"
#include "fp4lab/gpu/engine/step_parts.cuh"

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
std::size_t DeviceLinears<T>::Fork(const Pass& pass) {
  // In all, with Stream(): of 1, 2, 4 and 8 the fastest on an H200, 8 experts of 512 x 1024.
  constexpr std::size_t kLanes = 2;
  if (pass.inspector != nullptr || pass.observer != nullptr || device_step_clock != nullptr) {
    return 1;
  }
  while (lanes_.size() + 1 < kLanes) gemms_.AddLane(lanes_.emplace_back().stream.get());
  forked_.Record(stream_);
  for (const Lane& lane : lanes_) forked_.MakeWait(lane.stream.get());
  return kLanes;
}

template <class T>
void DeviceLinears<T>::Join(std::size_t lanes) {
  for (std::size_t i = 1; i < lanes; ++i) {
    const Lane& lane = lanes_[i - 1];
    lane.done.Record(lane.stream.get());
    lane.done.MakeWait(stream_);
  }
}

template <class T>
DeviceScratch<T>& DeviceLinears<T>::ScratchOf(std::size_t linear, const RowsOnLane& on) {
  if (on.lane == 0) return scratch_;
  DeviceScratch<T>& scratch = lanes_[on.lane - 1].scratch;
  const DeviceWeight<T>& w = weights_[linear];
  if (scratch.a.size() >= on.rows * std::max(w.in, w.out)) return scratch;
  // An expert's rows change from step to step: room for some more.
  const std::size_t step = DivideUp(rows_, std::size_t{8});
  const std::size_t size = RoundUp(on.rows, step) * std::max(w.in, w.out);
  scratch.a = DeviceArray<T>(size);
  scratch.b = DeviceArray<T>(size);
  return scratch;
}

template <class T>
DeviceCall DeviceLinears<T>::CallOf(const Pass& pass, std::size_t linear, const RowsOnLane& on,
                                    OperandObserver* observer) {
  return {plan_.CallOf(pass, linear, amax_histories_, observer),
          amax_.data() + linear * kLinearOperands,
          alpha_.data() + linear * 3,
          StreamOf(on.lane),
          &gemms_,
          on.lane,
          on.rows != rows_};  // an expert's
}

template <class T>
AmaxPlaces DeviceLinears<T>::InputPlaces(const Pass& pass, std::size_t linear,
                                         std::size_t rows) const {
  return InputAmax<T>(plan_.RecipeOf(pass, linear), amax_.data() + linear * kLinearOperands, rows,
                      weights_[linear].in, trains_);
}

template <class T>
AmaxPlaces DeviceLinears<T>::GradientPlaces(const Pass& pass, std::size_t linear,
                                            std::size_t rows) const {
  return GradientAmax<T>(plan_.RecipeOf(pass, linear), amax_.data() + linear * kLinearOperands,
                         rows, weights_[linear].out);
}

template <class T>
void DeviceLinears<T>::Normalize(const Pass& pass, const float* x, const ParameterSlice& gain,
                                 float epsilon, float* inverse_rms, T* y, std::size_t linear) {
  RmsNorm(x, Parameter(gain), epsilon, rows_, gain.cols, y, inverse_rms, stream_,
          InputPlaces(pass, linear));
}

template <class T>
void DeviceLinears<T>::RunRows(const Pass& pass, std::size_t linear, const RowsOnLane& on, T* x,
                               const float* add, float* y, const AmaxPlaces& measured, bool keeps) {
  OperandObserver observer;
  const DeviceCall call = CallOf(pass, linear, on, &observer);
  inputs_[linear] = {
      x, LinearForward(plan_.RecipeOf(pass, linear), call, on.rows, trains_, measured, x, !keeps,
                       &weights_[linear], &ScratchOf(linear, on), add, y)};
}

template <class T>
template <class D>
void DeviceLinears<T>::RunBackwardRows(const Pass& pass, std::size_t linear, const RowsOnLane& on,
                                       const T* dy, D* dx, const AmaxPlaces& measured) {
  OperandObserver observer;
  const DeviceCall call = CallOf(pass, linear, on, &observer);
  LinearBackward(plan_.RecipeOf(pass, linear), call, on.rows, measured, inputs_[linear].x,
                 inputs_[linear].holds, &weights_[linear], dy, &ScratchOf(linear, on), dx,
                 Gradient(plan_.Weight(linear)));
  InspectGradients(pass, linear, on.rows, dx);
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

template class DeviceLinears<float>;
template class DeviceLinears<Bf16>;
template void DeviceLinears<float>::InspectGradients(const Pass&, std::size_t, std::size_t,
                                                     const float*) const;
template void DeviceLinears<Bf16>::InspectGradients(const Pass&, std::size_t, std::size_t,
                                                    const float*) const;
template void DeviceLinears<float>::RunBackwardRows(const Pass&, std::size_t, const RowsOnLane&,
                                                    const float*, float*, const AmaxPlaces&);
template void DeviceLinears<Bf16>::RunBackwardRows(const Pass&, std::size_t, const RowsOnLane&,
                                                   const Bf16*, float*, const AmaxPlaces&);
template void DeviceLinears<Bf16>::RunBackwardRows(const Pass&, std::size_t, const RowsOnLane&,
                                                   const Bf16*, Bf16*, const AmaxPlaces&);

}  // namespace fp4lab::gpu
