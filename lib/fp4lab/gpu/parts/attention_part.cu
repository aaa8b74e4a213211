// train/parts/attention.cc on the device. A: the type of attention's operands.
#include <type_traits>
#include <vector>

#include "fp4lab/gpu/attention/attention.cuh"
#include "fp4lab/gpu/engine/step_parts.cuh"
#include "fp4lab/gpu/parts/device_part.cuh"
#include "fp4lab/gpu/parts/device_rope.cuh"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab::gpu {
namespace {

enum LinearIndex { kQkv, kOut };
enum GainIndex { kNormGain, kQueryGain, kKeyGain };

template <class T, class A>
class AttentionPart final : public DevicePart<T> {
 public:
  AttentionPart(const ModelConfig& config, cudaStream_t stream)
      : config_(config),
        stream_(stream),
        d_(static_cast<std::size_t>(config.d_model)),
        query_width_(QueryWidth(config)),
        qkv_width_(query_width_ + 2 * KvWidth(config)),
        rope_(config, HeadDim(config), stream) {}

  void TakeMemory(const std::vector<bool>& has, std::size_t rows) override {
    const std::size_t statistics = ShapeOf(rows).StatisticsSize() / 2;
    const auto operand = [&](std::size_t cols) { return DeviceArray<T>(rows * cols); };
    blocks_.resize(has.size());
    for (std::size_t i = 0; i < has.size(); ++i) {
      if (!has[i]) continue;
      Block& b = blocks_[i];
      b.norm = operand(d_);
      b.inverse_rms = DeviceArray<float>(rows);
      b.qkv = DeviceArray<A>(rows * qkv_width_);
      b.attention = DeviceArray<A>(rows * query_width_);
      if constexpr (!std::is_same_v<T, A>) b.rounded = operand(query_width_);
      b.statistics = DeviceArray<float>(statistics);
      if (!config_.qk_norm) continue;
      b.projected = DeviceArray<float>(rows * qkv_width_);
      b.head_inverse_rms = DeviceArray<float>(rows * NormedHeads());
    }
    qkv_ = DeviceArray<float>(rows * qkv_width_);
    d_attention_ = DeviceArray<A>(rows * query_width_);
    if constexpr (std::is_same_v<A, float>) d_qkv_ = DeviceArray<float>(rows * qkv_width_);
    d_qkv_rounded_ = operand(qkv_width_);
    dots_ = DeviceArray<float>(statistics);
  }

  std::optional<std::size_t> ResidualLinear() const override { return kOut; }

  void Forward(const DevicePartUse<T>& use, const float* x, float* out) override {
    Block& b = blocks_[use.block];
    DeviceLinears<T>& linears = *use.linears;
    const std::size_t rows = linears.Rows();
    linears.Normalize(use.pass, x, use.gains[kNormGain], config_.norm_epsilon, b.inverse_rms.data(),
                      b.norm.data(), use.Linear(kQkv));
    use.Inspect("attention_norm.output", b.norm.data(), d_);
    float* const projected = config_.qk_norm ? b.projected.data() : qkv_.data();
    linears.Run(use.pass, use.Linear(kQkv), b.norm.data(), nullptr, projected,
                use.InputPlaces(kQkv));
    use.Inspect("attention.qkv.output", projected, qkv_width_);
    if (config_.qk_norm) {
      NormHeads(RopeShapeOf(rows), projected, HeadGainsOf(use), config_.norm_epsilon, qkv_.data(),
                b.head_inverse_rms.data(), stream_);
      use.Inspect("attention.qk_norm.output", qkv_.data(), qkv_width_);
    }
    {
      const DeviceStepScope part(StepPart::kAttention);
      const DeviceRope::Angles angles = rope_.Of(use.block);
      Rope(RopeShapeOf(rows), angles.cos, angles.sin, qkv_.data(), b.qkv.data(), stream_);
      Attention(ShapeOf(rows, use.block), b.qkv.data(), b.attention.data(), b.statistics.data(),
                stream_);
    }
    if constexpr (!std::is_same_v<T, A>) {
      RoundTo(b.attention.data(), rows * query_width_, b.rounded.data(), stream_);
    }
    use.Inspect("attention.output", b.attention.data(), query_width_);
    linears.Run(use.pass, use.Linear(kOut), OperandOf(b), x, out, {}, std::is_same_v<T, A>);
    use.Inspect("attention.out.output", out, d_);
  }

  void Backward(const DevicePartUse<T>& use, const float* x,
                const DevicePartGradients<T>& g) override {
    Block& b = blocks_[use.block];
    DeviceLinears<T>& linears = *use.linears;
    linears.RunBackward(use.pass, use.Linear(kOut), g.Residual(), d_attention_.data(),
                        use.GradientPlaces(kOut));
    HeadsBackward(use, b, g);
    use.Inspect("attention.qkv.output.gradient", d_qkv_rounded_.data(), qkv_width_);
    linears.RunBackward(use.pass, use.Linear(kQkv), d_qkv_rounded_.data(), g.d_narrow);
    BackwardNorm(use, kNormGain, x, b.inverse_rms.data(), g);
    use.Inspect("attention_norm.input.gradient", g.d_residual, d_);
  }

