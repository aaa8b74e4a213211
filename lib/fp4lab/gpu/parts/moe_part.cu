// train/parts/moe.cc on the device. The host waits for the tokens of each expert in every block,
// since they are the sizes of the experts' GEMMs. Experts run on several streams at once: one
// expert's products do not fill the GPU.
#include <algorithm>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/kernels/expert_rows.cuh"
#include "fp4lab/gpu/kernels/router.cuh"
#include "fp4lab/gpu/kernels/router_gemm.cuh"
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
      b.first = DeviceArray<std::uint32_t>(experts_);
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
    d_results_ = DeviceArray<T>(slots * d_);
    d_inputs_ = DeviceArray<float>(slots * d_);
    const std::size_t widest = std::max(slots * ffn_, rows * shared_ffn_);
    d_activated_ = DeviceArray<float>(widest);
    d_up_ = DeviceArray<T>(UpWidth(widest));
    d_weights_ = DeviceArray<float>(choices);
    router_partials_ = DeviceArray<float>(DivideUp(rows, kRouterChunk) * experts_ * d_);
    router_place_ = DeviceArray<GainPlace>(1);
    const std::vector<GainPlace> place = {{0, static_cast<std::uint32_t>(experts_ * d_)}};
    router_place_.CopyFrom(place, stream_);
    Check(cudaStreamSynchronize(stream_), "copy to the GPU");
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
    RouterLogits(b.norm.data(), RouterWeight(use), rows, d_, experts_, logits_.data(), stream_);
    use.Inspect("moe.router.output", logits_.data(), experts_);
    const DeviceRouting routing = RoutingOf(b, rows);
    const float* const bias = use.balance == nullptr ? nullptr : linears.Parameter(*use.balance);
    Route(options_, logits_.data(), bias, routing, stream_);
    Place(&b, routing);
    if (shared_ffn_ > 0) {
      CopyAs(b.norm.data(), rows * d_, b.shared_input.data());
      ForwardMlp(use, kShared, {rows}, shared_ffn_, b.shared_input.data(), b.shared_up.data(),
                 b.shared_activated.data(), x, out);
    }
    SpreadRows(b.norm.data(), rows, options_.top_k, b.slot.data(), PaddingOf(b), d_,
               b.gathered.data(), stream_);
    ForExperts(use, [&](std::size_t e, const RowsOnLane& on) {
      const std::size_t first = b.expert_first[e];
      ForwardMlp(use, ExpertLinear(e), on, ffn_, b.gathered.data() + first * d_,
                 b.up.data() + first * UpWidth(ffn_), b.activated.data() + first * ffn_, nullptr,
                 b.results.data() + first * d_);
    });
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
      BackwardMlp(use, kShared, {rows}, shared_ffn_, 0, b.shared_up.data(), g.Residual(),
                  use.GradientPlaces(kShared + 1), g.d_narrow);
    }
    AddExpertsBackward(routing, options_.top_k, b.slot.data(), PaddingOf(b), b.results.data(),
                       g.d_residual, d_, d_results_.data(), d_weights_.data(), stream_);
    ForExperts(use, [&](std::size_t e, const RowsOnLane& on) {
      const std::size_t first = b.expert_first[e];
      BackwardMlp(use, ExpertLinear(e), on, ffn_, first, b.up.data() + first * UpWidth(ffn_),
                  d_results_.data() + first * d_, {}, d_inputs_.data() + first * d_);
    });
    RouteBackward(options_, routing, d_weights_.data(), g.loss_scale, logits_.data(), stream_);
    use.Inspect("moe.router.output.gradient", logits_.data(), experts_);
    const ParameterSlice& router = linears.Plan().Weight(use.Linear(kRouter));
    AddRouterWeightGradient(logits_.data(), b.norm.data(), rows, d_, experts_,
                            router_partials_.data(), router_place_.data(), linears.Gradient(router),
                            stream_);
    const RouterGradient router_gradient{logits_.data(), RouterWeight(use), experts_};
    if (use.pass.inspector != nullptr) {
      const DeviceArray<float> alone(rows * d_);
      AddInputGradients(rows, 0, nullptr, nullptr, router_gradient, d_, false, alone.data(),
                        stream_);
      linears.InspectGradients(use.pass, use.Linear(kRouter), rows, alone.data());
    }
    AddInputGradients(rows, options_.top_k, b.slot.data(), d_inputs_.data(), router_gradient, d_,
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
    DeviceArray<std::uint32_t> first;  // expert_first
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

  const float* RouterWeight(const DevicePartUse<T>& use) const {
    const DeviceLinears<T>& linears = *use.linears;
    return linears.Parameter(linears.Plan().Weight(use.Linear(kRouter)));
  }

  ExpertPadding PaddingOf(const Block& b) const {
    return {b.counts.data(), b.first.data(), experts_, pad_};
  }

  // run(expert, its rows on a lane) of each expert that has rows.
  template <class Run>
  void ForExperts(const DevicePartUse<T>& use, const Run& run) const {
    const Block& b = blocks_[use.block];
    const std::size_t lanes = use.linears->Fork(use.pass);
    for (std::size_t e = 0; e < experts_; ++e) {
      if (b.expert_rows[e] > 0) run(e, RowsOnLane{b.expert_rows[e], e % lanes});
    }
    use.linears->Join(lanes);
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
    b->first.CopyFrom(b->expert_first, stream_);
    PlaceSlots(routing, options_.top_k, b->first.data(), b->slot.data(), stream_);
  }

  void ForwardMlp(const DevicePartUse<T>& use, std::size_t up, const RowsOnLane& on,
                  std::size_t ffn, T* x, float* up_result, T* activated, const float* add,
                  float* out) {
    DeviceLinears<T>& linears = *use.linears;
    const std::size_t down = use.Linear(up + 1);
    linears.RunRows(use.pass, use.Linear(up), on, x, nullptr, up_result);
    const AmaxPlaces amax =
        MeasuredBy(config_.activation, linears.InputPlaces(use.pass, down, on.rows));
    Activate(config_.activation, up_result, on.rows, ffn, activated, linears.StreamOf(on.lane),
             amax);
    linears.RunRows(use.pass, down, on, activated, add, out, amax);
  }

  // `first`: the first of the MLP's rows in the memory that experts share.
  void BackwardMlp(const DevicePartUse<T>& use, std::size_t up, const RowsOnLane& on,
                   std::size_t ffn, std::size_t first, const float* up_result, const T* dy,
                   const AmaxPlaces& measured, float* dx) {
    DeviceLinears<T>& linears = *use.linears;
    float* const d_activated = d_activated_.data() + first * ffn;
    T* const d_up = d_up_.data() + first * UpWidth(ffn);
    linears.RunBackwardRows(use.pass, use.Linear(up + 1), on, dy, d_activated, measured);
    const AmaxPlaces amax =
        MeasuredBy(config_.activation, linears.GradientPlaces(use.pass, use.Linear(up), on.rows));
    ActivateBackward(config_.activation, up_result, d_activated, on.rows, ffn, d_up,
                     linears.StreamOf(on.lane), amax);
    linears.RunBackwardRows(use.pass, use.Linear(up), on, d_up, dx, amax);
  }

  ModelConfig config_;
  RouterOptions options_;
  cudaStream_t stream_;
  std::size_t d_, experts_, pad_, ffn_, shared_ffn_;
  std::vector<Block> blocks_;
  DeviceArray<float> logits_, d_inputs_, d_activated_, d_weights_, router_partials_;
  DeviceArray<std::uint32_t> rank_, before_;
  DeviceArray<GainPlace> router_place_;
  DeviceArray<T> d_results_, d_up_;
};

}  // namespace

extern const DevicePartRow kDeviceMoe;
const DevicePartRow kDeviceMoe = RowOf<Moe>("moe");

}  // namespace fp4lab::gpu
