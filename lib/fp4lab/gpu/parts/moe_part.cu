// train/parts/moe.cc on the device. The host waits for the tokens of each expert in every block,
// since they are the sizes of the experts' GEMMs.
#include <algorithm>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/kernels/router.cuh"
#include "fp4lab/gpu/parts/device_part.cuh"

namespace fp4lab::gpu {
namespace {

enum LinearIndex { kRouter, kShared };  // without shared experts, the experts follow the router

template <class T>
class Moe final : public DevicePart<T> {
 public:
  Moe(const ModelConfig& config, cudaStream_t stream)
      : config_(config),
        options_{.score = config.moe.score,
                 .top_k = static_cast<std::size_t>(config.moe.top_k),
                 .normalize = config.moe.normalize,
                 .scale = config.moe.scale,
                 .balance_loss = config.moe.balance_loss},
        stream_(stream),
        d_(static_cast<std::size_t>(config.d_model)),
        experts_(static_cast<std::size_t>(config.moe.experts)),
        pad_(static_cast<std::size_t>(config.moe.pad_tokens)),
        ffn_(static_cast<std::size_t>(config.moe.ffn > 0 ? config.moe.ffn : config.ffn)),
        shared_ffn_(static_cast<std::size_t>(config.moe.shared_experts) * ffn_) {}

  void TakeMemory(const std::vector<bool>& has, std::size_t rows) override {
    const std::size_t choices = rows * options_.top_k, slots = choices + experts_ * (pad_ - 1);
    blocks_.resize(has.size());
    for (std::size_t i = 0; i < has.size(); ++i) {
      if (!has[i]) continue;
      Block& b = blocks_[i];
      b.norm = DeviceArray<float>(rows * d_);
      b.inverse_rms = DeviceArray<float>(rows);
      b.scores = DeviceArray<float>(rows * experts_);
      b.weights = DeviceArray<float>(choices);
      b.chosen = DeviceArray<std::uint32_t>(choices);
      b.counts = DeviceArray<std::uint32_t>(experts_);
      b.slot = DeviceArray<std::uint32_t>(choices);
      b.gathered = DeviceArray<T>(slots * d_);
      b.up = DeviceArray<float>(slots * UpWidth(ffn_));
      b.activated = DeviceArray<T>(slots * ffn_);
      b.results = DeviceArray<float>(slots * d_);
      if (shared_ffn_ == 0) continue;
      b.shared_input = DeviceArray<T>(rows * d_);
      b.shared_up = DeviceArray<float>(rows * UpWidth(shared_ffn_));
      b.shared_activated = DeviceArray<T>(rows * shared_ffn_);
    }
    logits_ = DeviceArray<float>(rows * experts_);
    rank_ = DeviceArray<std::uint32_t>(choices);
    before_ = DeviceArray<std::uint32_t>(DivideUp(choices, kRankChunk) * experts_);
    first_ = DeviceArray<std::uint32_t>(experts_);
    token_ = DeviceArray<std::uint32_t>(slots);
    d_results_ = DeviceArray<T>(slots * d_);
    d_inputs_ = DeviceArray<float>(slots * d_);
    const std::size_t widest = std::max(slots * ffn_, rows * shared_ffn_);
    d_activated_ = DeviceArray<float>(widest);
    d_up_ = DeviceArray<T>(UpWidth(widest));
    d_weights_ = DeviceArray<float>(choices);
    d_router_ = DeviceArray<float>(rows * d_);
  }

  // The shared experts read the gradient of the residual stream as it is; without them no linear
  // does.
  std::optional<std::size_t> ResidualLinear() const override {
    if (shared_ffn_ == 0) return std::nullopt;
    return kShared + 1;
  }

