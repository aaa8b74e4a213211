// train/parts/gla.cc on the device. The recurrence, the heads' norm and the gate are in binary32.
#include <string>
#include <type_traits>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/gpu/attention/gated_linear.cuh"
#include "fp4lab/gpu/engine/step_parts.cuh"
#include "fp4lab/gpu/kernels/columns.cuh"
#include "fp4lab/gpu/parts/device_part.cuh"
#include "fp4lab/train/parts/attention_widths.h"

namespace fp4lab::gpu {
namespace {

enum LinearIndex { kQkvg, kDecayDown, kDecayUp, kOut };
enum GainIndex { kNormGain, kHeadGain };

template <class T>
class Gla final : public DevicePart<T> {
 public:
  Gla(const ModelConfig& config, cudaStream_t stream)
      : config_(config), w_(config), stream_(stream) {
    if (w_.value <= kMostValueDim) return;
    throw Error("model/gla", "values of " + std::to_string(w_.value) +
                                 " columns per head; the GPU has kernels for at most 512, and " +
                                 "\"device\": \"cpu\" takes any");
  }

  void TakeMemory(const std::vector<bool>& has, std::size_t rows) override {
    const auto floats = [&](std::size_t cols) { return DeviceArray<float>(rows * cols); };
    const auto operand = [&](std::size_t cols) { return DeviceArray<T>(rows * cols); };
    blocks_.resize(has.size());
    for (std::size_t i = 0; i < has.size(); ++i) {
      if (!has[i]) continue;
      Block& b = blocks_[i];
      b.norm = operand(w_.model);
      b.inverse_rms = floats(1);
      b.mixed = floats(w_.Mixed());
      b.low = operand(w_.rank);
      b.decays = floats(w_.Keys());
      b.heads = floats(w_.Values());
      b.head_inverse_rms = floats(w_.heads);
      b.normed = floats(w_.Values());
      b.gated = operand(w_.Values());
    }
    if constexpr (!std::is_same_v<T, float>) low_ = floats(w_.rank);
    kept_ = floats(w_.Keys());
    slope_ = floats(w_.Keys());
    states_ = DeviceArray<float>(GatedLinearStates(ShapeOf(rows)));
    d_mixed_ = operand(w_.Mixed());
    d_low_ = operand(w_.rank);
    d_decays_ = operand(w_.Keys());
    d_gated_ = floats(w_.Values());
    d_normed_ = floats(w_.Values());
    d_heads_ = floats(w_.Values());
    d_norm_of_decays_ = floats(w_.model);
    head_partials_ = DeviceArray<float>(GainChunks(rows * w_.heads) * w_.value);
  }

  std::optional<std::size_t> ResidualLinear() const override { return kOut; }

  void Forward(const DevicePartUse<T>& use, const float* x, float* out) override {
    Block& b = blocks_[use.block];
    DeviceLinears<T>& linears = *use.linears;
    const std::size_t rows = linears.Rows();
    linears.Normalize(use.pass, x, use.gains[kNormGain], config_.norm_epsilon, b.inverse_rms.data(),
                      b.norm.data(), use.Linear(kQkvg));
    use.Inspect("gla_norm.output", b.norm.data(), w_.model);
    // Two linears read the norm, so neither may overwrite it.
    linears.Run(use.pass, use.Linear(kQkvg), b.norm.data(), nullptr, b.mixed.data(),
                use.InputPlaces(kQkvg), true);
    use.Inspect("gla.qkvg.output", b.mixed.data(), w_.Mixed());
    float* const low = LowOf(b);
    linears.Run(use.pass, use.Linear(kDecayDown), b.norm.data(), nullptr, low, {}, true);
    use.Inspect("gla.decay_down.output", low, w_.rank);
    if constexpr (!std::is_same_v<T, float>) RoundTo(low, rows * w_.rank, b.low.data(), stream_);
    linears.Run(use.pass, use.Linear(kDecayUp), b.low.data(), nullptr, b.decays.data(), {});
    use.Inspect("gla.decay_up.output", b.decays.data(), w_.Keys());
    ForwardHeads(b, rows);
    use.Inspect("gla.attention.output", b.heads.data(), w_.Values());
    // A row of all heads is a row for each head, which share a gain.
    RmsNorm(b.heads.data(), linears.Parameter(use.gains[kHeadGain]), config_.norm_epsilon,
            rows * w_.heads, w_.value, b.normed.data(), b.head_inverse_rms.data(), stream_);
    use.Inspect("gla.head_norm.output", b.normed.data(), w_.Values());
    GateColumns(rows, GatesOf(b), b.normed.data(), b.gated.data(), stream_);
    use.Inspect("gla.gate.output", b.gated.data(), w_.Values());
    linears.Run(use.pass, use.Linear(kOut), b.gated.data(), x, out, {});
    use.Inspect("gla.out.output", out, w_.model);
  }

