// train/parts/mla.cc on the device. A: the type of attention's operands.
//
// Attention's kernels have one size of head. Queries, keys and values are padded with zeros to it,
// which changes no score and gives columns of zeros that are dropped.
#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/gpu/attention/attention.cuh"
#include "fp4lab/gpu/engine/step_parts.cuh"
#include "fp4lab/gpu/kernels/columns.cuh"
#include "fp4lab/gpu/kernels/latent_heads.cuh"
#include "fp4lab/gpu/parts/device_part.cuh"
#include "fp4lab/gpu/parts/device_rope.cuh"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/parts/attention_widths.h"

namespace fp4lab::gpu {
namespace {

// Linears: MlaWidths. The first is q, or q_a and then q_b.
constexpr std::size_t kQuery = 0, kQueryB = 1;
enum GainIndex { kNormGain, kLatentGain, kQueryGain };

template <class T, class A>
class Mla final : public DevicePart<T> {
 public:
  Mla(const ModelConfig& config, std::size_t padded, cudaStream_t stream)
      : config_(config),
        w_(config),
        padded_(padded),
        stream_(stream),
        rope_(config, w_.rope, stream) {}

  void TakeMemory(const std::vector<bool>& has, std::size_t rows) override {
    const std::size_t statistics = ShapeOf(rows).StatisticsSize() / 2;
    const auto floats = [&](std::size_t cols) { return DeviceArray<float>(rows * cols); };
    const auto operand = [&](std::size_t cols) { return DeviceArray<T>(rows * cols); };
    const auto head = [&](std::size_t cols) { return DeviceArray<A>(rows * cols); };
    blocks_.resize(has.size());
    for (std::size_t i = 0; i < has.size(); ++i) {
      if (!has[i]) continue;
      Block& b = blocks_[i];
      b.norm = operand(w_.model);
      b.inverse_rms = floats(1);
      b.qkv = head(3 * Padded());
      b.attention = head(Padded());
      b.heads = operand(w_.Values());
      b.statistics = DeviceArray<float>(statistics);
      b.latent_input = floats(w_.latent);
      b.latent = operand(w_.latent);
      b.latent_inverse_rms = floats(1);
      if (w_.query_latent == 0) continue;
      b.query_input = floats(w_.query_latent);
      b.query_latent = operand(w_.query_latent);
      b.query_inverse_rms = floats(1);
    }
    queries_ = floats(w_.Queries());
    compressed_ = floats(w_.Compressed());
    expanded_ = floats(w_.Expanded());
    d_heads_ = head(w_.Values());
    d_attention_ = head(Padded());
    d_qkv_ = head(3 * Padded());
    dots_ = DeviceArray<float>(statistics);
    d_queries_ = operand(w_.Queries());
    d_compressed_ = operand(w_.Compressed());
    d_expanded_ = operand(w_.Expanded());
    d_latent_ = floats(std::max(w_.latent, w_.query_latent));
    d_latent_input_ = floats(std::max(w_.latent, w_.query_latent));
    if constexpr (!std::is_same_v<T, float>) d_query_input_ = operand(w_.query_latent);
    d_norm_of_queries_ = floats(w_.model);
  }

  std::optional<std::size_t> ResidualLinear() const override { return w_.Out(); }

  void Forward(const DevicePartUse<T>& use, const float* x, float* out) override {
    Block& b = blocks_[use.block];
    DeviceLinears<T>& linears = *use.linears;
    const std::size_t rows = linears.Rows(), kv_a = use.Linear(w_.KvA()),
                      kv_b = use.Linear(w_.KvB());
    linears.Normalize(use.pass, x, use.gains[kNormGain], config_.norm_epsilon, b.inverse_rms.data(),
                      b.norm.data(), use.Linear(kQuery));
    use.Inspect("attention_norm.output", b.norm.data(), w_.model);
    ForwardQueries(use, b);
    use.Inspect("attention.q.output", queries_.data(), w_.Queries());
    // Two linears read the norm, so neither may overwrite it.
    linears.Run(use.pass, kv_a, b.norm.data(), nullptr, compressed_.data(), {}, true);
    use.Inspect("attention.kv_a.output", compressed_.data(), w_.Compressed());
    CopyColumns(rows, Columns<const float>{compressed_.data(), w_.Compressed(), w_.latent},
                Columns<float>{b.latent_input.data(), w_.latent, w_.latent}, stream_);
    linears.Normalize(use.pass, b.latent_input.data(), use.gains[kLatentGain], config_.norm_epsilon,
                      b.latent_inverse_rms.data(), b.latent.data(), kv_b);
    use.Inspect("attention.kv_norm.output", b.latent.data(), w_.latent);
    linears.Run(use.pass, kv_b, b.latent.data(), nullptr, expanded_.data(),
                use.InputPlaces(w_.KvB()));
    use.Inspect("attention.kv_b.output", expanded_.data(), w_.Expanded());
    ForwardHeads(use, b);
    use.Inspect("attention.output", b.heads.data(), w_.Values());
    linears.Run(use.pass, use.Linear(w_.Out()), b.heads.data(), x, out, {});
    use.Inspect("attention.out.output", out, w_.model);
  }

