#include <algorithm>
#include <type_traits>

#include "fp4lab/base/error.h"
#include "fp4lab/gpu/engine/model.cuh"
#include "fp4lab/gpu/parts/device_parts.cuh"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab::gpu {

template <class T>
DeviceModel<T>::DeviceModel(const TrainConfig& config, bool tensor_cores, const float* parameters,
                            float* gradients, float* amax_histories, std::size_t max_sequences,
                            cudaStream_t stream)
    : config_(config.model),
      layout_(MakeLayout(config.model)),
      gradients_(gradients),
      stream_(stream),
      d_(static_cast<std::size_t>(config.model.d_model)),
      vocabulary_(static_cast<std::size_t>(config.model.vocabulary)),
      logit_multiplier_(LogitMultiplier(config.model)),
      norms_(layout_.gains.size() + 1),
      widest_gain_(0),
      linears_(config, parameters, gradients, amax_histories, stream) {
  std::vector<GainPlace> places;
  const auto place = [&](const ParameterSlice& gain) {
    places.push_back({gain.offset, static_cast<std::uint32_t>(gain.cols)});
    widest_gain_ = std::max(widest_gain_, gain.cols);
  };
  for (const ParameterSlice& gain : layout_.gains) place(gain);
  place(layout_.final_gain);
  gain_places_ = DeviceArray<GainPlace>(places.size());
  gain_places_.CopyFrom(places, stream_);
  for (const Part* part : PartsOf(config.model)) {
    parts_.push_back(
        MakeDevicePart<T>(std::string(part->name), config.model, tensor_cores, stream));
  }
  TakeMemory(max_sequences * static_cast<std::size_t>(config.model.sequence));
  Check(cudaStreamSynchronize(stream_), "making the model");
}

template <class T>
void DeviceModel<T>::TakeMemory(std::size_t rows) {
  rows_ = rows;
  const auto floats = [&](std::size_t cols) { return DeviceArray<float>(rows * cols); };
  const auto operand = [&](std::size_t cols) { return DeviceArray<T>(rows * cols); };
  for (std::size_t p = 0; p < layout_.parts.size(); ++p) x_.push_back(floats(d_));
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    std::vector<bool> has(static_cast<std::size_t>(config_.layers));
    for (const PlacedPart& placed : layout_.parts) {
      if (placed.index == p) has[static_cast<std::size_t>(placed.block)] = true;
    }
    parts_[p]->TakeMemory(has, rows);
  }
  linears_.TakeMemory(rows);
  last_ = floats(d_);
  final_norm_ = operand(d_);
  final_inverse_rms_ = floats(1);
  logits_ = floats(vocabulary_);
  dlogits_ = operand(vocabulary_);
  d_residual_ = floats(d_);
  if constexpr (!std::is_same_v<T, float>) d_residual_rounded_ = operand(d_);
  d_narrow_ = floats(d_);
  gain_partials_ = DeviceArray<float>(norms_ * GainStride());
  embedding_partials_ = DeviceArray<float>((rows / kSegmentRows + vocabulary_) * d_);
}

template <class T>
DevicePartUse<T> DeviceModel<T>::UseOf(const Pass& pass, std::size_t placed) {
  const PlacedPart& part = layout_.parts[placed];
  return {.pass = pass,
          .block = static_cast<std::size_t>(part.block),
          .linears = &linears_,
          .first_linear = part.first_linear,
          .gains = layout_.GainsOf(part),
          .balance = part.balance ? &layout_.balances[*part.balance] : nullptr};
}

template <class T>
AmaxPlaces DeviceModel<T>::PlacesBefore(const Pass& pass, std::size_t placed) const {
  if (placed == 0) return {};
  const std::optional<std::size_t> linear = PartAt(placed - 1).ResidualLinear();
  if (!linear) return {};
  return linears_.GradientPlaces(pass, layout_.parts[placed - 1].first_linear + *linear);
}

