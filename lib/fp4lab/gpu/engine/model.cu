#include <algorithm>
#include <type_traits>

#include "fp4lab/gpu/engine/model.cuh"
#include "fp4lab/nn/rope.h"

namespace fp4lab::gpu {
template <class T, class A>
DeviceModel<T, A>::DeviceModel(const TrainConfig& config, const float* parameters, float* gradients,
                               float* amax_histories, std::size_t max_sequences,
                               cudaStream_t stream)
    : config_(config.model),
      plan_(config.model, config.recipe),
      layout_(MakeLayout(config.model)),
      parameters_(parameters),
      gradients_(gradients),
      amax_histories_(amax_histories),
      stream_(stream),
      d_(static_cast<std::size_t>(config.model.d_model)),
      ffn_(static_cast<std::size_t>(config.model.ffn)),
      up_width_(BlockLinears(config.model)[kUp].out),
      qkv_width_(BlockLinears(config.model)[kQkv].out),
      vocabulary_(static_cast<std::size_t>(config.model.vocabulary)),
      norms_(2 * static_cast<std::size_t>(config.model.layers) + 1),
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
  const RopeTable rope = MakeRopeTable(static_cast<std::size_t>(config.model.sequence),
                                       HeadDim(config.model), config.model.rope_theta);
  cos_ = DeviceArray<float>(rope.cos.values.size());
  sin_ = DeviceArray<float>(rope.sin.values.size());
  cos_.CopyFrom(rope.cos.values, stream_);
  sin_.CopyFrom(rope.sin.values, stream_);
  TakeMemory(max_sequences * static_cast<std::size_t>(config.model.sequence));
  Check(cudaStreamSynchronize(stream_), "making the model");
}

template <class T, class A>
void DeviceModel<T, A>::UseRecipe(const Recipe& recipe) {
  plan_.UseRecipe(recipe);
  if (plan_.HistoryStride() == 0) return;
  const std::vector<DelayedScaling> delayed = plan_.Delayed();
  delayed_ = DeviceArray<DelayedScaling>(delayed.size());
  delayed_.CopyFrom(delayed, stream_);
  Check(cudaStreamSynchronize(stream_), "copy to the GPU");
}

template <class T, class A>
void DeviceModel<T, A>::AdvanceAmaxHistories() {
  gpu::AdvanceAmaxHistories(delayed_.data(), delayed_.size(), amax_histories_,
                            plan_.HistoryStride(), stream_);
}

template <class T, class A>
void DeviceModel<T, A>::TakeMemory(std::size_t rows) {
  rows_ = rows;
  const std::size_t statistics = ShapeOfAttention().StatisticsSize() / 2;
  const auto floats = [&](std::size_t cols) { return DeviceArray<float>(rows * cols); };
  const auto operand = [&](std::size_t cols) { return DeviceArray<T>(rows * cols); };
  blocks_.resize(static_cast<std::size_t>(config_.layers));
  for (Block& b : blocks_) {
    b.x = floats(d_);
    b.attention_norm = operand(d_);
    b.attention_inverse_rms = floats(1);
    b.qkv = DeviceArray<A>(rows * qkv_width_);
    b.attention = DeviceArray<A>(rows * d_);
    if constexpr (!std::is_same_v<T, A>) b.attention_rounded = operand(d_);
    b.statistics = DeviceArray<float>(statistics);
    b.mid = floats(d_);
    b.mlp_norm = operand(d_);
    b.mlp_inverse_rms = floats(1);
    b.up = floats(up_width_);
    b.activated = operand(ffn_);
  }
  // The head does not count: its operands have no format.
  const std::size_t widest = std::max({up_width_, qkv_width_, ffn_, d_});
  scratch_.a = operand(widest);
  scratch_.b = operand(widest);
  last_ = floats(d_);
  final_norm_ = operand(d_);
  final_inverse_rms_ = floats(1);
  logits_ = floats(vocabulary_);
  dlogits_ = operand(vocabulary_);
  qkv_ = floats(qkv_width_);
  d_residual_ = floats(d_);
  if constexpr (!std::is_same_v<T, float>) d_residual_rounded_ = operand(d_);
  d_narrow_ = floats(d_);
  d_wide_ = floats(ffn_);
  d_up_ = operand(up_width_);
  d_attention_ = DeviceArray<A>(rows * d_);
  if constexpr (std::is_same_v<A, float>) d_qkv_ = floats(qkv_width_);
  d_qkv_rounded_ = operand(qkv_width_);
  dots_ = DeviceArray<float>(statistics);
  gain_partials_ = DeviceArray<float>(norms_ * GainChunks(rows) * d_);
  embedding_partials_ = DeviceArray<float>((rows / kSegmentRows + vocabulary_) * d_);
}