  void Backward(const DevicePartUse<T>& use, const float* x,
                const DevicePartGradients<T>& g) override {
    Block& b = blocks_[use.block];
    DeviceLinears<T>& linears = *use.linears;
    const std::size_t rows = linears.Rows();
    linears.RunBackward(use.pass, use.Linear(w_.Out()), g.Residual(), d_heads_.data(),
                        use.GradientPlaces(w_.Out()));
    BackwardHeads(use, b);
    use.Inspect("attention.kv_b.output.gradient", d_expanded_.data(), w_.Expanded());
    linears.RunBackward(use.pass, use.Linear(w_.KvB()), d_expanded_.data(), d_latent_.data());
    RmsNormBackward(b.latent_input.data(), linears.Parameter(use.gains[kLatentGain]),
                    b.latent_inverse_rms.data(), d_latent_.data(), false, rows, w_.latent,
                    d_latent_input_.data(), static_cast<float*>(nullptr),
                    g.GainPartials(kLatentGain), stream_);
    CopyColumns(rows, Columns<const float>{d_latent_input_.data(), w_.latent, w_.latent},
                Columns<T>{d_compressed_.data(), w_.Compressed(), w_.latent}, stream_);
    use.Inspect("attention.kv_a.output.gradient", d_compressed_.data(), w_.Compressed());
    linears.RunBackward(use.pass, use.Linear(w_.KvA()), d_compressed_.data(), g.d_narrow);
    use.Inspect("attention.q.output.gradient", d_queries_.data(), w_.Queries());
    BackwardQueries(use, b, g);
    AddTo(d_norm_of_queries_.data(), rows * w_.model, g.d_narrow, stream_);
    BackwardNorm(use, kNormGain, x, b.inverse_rms.data(), g);
    use.Inspect("attention_norm.input.gradient", g.d_residual, w_.model);
  }

 private:
  struct Block {
    DeviceArray<float> inverse_rms, statistics;
    DeviceArray<T> norm, heads;
    DeviceArray<A> qkv, attention;  // heads of padded_ columns
    // The latents' norms: input, result, 1 / rms.
    DeviceArray<float> latent_input, latent_inverse_rms, query_input, query_inverse_rms;
    DeviceArray<T> latent, query_latent;
  };

  std::size_t Padded() const { return w_.heads * padded_; }

  AttentionShape ShapeOf(std::size_t rows, std::size_t block = 0) const {
    const auto sequence = static_cast<std::size_t>(config_.sequence);
    const AttentionShape unpadded{.head_dim = w_.Head(), .scale = ScoreScale(config_, w_.Head())};
    return {.batch = rows / sequence,
            .sequence = sequence,
            .heads = w_.heads,
            .kv_heads = w_.heads,
            .head_dim = padded_,
            .window = WindowOf(config_, static_cast<int>(block)),
            .scale = unpadded.Scale()};
  }
  LatentShape LatentShapeOf(std::size_t rows) const {
    return {rows,      static_cast<std::size_t>(config_.sequence),
            w_.heads,  w_.nope,
            w_.rope,   w_.value,
            w_.latent, padded_};
  }

  void ForwardQueries(const DevicePartUse<T>& use, const Block& b) {
    DeviceLinears<T>& linears = *use.linears;
    float* const first = w_.query_latent > 0 ? b.query_input.data() : queries_.data();
    linears.Run(use.pass, use.Linear(kQuery), b.norm.data(), nullptr, first,
                use.InputPlaces(kQuery), true);
    if (w_.query_latent == 0) return;
    use.Inspect("attention.q_a.output", first, w_.query_latent);
    linears.Normalize(use.pass, first, use.gains[kQueryGain], config_.norm_epsilon,
                      b.query_inverse_rms.data(), b.query_latent.data(), use.Linear(kQueryB));
    use.Inspect("attention.q_norm.output", b.query_latent.data(), w_.query_latent);
    linears.Run(use.pass, use.Linear(kQueryB), b.query_latent.data(), nullptr, queries_.data(),
                use.InputPlaces(kQueryB));
  }

