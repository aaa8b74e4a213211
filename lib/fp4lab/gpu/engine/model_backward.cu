#include <type_traits>

#include "fp4lab/gpu/engine/model.cuh"

namespace fp4lab::gpu {

template <class T, class A>
template <class D>
void DeviceModel<T, A>::RunLinearBackward(const Pass& pass, std::size_t linear, const T* dy, D* dx,
                                          const AmaxPlaces& measured) {
  OperandObserver observer;
  const DeviceCall call = CallOf(pass, linear, &observer);
  const ParameterSlice& slice = plan_.Weight(linear);
  LinearBackward(plan_.RecipeOf(pass, linear), call, rows_, measured, inputs_[linear].x,
                 inputs_[linear].is_operand, &weights_[linear], dy, &scratch_, dx, Gradient(slice));
  if (pass.inspector == nullptr) return;
  Inspect(pass, plan_.Name(linear) + ".input.gradient", dx, rows_, slice.cols);
  Inspect(pass, plan_.Name(linear) + ".weight.gradient", Gradient(slice), slice.rows, slice.cols);
}

template <class T, class A>
const T* DeviceModel<T, A>::ResidualGradient() const {
  if constexpr (std::is_same_v<T, float>) {
    return d_residual_.data();
  } else {
    return d_residual_rounded_.data();
  }
}

// RMSNorm backward of d_narrow_: d_residual_ is overwritten or, if `accumulate`, added to, and
// rounded into d_residual_rounded_.
template <class T, class A>
void DeviceModel<T, A>::BackwardNorm(const float* x, const ParameterSlice& gain,
                                     const float* inverse_rms, bool accumulate, std::size_t norm,
                                     const AmaxPlaces& amax) {
  RmsNormBackward(x, Parameter(gain), inverse_rms, d_narrow_.data(), accumulate, rows_, d_,
                  d_residual_.data(), d_residual_rounded_.data(),
                  gain_partials_.data() + norm * GainChunks(rows_) * d_, stream_, amax);
}

template <class T, class A>
void DeviceModel<T, A>::BackwardMlp(const Pass& pass, int block) {
  Block& b = blocks_[static_cast<std::size_t>(block)];
  const auto i = static_cast<std::size_t>(block);
  const std::size_t out = plan_.Index(block, kOut), up = plan_.Index(block, kUp),
                    down = plan_.Index(block, kDown);
  RunLinearBackward(pass, down, ResidualGradient(), d_wide_.data(), GradientPlaces(pass, down));
  const Activation activation = config_.activation;
  const AmaxPlaces amax = MeasuresActivation(activation) ? GradientPlaces(pass, up) : AmaxPlaces{};
  ActivateBackward(activation, b.up.data(), d_wide_.data(), rows_, ffn_, d_up_.data(), stream_,
                   amax);
  InspectIn(pass, block, "mlp.up.output.gradient", d_up_.data(), up_width_);
  RunLinearBackward(pass, up, d_up_.data(), d_narrow_.data(), amax);
  BackwardNorm(b.mid.data(), layout_.mlp_gains[i], b.mlp_inverse_rms.data(), true, 2 * i + 1,
               GradientPlaces(pass, out));
  InspectIn(pass, block, "mlp_norm.input.gradient", d_residual_.data(), d_);
}

template <class T, class A>
void DeviceModel<T, A>::BackwardAttention(const Pass& pass, int block) {
  Block& b = blocks_[static_cast<std::size_t>(block)];
  const auto i = static_cast<std::size_t>(block);
  const std::size_t out = plan_.Index(block, kOut);
  RunLinearBackward(pass, out, ResidualGradient(), d_attention_.data(), GradientPlaces(pass, out));
  if constexpr (std::is_same_v<A, float>) {
    AttentionBackward(ShapeOfAttention(), b.qkv.data(), b.attention.data(), b.statistics.data(),
                      d_attention_.data(), dots_.data(), d_qkv_.data(), stream_);
    RopeBackward(ShapeOfRope(), cos_.data(), sin_.data(), d_qkv_.data(), d_qkv_rounded_.data(),
                 stream_);
  } else {
    AttentionBackward(ShapeOfAttention(), b.qkv.data(), b.attention.data(), b.statistics.data(),
                      d_attention_.data(), cos_.data(), sin_.data(), dots_.data(),
                      d_qkv_rounded_.data(), stream_);
  }
  InspectIn(pass, block, "attention.qkv.output.gradient", d_qkv_rounded_.data(), qkv_width_);
  RunLinearBackward(pass, plan_.Index(block, kQkv), d_qkv_rounded_.data(), d_narrow_.data());
  BackwardNorm(b.x.data(), layout_.attention_gains[i], b.attention_inverse_rms.data(), true, 2 * i,
               block > 0 ? GradientPlaces(pass, plan_.Index(block - 1, kDown)) : AmaxPlaces{});
  InspectIn(pass, block, "attention_norm.input.gradient", d_residual_.data(), d_);
}

template <class T, class A>
void DeviceModel<T, A>::Backward(const Pass& pass, const DeviceBatch& batch, float loss_scale,
                                 double* row_loss) {
  CrossEntropyGradient(logits_.data(), batch.targets, loss_scale, rows_, vocabulary_, row_loss,
                       dlogits_.data(), stream_);
  InspectIn(pass, -1, "head.output.gradient", dlogits_.data(), vocabulary_);
  RunLinearBackward(pass, plan_.Head(), dlogits_.data(), d_narrow_.data());
  BackwardNorm(last_.data(), layout_.final_gain, final_inverse_rms_.data(), false, norms_ - 1,
               GradientPlaces(pass, plan_.Head() - kLinearsPerBlock + kDown));
  InspectIn(pass, -1, "final_norm.input.gradient", d_residual_.data(), d_);
  for (int b = config_.layers - 1; b >= 0; --b) {
    BackwardMlp(pass, b);
    BackwardAttention(pass, b);
  }
  SumGains(gain_partials_.data(), norms_, GainChunks(rows_), d_, gradients_ + layout_.matrices,
           stream_);
  EmbeddingBackward(batch.segments, d_residual_.data(), d_, embedding_partials_.data(),
                    Gradient(layout_.embedding), stream_);
  Inspect(pass, "embedding.weight.gradient", Gradient(layout_.embedding), vocabulary_, d_);
}

template void DeviceModel<float, float>::Backward(const Pass&, const DeviceBatch&, float, double*);
template void DeviceModel<Bf16, float>::Backward(const Pass&, const DeviceBatch&, float, double*);
template void DeviceModel<Bf16, Bf16>::Backward(const Pass&, const DeviceBatch&, float, double*);

}  // namespace fp4lab::gpu