  void Backward(const DevicePartUse<T>& use, const float* x,
                const DevicePartGradients<T>& g) override {
    Block& b = blocks_[use.block];
    DeviceLinears<T>& linears = *use.linears;
    const std::size_t rows = linears.Rows();
    linears.RunBackward(use.pass, use.Linear(kOut), g.Residual(), d_gated_.data(),
                        use.GradientPlaces(kOut));
    const std::size_t gates = 2 * w_.Keys() + w_.Values();
    GateColumnsBackward(rows, GatesOf(b), b.normed.data(), d_gated_.data(),
                        Columns<T>{d_mixed_.data() + gates, w_.Mixed(), w_.Values()},
                        d_normed_.data(), stream_);
    BackwardHeadNorm(use, b, g);
    use.Inspect("gla.attention.output.gradient", d_heads_.data(), w_.Values());
    BackwardHeads(b, rows);
    use.Inspect("gla.decay_up.output.gradient", d_decays_.data(), w_.Keys());
    linears.RunBackward(use.pass, use.Linear(kDecayUp), d_decays_.data(), d_low_.data());
    linears.RunBackward(use.pass, use.Linear(kDecayDown), d_low_.data(), d_norm_of_decays_.data());
    use.Inspect("gla.qkvg.output.gradient", d_mixed_.data(), w_.Mixed());
    linears.RunBackward(use.pass, use.Linear(kQkvg), d_mixed_.data(), g.d_narrow);
    AddTo(d_norm_of_decays_.data(), rows * w_.model, g.d_narrow, stream_);
    BackwardNorm(use, kNormGain, x, b.inverse_rms.data(), g);
    use.Inspect("gla_norm.input.gradient", g.d_residual, w_.model);
  }

 private:
  struct Block {
    DeviceArray<float> inverse_rms, mixed, decays, heads, head_inverse_rms, normed;
    DeviceArray<T> norm, low, gated;
  };

  GatedLinearShape ShapeOf(std::size_t rows) const {
    const auto sequence = static_cast<std::size_t>(config_.sequence);
    return {.batch = rows / sequence,
            .sequence = sequence,
            .heads = w_.heads,
            .key_dim = w_.key,
            .value_dim = w_.value};
  }
  // Where the first of the decays' linears writes: what the second reads, unless that is rounded.
  float* LowOf(const Block& b) const {
    if constexpr (std::is_same_v<T, float>) {
      return b.low.data();
    } else {
      return low_.data();
    }
  }
  DeviceGatedLinear InputsOf(const Block& b) const {
    const float* const mixed = b.mixed.data();
    return {mixed, mixed + w_.Keys(), mixed + 2 * w_.Keys(), w_.Mixed(), kept_.data()};
  }
  Columns<const float> GatesOf(const Block& b) const {
    return {b.mixed.data() + 2 * w_.Keys() + w_.Values(), w_.Mixed(), w_.Values()};
  }

  void ForwardHeads(const Block& b, std::size_t rows) const {
    const DeviceStepScope part(StepPart::kAttention);
    MakeDecays(b.decays.data(), rows * w_.Keys(), kept_.data(), nullptr, stream_);
    GatedLinearAttention(ShapeOf(rows), InputsOf(b), b.heads.data(), stream_);
  }
  void BackwardHeads(const Block& b, std::size_t rows) const {
    const DeviceStepScope part(StepPart::kAttention);
    MakeDecays(b.decays.data(), rows * w_.Keys(), kept_.data(), slope_.data(), stream_);
    T* const d = d_mixed_.data();
    // The gradient of the gate's result has been read.
    GatedLinearAttentionBackward(ShapeOf(rows), InputsOf(b), d_heads_.data(),
                                 {slope_.data(), states_.data(), d_gated_.data()},
                                 DeviceGatedLinearGradients<T>{d, d + w_.Keys(), d + 2 * w_.Keys(),
                                                               w_.Mixed(), d_decays_.data()},
                                 stream_);
  }
  // The partial sums of the gain's gradient cover rows of heads; those of GainPartials cover rows.
  void BackwardHeadNorm(const DevicePartUse<T>& use, const Block& b,
                        const DevicePartGradients<T>& g) const {
    const std::size_t rows = use.linears->Rows();
    RmsNormBackward(b.heads.data(), use.linears->Parameter(use.gains[kHeadGain]),
                    b.head_inverse_rms.data(), d_normed_.data(), false, rows * w_.heads, w_.value,
                    d_heads_.data(), static_cast<float*>(nullptr), head_partials_.data(), stream_);
    FoldPartials(head_partials_.data(), GainChunks(rows * w_.heads), w_.value, GainChunks(rows),
                 g.GainPartials(kHeadGain), stream_);
  }

  ModelConfig config_;
  GlaWidths w_;
  cudaStream_t stream_;
  std::vector<Block> blocks_;
  DeviceArray<float> low_, kept_, slope_, states_, head_partials_;
  DeviceArray<float> d_gated_, d_normed_, d_heads_, d_norm_of_decays_;
  DeviceArray<T> d_mixed_, d_low_, d_decays_;
};

}  // namespace

extern const DevicePartRow kDeviceGla;
const DevicePartRow kDeviceGla = RowOf<Gla>("gla");

}  // namespace fp4lab::gpu