  // The gradient of the norm's result by the queries.
  void BackwardQueries(const DevicePartUse<T>& use, const Block& b,
                       const DevicePartGradients<T>& g) {
    DeviceLinears<T>& linears = *use.linears;
    float* const d_norm = d_norm_of_queries_.data();
    if (w_.query_latent == 0) {
      return linears.RunBackward(use.pass, use.Linear(kQuery), d_queries_.data(), d_norm);
    }
    linears.RunBackward(use.pass, use.Linear(kQueryB), d_queries_.data(), d_latent_.data());
    const AmaxPlaces amax = use.GradientPlaces(kQuery);
    RmsNormBackward(b.query_input.data(), linears.Parameter(use.gains[kQueryGain]),
                    b.query_inverse_rms.data(), d_latent_.data(), false, linears.Rows(),
                    w_.query_latent, d_latent_input_.data(), d_query_input_.data(),
                    g.GainPartials(kQueryGain), stream_, amax);
    const T* const dy = QueryInputGradient();
    use.Inspect("attention.q_a.output.gradient", dy, w_.query_latent);
    linears.RunBackward(use.pass, use.Linear(kQuery), dy, d_norm, amax);
  }
  const T* QueryInputGradient() const {
    if constexpr (std::is_same_v<T, float>) {
      return d_latent_input_.data();
    } else {
      return d_query_input_.data();
    }
  }

  // Rotation and attention.
  void ForwardHeads(const DevicePartUse<T>& use, const Block& b) const {
    const DeviceStepScope part(StepPart::kAttention);
    const std::size_t rows = use.linears->Rows();
    const DeviceRope::Angles angles = rope_.Of(use.block);
    JoinHeads(LatentShapeOf(rows), angles.cos, angles.sin, queries_.data(), compressed_.data(),
              expanded_.data(), b.qkv.data(), stream_);
    Attention(ShapeOf(rows, use.block), b.qkv.data(), b.attention.data(), b.statistics.data(),
              stream_);
    CopyColumns(rows * w_.heads, Columns<const A>{b.attention.data(), padded_, w_.value},
                Columns<T>{b.heads.data(), w_.value, w_.value}, stream_);
  }
  void BackwardHeads(const DevicePartUse<T>& use, const Block& b) const {
    const DeviceStepScope part(StepPart::kAttention);
    const std::size_t rows = use.linears->Rows();
    const AttentionShape shape = ShapeOf(rows, use.block);
    const DeviceRope::Angles angles = rope_.Of(use.block);
    CopyColumns(rows * w_.heads, Columns<const A>{d_heads_.data(), w_.value, w_.value},
                Columns<A>{d_attention_.data(), padded_, padded_}, stream_);
    if constexpr (std::is_same_v<A, float>) {
      AttentionBackward(shape, b.qkv.data(), b.attention.data(), b.statistics.data(),
                        d_attention_.data(), dots_.data(), d_qkv_.data(), stream_);
    } else {
      AttentionBackward(shape, b.qkv.data(), b.attention.data(), b.statistics.data(),
                        d_attention_.data(), nullptr, nullptr, dots_.data(), d_qkv_.data(),
                        stream_);
    }
    SplitHeads(LatentShapeOf(rows), angles.cos, angles.sin, d_qkv_.data(), d_queries_.data(),
               d_compressed_.data(), d_expanded_.data(), stream_);
  }

  ModelConfig config_;
  MlaWidths w_;
  std::size_t padded_;  // columns of a head in attention
  cudaStream_t stream_;
  DeviceRope rope_;
  std::vector<Block> blocks_;
  DeviceArray<float> queries_, compressed_, expanded_, dots_;
  DeviceArray<A> d_heads_, d_attention_, d_qkv_;
  DeviceArray<T> d_queries_, d_compressed_, d_expanded_, d_query_input_;
  // Of the norm of one latent at a time: the gradients of its result and of its input.
  DeviceArray<float> d_latent_, d_latent_input_, d_norm_of_queries_;
};

// The columns of a head where attention is in binary32.
std::size_t UnpaddedHead(const ModelConfig& config) {
  constexpr std::size_t kMost = 256;
  const std::size_t head = AttentionHeadDim(config);
  if (head > kMost) {
    throw Error("model/mla", "heads of " + std::to_string(head) + " columns; the GPU has kernels " +
                                 "for at most 256, and \"device\": \"cpu\" takes any");
  }
  return head;
}

std::unique_ptr<DevicePart<float>> MakeFloat(const ModelConfig& config, cudaStream_t stream) {
  return std::make_unique<Mla<float, float>>(config, UnpaddedHead(config), stream);
}

std::unique_ptr<DevicePart<Bf16>> MakeBf16(const ModelConfig& config, bool tensor_cores,
                                           cudaStream_t stream) {
  const std::size_t padded = TensorCoreHeadDim(AttentionHeadDim(config));
  if (tensor_cores && padded > 0) {
    return std::make_unique<Mla<Bf16, Bf16>>(config, padded, stream);
  }
  return std::make_unique<Mla<Bf16, float>>(config, UnpaddedHead(config), stream);
}

}  // namespace

extern const DevicePartRow kDeviceMla;
const DevicePartRow kDeviceMla{"mla", MakeFloat, MakeBf16};

}  // namespace fp4lab::gpu