  void Forward(const DevicePartUse<T>& use, const float* x, float* out) override {
    Block& b = blocks_[use.block];
    DeviceLinears<T>& linears = *use.linears;
    const std::size_t rows = linears.Rows();
    RmsNorm(x, linears.Parameter(use.gains[0]), config_.norm_epsilon, rows, d_, b.norm.data(),
            b.inverse_rms.data(), stream_);
    use.Inspect("moe_norm.output", b.norm.data(), d_);
    linears.RunInBinary32(use.Linear(kRouter), b.norm.data(), logits_.data());
    use.Inspect("moe.router.output", logits_.data(), experts_);
    const DeviceRouting routing = RoutingOf(b, rows);
    const float* const bias = use.balance == nullptr ? nullptr : linears.Parameter(*use.balance);
    Route(options_, logits_.data(), bias, routing, stream_);
    Place(&b, routing);
    if (shared_ffn_ > 0) {
      CopyAs(b.norm.data(), rows * d_, b.shared_input.data());
      ForwardMlp(use, kShared, rows, shared_ffn_, b.shared_input.data(), b.shared_up.data(),
                 b.shared_activated.data(), x, out);
    }
    GatherRows(b.norm.data(), token_.data(), b.slots, d_, b.gathered.data(), stream_);
    for (std::size_t e = 0; e < experts_; ++e) {
      const std::size_t count = b.expert_rows[e], first = b.expert_first[e];
      if (count == 0) continue;
      ForwardMlp(use, ExpertLinear(e), count, ffn_, b.gathered.data() + first * d_,
                 b.up.data() + first * UpWidth(ffn_), b.activated.data() + first * ffn_, nullptr,
                 b.results.data() + first * d_);
    }
    AddExperts(routing, options_.top_k, b.slot.data(), b.results.data(), d_,
               shared_ffn_ > 0 ? out : x, out, stream_);
    use.Inspect("moe.output", out, d_);
  }

  void Backward(const DevicePartUse<T>& use, const float* x,
                const DevicePartGradients<T>& g) override {
    Block& b = blocks_[use.block];
    DeviceLinears<T>& linears = *use.linears;
    const std::size_t rows = linears.Rows();
    const DeviceRouting routing = RoutingOf(b, rows);
    if (shared_ffn_ > 0) {
      BackwardMlp(use, kShared, rows, shared_ffn_, b.shared_up.data(), g.Residual(),
                  use.GradientPlaces(kShared + 1), g.d_narrow);
    }
    AddExpertsBackward(routing, options_.top_k, b.slot.data(), b.slots, b.results.data(),
                       g.d_residual, d_, d_results_.data(), d_weights_.data(), stream_);
    for (std::size_t e = 0; e < experts_; ++e) {
      const std::size_t count = b.expert_rows[e], first = b.expert_first[e];
      if (count == 0) continue;
      BackwardMlp(use, ExpertLinear(e), count, ffn_, b.up.data() + first * UpWidth(ffn_),
                  d_results_.data() + first * d_, {}, d_inputs_.data() + first * d_);
    }
    RouteBackward(options_, routing, d_weights_.data(), g.loss_scale, logits_.data(), stream_);
    use.Inspect("moe.router.output.gradient", logits_.data(), experts_);
    linears.RunBackwardInBinary32(use.pass, use.Linear(kRouter), b.norm.data(), logits_.data(),
                                  d_router_.data());
    AddInputGradients(rows, options_.top_k, b.slot.data(), d_inputs_.data(), d_router_.data(), d_,
                      shared_ffn_ > 0, g.d_narrow, stream_);
    if (use.balance != nullptr) {
      AddSurplus(routing, options_.top_k, linears.Gradient(*use.balance), stream_);
    }
    BackwardNorm(use, 0, x, b.inverse_rms.data(), g);
    use.Inspect("moe_norm.input.gradient", g.d_residual, d_);
  }

 private:
  struct Block {
    DeviceArray<float> norm, inverse_rms, scores, weights;
    DeviceArray<std::uint32_t> chosen, counts, slot;
    DeviceArray<T> gathered, activated, shared_input, shared_activated;
    DeviceArray<float> up, results, shared_up;
    // On the host, of the last Forward: padding included.
    std::vector<std::uint32_t> expert_first, expert_rows;
    std::size_t slots = 0;
  };