template <class T>
void DeviceModel<T>::Forward(const Pass& pass, const DeviceBatch& batch) {
  rows_ = batch.rows;
  linears_.BeginPass(batch.rows, batch.trains);
  Embedding(linears_.Parameter(layout_.embedding), batch.inputs, rows_, d_, x_[0].data(), stream_);
  linears_.InspectIn(pass, -1, "embedding.output", x_[0].data(), d_);
  for (std::size_t p = 0; p < x_.size(); ++p) {
    const DeviceArray<float>& out = p + 1 < x_.size() ? x_[p + 1] : last_;
    PartAt(p).Forward(UseOf(pass, p), x_[p].data(), out.data());
  }
  const std::size_t head = linears_.Plan().Head();
  linears_.Normalize(pass, last_.data(), layout_.final_gain, config_.norm_epsilon,
                     final_inverse_rms_.data(), final_norm_.data(), head);
  linears_.InspectIn(pass, -1, "final_norm.output", final_norm_.data(), d_);
  linears_.Run(pass, head, final_norm_.data(), nullptr, logits_.data(),
               linears_.InputPlaces(pass, head));
  if (logit_multiplier_ != 1.0f) {
    MultiplyLogits(logit_multiplier_, rows_ * vocabulary_, logits_.data(), stream_);
  }
  if (config_.logit_soft_cap > 0.0f) {
    SoftCap(config_.logit_soft_cap, rows_ * vocabulary_, logits_.data(), stream_);
  }
  linears_.InspectIn(pass, -1, "head.output", logits_.data(), vocabulary_);
}

template <class T>
void DeviceModel<T>::Losses(const DeviceBatch& batch, double* row_loss) {
  CrossEntropy(logits_.data(), batch.targets, rows_, vocabulary_, row_loss, stream_);
}

template <class T>
void DeviceModel<T>::Backward(const Pass& pass, const DeviceBatch& batch, float loss_scale,
                              double* row_loss, const DeviceTeacherLoss& teacher) {
  CrossEntropyGradient(logits_.data(), batch.targets, loss_scale,
                       {config_.logit_soft_cap, config_.z_loss}, rows_, vocabulary_, row_loss,
                       dlogits_.data(), stream_, logit_multiplier_, teacher);
  linears_.InspectIn(pass, -1, "head.output.gradient", dlogits_.data(), vocabulary_);
  linears_.RunBackward(pass, linears_.Plan().Head(), dlogits_.data(), d_narrow_.data());
  RmsNormBackward(last_.data(), linears_.Parameter(layout_.final_gain), final_inverse_rms_.data(),
                  d_narrow_.data(), false, rows_, d_, d_residual_.data(),
                  d_residual_rounded_.data(), GainPartials(norms_ - 1), stream_,
                  PlacesBefore(pass, x_.size()));
  linears_.InspectIn(pass, -1, "final_norm.input.gradient", d_residual_.data(), d_);
  for (std::size_t p = x_.size(); p-- > 0;) {
    PartAt(p).Backward(UseOf(pass, p), x_[p].data(),
                       {d_residual_.data(), d_residual_rounded_.data(), d_narrow_.data(),
                        GainPartials(layout_.parts[p].first_gain), GainStride(), loss_scale,
                        PlacesBefore(pass, p)});
  }
  SumGains(gain_partials_.data(), GainStride(), norms_, GainChunks(rows_), gain_places_.data(),
           widest_gain_, gradients_, stream_);
  float* const d_embedding = linears_.Gradient(layout_.embedding);
  EmbeddingBackward(batch.segments, d_residual_.data(), d_, embedding_partials_.data(), d_embedding,
                    stream_);
  linears_.Inspect(pass, "embedding.weight.gradient", d_embedding, vocabulary_, d_);
}

template class DeviceModel<float>;
template class DeviceModel<Bf16>;

}  // namespace fp4lab::gpu