template <class T, class A>
void DeviceModel<T, A>::ParametersChanged() {
  for (DeviceWeight<T>& w : weights_) w.Changed();
}

template <class T, class A>
AttentionShape DeviceModel<T, A>::ShapeOfAttention() const {
  const auto sequence = static_cast<std::size_t>(config_.sequence);
  return {rows_ / sequence, sequence, static_cast<std::size_t>(config_.heads), KvHeads(config_),
          HeadDim(config_)};
}

template <class T, class A>
RopeShape DeviceModel<T, A>::ShapeOfRope() const {
  const AttentionShape s = ShapeOfAttention();
  return {rows_, s.sequence, s.heads, s.kv_heads, s.head_dim};
}

// ---- Linears

template <class T, class A>
DeviceCall DeviceModel<T, A>::CallOf(const Pass& pass, std::size_t linear,
                                     OperandObserver* observer) {
  return {plan_.CallOf(pass, linear, amax_histories_, observer),
          amax_.data() + linear * kLinearOperands, alpha_.data() + linear * 3, stream_, &gemms_};
}

template <class T, class A>
AmaxPlaces DeviceModel<T, A>::InputPlaces(const Pass& pass, std::size_t linear) const {
  return InputAmax<T>(plan_.RecipeOf(pass, linear), amax_.data() + linear * kLinearOperands, rows_,
                      weights_[linear].in, trains_);
}

template <class T, class A>
AmaxPlaces DeviceModel<T, A>::GradientPlaces(const Pass& pass, std::size_t linear) const {
  return GradientAmax<T>(plan_.RecipeOf(pass, linear), amax_.data() + linear * kLinearOperands,
                         rows_, weights_[linear].out);
}

template <class T, class A>
void DeviceModel<T, A>::RunLinear(const Pass& pass, std::size_t linear, T* x, const float* add,
                                  float* y, const AmaxPlaces& measured, bool keeps) {
  OperandObserver observer;
  const DeviceCall call = CallOf(pass, linear, &observer);
  inputs_[linear] = {x, LinearForward(plan_.RecipeOf(pass, linear), call, rows_, trains_, measured,
                                      x, !keeps, &weights_[linear], &scratch_, add, y)};
}

// ---- Forward

template <class T, class A>
void DeviceModel<T, A>::BeginPass(const DeviceBatch& batch) {
  rows_ = batch.rows;
  trains_ = batch.trains;
  Check(cudaMemsetAsync(amax_.data(), 0, amax_.size() * sizeof(std::uint32_t), stream_), "memset");
}

template <class T, class A>
T* DeviceModel<T, A>::AttentionOperand(Block& b) {
  if constexpr (std::is_same_v<T, A>) {
    return b.attention.data();
  } else {
    return b.attention_rounded.data();
  }
}

// RMSNorm of x as y, the input of `linear`, with the amaxes that the linear needs.
template <class T, class A>
void DeviceModel<T, A>::Normalize(const Pass& pass, const float* x, const ParameterSlice& gain,
                                  float* inverse_rms, T* y, std::size_t linear) {
  RmsNorm(x, Parameter(gain), config_.norm_epsilon, rows_, d_, y, inverse_rms, stream_,
          InputPlaces(pass, linear));
}