  void CopyAs(const float* from, std::size_t size, Bf16* to) const {
    RoundTo(from, size, to, stream_);
  }
  void CopyAs(const float* from, std::size_t size, float* to) const {
    Check(cudaMemcpyAsync(to, from, size * sizeof(float), cudaMemcpyDeviceToDevice, stream_),
          "copy on the GPU");
  }

  std::size_t UpWidth(std::size_t ffn) const {
    return config_.activation == Activation::kSwiglu ? 2 * ffn : ffn;
  }
  // The expert's up; down follows.
  std::size_t ExpertLinear(std::size_t e) const { return (shared_ffn_ > 0 ? 3 : 1) + 2 * e; }

  DeviceRouting RoutingOf(const Block& b, std::size_t rows) const {
    return {rows,
            experts_,
            b.scores.data(),
            b.weights.data(),
            b.chosen.data(),
            b.counts.data(),
            rank_.data(),
            before_.data()};
  }

  // Waits for the counts, and gives each expert its rows.
  void Place(Block* b, const DeviceRouting& routing) {
    std::vector<std::uint32_t> counts(experts_);
    b->counts.CopyTo(counts, stream_);
    Check(cudaStreamSynchronize(stream_), "training");
    b->expert_first.assign(experts_, 0);
    b->expert_rows.assign(experts_, 0);
    std::uint32_t end = 0;
    for (std::size_t e = 0; e < experts_; ++e) {
      b->expert_first[e] = end;
      b->expert_rows[e] =
          static_cast<std::uint32_t>(RoundUp(static_cast<std::size_t>(counts[e]), pad_));
      end += b->expert_rows[e];
    }
    b->slots = end;
    first_.CopyFrom(b->expert_first, stream_);
    PlaceSlots(routing, options_.top_k, first_.data(), b->slots, b->slot.data(), token_.data(),
               stream_);
  }

  void ForwardMlp(const DevicePartUse<T>& use, std::size_t up, std::size_t rows, std::size_t ffn,
                  T* x, float* up_result, T* activated, const float* add, float* out) {
    DeviceLinears<T>& linears = *use.linears;
    linears.RunRows(use.pass, use.Linear(up), rows, x, nullptr, up_result);
    Activate(config_.activation, up_result, rows, ffn, activated, stream_);
    linears.RunRows(use.pass, use.Linear(up + 1), rows, activated, add, out);
  }

  void BackwardMlp(const DevicePartUse<T>& use, std::size_t up, std::size_t rows, std::size_t ffn,
                   const float* up_result, const T* dy, const AmaxPlaces& measured, float* dx) {
    DeviceLinears<T>& linears = *use.linears;
    linears.RunBackwardRows(use.pass, use.Linear(up + 1), rows, dy, d_activated_.data(), measured);
    ActivateBackward(config_.activation, up_result, d_activated_.data(), rows, ffn, d_up_.data(),
                     stream_);
    linears.RunBackwardRows(use.pass, use.Linear(up), rows, d_up_.data(), dx);
  }

  ModelConfig config_;
  RouterOptions options_;
  cudaStream_t stream_;
  std::size_t d_, experts_, pad_, ffn_, shared_ffn_;
  std::vector<Block> blocks_;
  DeviceArray<float> logits_, d_inputs_, d_activated_, d_weights_, d_router_;
  DeviceArray<std::uint32_t> rank_, before_, first_, token_;
  DeviceArray<T> d_results_, d_up_;
};

std::unique_ptr<DevicePart<float>> MakeFloat(const ModelConfig& config, cudaStream_t stream) {
  return std::make_unique<Moe<float>>(config, stream);
}

std::unique_ptr<DevicePart<Bf16>> MakeBf16(const ModelConfig& config, bool, cudaStream_t stream) {
  return std::make_unique<Moe<Bf16>>(config, stream);
}

}  // namespace

extern const DevicePartRow kDeviceMoe;
const DevicePartRow kDeviceMoe{"moe", MakeFloat, MakeBf16};

}  // namespace fp4lab::gpu