 private:
  struct Block {
    DeviceArray<float> inverse_rms, statistics;
    DeviceArray<T> norm, rounded;
    DeviceArray<A> qkv, attention;
    // With qk_norm: the linear's result, 1 / rms of each head's row.
    DeviceArray<float> projected, head_inverse_rms;
  };

  // The gradient of the linear's result, in d_qkv_rounded_, from that of the heads.
  void HeadsBackward(const DevicePartUse<T>& use, const Block& b,
                     const DevicePartGradients<T>& g) const {
    const DeviceStepScope part(StepPart::kAttention);
    const std::size_t rows = use.linears->Rows();
    const AttentionShape shape = ShapeOf(rows, use.block);
    const DeviceRope::Angles angles = rope_.Of(use.block);
    if constexpr (std::is_same_v<A, float>) {
      AttentionBackward(shape, b.qkv.data(), b.attention.data(), b.statistics.data(),
                        d_attention_.data(), dots_.data(), d_qkv_.data(), stream_);
      if (config_.qk_norm) {
        RopeBackward(RopeShapeOf(rows), angles.cos, angles.sin, d_qkv_.data(), d_qkv_.data(),
                     stream_);
        NormBackward(use, b, d_qkv_.data(), g);
      } else {
        RopeBackward(RopeShapeOf(rows), angles.cos, angles.sin, d_qkv_.data(),
                     d_qkv_rounded_.data(), stream_);
      }
    } else {
      AttentionBackward(shape, b.qkv.data(), b.attention.data(), b.statistics.data(),
                        d_attention_.data(), angles.cos, angles.sin, dots_.data(),
                        d_qkv_rounded_.data(), stream_);
      if (config_.qk_norm) NormBackward(use, b, d_qkv_rounded_.data(), g);
    }
  }

  std::size_t NormedHeads() const {
    return static_cast<std::size_t>(config_.heads) + KvHeads(config_);
  }
  HeadGains HeadGainsOf(const DevicePartUse<T>& use) const {
    return {use.linears->Parameter(use.gains[kQueryGain]),
            use.linears->Parameter(use.gains[kKeyGain])};
  }
  // The gradient of the linear's result from that of its normalized heads.
  template <class D>
  void NormBackward(const DevicePartUse<T>& use, const Block& b, const D* d,
                    const DevicePartGradients<T>& g) const {
    NormHeadsBackward(RopeShapeOf(use.linears->Rows()), b.projected.data(), HeadGainsOf(use),
                      b.head_inverse_rms.data(), d, d_qkv_rounded_.data(),
                      g.GainPartials(kQueryGain), g.GainPartials(kKeyGain), stream_);
  }

  AttentionShape ShapeOf(std::size_t rows, std::size_t block = 0) const {
    const auto sequence = static_cast<std::size_t>(config_.sequence);
    return {.batch = rows / sequence,
            .sequence = sequence,
            .heads = static_cast<std::size_t>(config_.heads),
            .kv_heads = KvHeads(config_),
            .head_dim = HeadDim(config_),
            .window = WindowOf(config_, static_cast<int>(block)),
            .scale = ScoreScale(config_, HeadDim(config_))};
  }
  RopeShape RopeShapeOf(std::size_t rows) const {
    const AttentionShape s = ShapeOf(rows);
    return {rows, s.sequence, s.heads, s.kv_heads, s.head_dim};
  }
  static T* OperandOf(Block& b) {
    if constexpr (std::is_same_v<T, A>) {
      return b.attention.data();
    } else {
      return b.rounded.data();
    }
  }

  ModelConfig config_;
  cudaStream_t stream_;
  std::size_t d_, query_width_, qkv_width_;
  DeviceRope rope_;
  std::vector<Block> blocks_;
  DeviceArray<float> qkv_, d_qkv_, dots_;
  DeviceArray<A> d_attention_;
  DeviceArray<T> d_qkv_rounded_;
};

std::unique_ptr<DevicePart<float>> MakeFloat(const ModelConfig& config, cudaStream_t stream) {
  return std::make_unique<AttentionPart<float, float>>(config, stream);
}

std::unique_ptr<DevicePart<Bf16>> MakeBf16(const ModelConfig& config, bool tensor_cores,
                                           cudaStream_t stream) {
  if (tensor_cores && HasTensorCoreAttention(HeadDim(config))) {
    return std::make_unique<AttentionPart<Bf16, Bf16>>(config, stream);
  }
  return std::make_unique<AttentionPart<Bf16, float>>(config, stream);
}

}  // namespace

extern const DevicePartRow kDeviceAttention;
const DevicePartRow kDeviceAttention{"attention", MakeFloat, MakeBf16};

}  // namespace fp4lab::gpu