template <class T, class A>
void DeviceModel<T, A>::ForwardBlock(const Pass& pass, int block, float* out) {
  Block& b = blocks_[static_cast<std::size_t>(block)];
  const auto i = static_cast<std::size_t>(block);
  const std::size_t qkv = plan_.Index(block, kQkv), up = plan_.Index(block, kUp),
                    down = plan_.Index(block, kDown);
  Normalize(pass, b.x.data(), layout_.attention_gains[i], b.attention_inverse_rms.data(),
            b.attention_norm.data(), qkv);
  InspectIn(pass, block, "attention_norm.output", b.attention_norm.data(), d_);
  RunLinear(pass, qkv, b.attention_norm.data(), nullptr, qkv_.data(), InputPlaces(pass, qkv));
  InspectIn(pass, block, "attention.qkv.output", qkv_.data(), qkv_width_);
  Rope(ShapeOfRope(), cos_.data(), sin_.data(), qkv_.data(), b.qkv.data(), stream_);
  Attention(ShapeOfAttention(), b.qkv.data(), b.attention.data(), b.statistics.data(), stream_);
  if constexpr (!std::is_same_v<T, A>) {
    RoundTo(b.attention.data(), rows_ * d_, b.attention_rounded.data(), stream_);
  }
  InspectIn(pass, block, "attention.output", b.attention.data(), d_);
  RunLinear(pass, plan_.Index(block, kOut), AttentionOperand(b), b.x.data(), b.mid.data(), {},
            std::is_same_v<T, A>);
  InspectIn(pass, block, "attention.out.output", b.mid.data(), d_);

  Normalize(pass, b.mid.data(), layout_.mlp_gains[i], b.mlp_inverse_rms.data(), b.mlp_norm.data(),
            up);
  InspectIn(pass, block, "mlp_norm.output", b.mlp_norm.data(), d_);
  RunLinear(pass, up, b.mlp_norm.data(), nullptr, b.up.data(), InputPlaces(pass, up));
  InspectIn(pass, block, "mlp.up.output", b.up.data(), up_width_);
  const Activation activation = config_.activation;
  const AmaxPlaces amax = MeasuresActivation(activation) ? InputPlaces(pass, down) : AmaxPlaces{};
  Activate(activation, b.up.data(), rows_, ffn_, b.activated.data(), stream_, amax);
  InspectIn(pass, block, "mlp.activation.output", b.activated.data(), ffn_);
  RunLinear(pass, down, b.activated.data(), b.mid.data(), out, amax);
  InspectIn(pass, block, "mlp.down.output", out, d_);
}

template <class T, class A>
void DeviceModel<T, A>::Forward(const Pass& pass, const DeviceBatch& batch) {
  BeginPass(batch);
  Embedding(Parameter(layout_.embedding), batch.inputs, rows_, d_, blocks_[0].x.data(), stream_);
  InspectIn(pass, -1, "embedding.output", blocks_[0].x.data(), d_);
  for (int b = 0; b < config_.layers; ++b) {
    const bool at_end = b + 1 == config_.layers;
    ForwardBlock(pass, b,
                 at_end ? last_.data() : blocks_[static_cast<std::size_t>(b) + 1].x.data());
  }
  Normalize(pass, last_.data(), layout_.final_gain, final_inverse_rms_.data(), final_norm_.data(),
            plan_.Head());
  InspectIn(pass, -1, "final_norm.output", final_norm_.data(), d_);
  RunLinear(pass, plan_.Head(), final_norm_.data(), nullptr, logits_.data(),
            InputPlaces(pass, plan_.Head()));
  InspectIn(pass, -1, "head.output", logits_.data(), vocabulary_);
}

template <class T, class A>
void DeviceModel<T, A>::Losses(const DeviceBatch& batch, double* row_loss) {
  CrossEntropy(logits_.data(), batch.targets, rows_, vocabulary_, row_loss, stream_);
}

template class DeviceModel<float, float>;
template class DeviceModel<Bf16, float>;
template class DeviceModel<Bf16, Bf16>;

}  // namespace fp4lab::gpu
