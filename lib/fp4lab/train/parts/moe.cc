// x + sum over the chosen experts of weight * expert(n) + shared(n), n = rmsnorm(x). An expert and
// the shared experts, which are one MLP as wide as all of them, are down(activation(up(n))), as in
// mlp.cc. The router (nn/router.h) reads n in binary32 and multiplies in binary32.
//
// The rows of each expert stand one after the other, padded with rows of zeros to a multiple of
// moe.pad_tokens. Zeros change neither an amax nor a sum. Every expert's GEMMs are linears of their
// own: they have their own operands, amaxes and random bits, and wgrad's blocks lie along the
// expert's tokens. An expert without tokens multiplies nothing.
#include <algorithm>
#include <string>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/nn/activation.h"
#include "fp4lab/nn/lanes/row_chunks.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/router.h"
#include "fp4lab/train/parts/part.h"
#include "fp4lab/train/parts/part_runner.h"

namespace fp4lab {
namespace {

using View = MatrixView<float>;

enum ActivationIndex {
  kNorm,
  kInverseRms,
  kLogits,
  kGathered,
  kUpResult,
  kActivated,
  kResult,
  kSharedUp,
  kSharedActivated
};
enum GradientIndex {
  kLogitsGradient,
  kSlotGradient,  // of an expert's result, then of its input
  kActivatedGradient,
  kUpGradient,
  kRouterInputGradient,
  kSharedActivatedGradient,
  kSharedUpGradient
};

std::size_t Width(const ModelConfig& c) { return static_cast<std::size_t>(c.d_model); }
std::size_t Experts(const ModelConfig& c) { return static_cast<std::size_t>(c.moe.experts); }
std::size_t TopK(const ModelConfig& c) { return static_cast<std::size_t>(c.moe.top_k); }
std::size_t Pad(const ModelConfig& c) { return static_cast<std::size_t>(c.moe.pad_tokens); }
std::size_t Ffn(const ModelConfig& c) {
  return static_cast<std::size_t>(c.moe.ffn > 0 ? c.moe.ffn : c.ffn);
}
std::size_t SharedFfn(const ModelConfig& c) {
  return static_cast<std::size_t>(c.moe.shared_experts) * Ffn(c);
}
std::size_t UpWidth(const ModelConfig& c, std::size_t ffn) {
  return c.activation == Activation::kSwiglu ? 2 * ffn : ffn;
}

// Rows of experts for each row of tokens: top_k, and what padding may add to the shortest
// micro-batch, one sequence.
std::size_t SlotsPerToken(const ModelConfig& c) {
  const std::size_t padding = Experts(c) * (Pad(c) - 1);
  return TopK(c) + DivideUp(padding, static_cast<std::size_t>(c.sequence));
}

void Check(const ModelConfig& c, const std::string& where) {
  if (c.moe.top_k <= c.moe.experts) return;
  throw Error(where + "/moe/top_k", std::to_string(c.moe.top_k) + " are more than the " +
                                        std::to_string(c.moe.experts) + " experts");
}

std::vector<PartWidth> Widths(const ModelConfig& c) {
  return {{c.moe.ffn > 0 ? "moe/ffn" : "ffn", "the width of an expert",
           static_cast<std::int64_t>(Ffn(c))},
          {"moe/pad_tokens", "pad_tokens", c.moe.pad_tokens, false, false, true}};
}

// The router, shared.up and shared.down if there are shared experts, then up and down of each
// expert.
std::vector<LinearShape> LinearsOf(const ModelConfig& c) {
  const double share = static_cast<double>(TopK(c)) / static_cast<double>(Experts(c));
  std::vector<LinearShape> linears = {{"moe.router", Width(c), Experts(c)}};
  linears[0].router = true;
  const auto add = [&](const std::string& name, std::size_t ffn, double tokens) {
    LinearShape up{name + ".up", Width(c), UpWidth(c, ffn)};
    if (c.activation == Activation::kSwiglu) up.stacked = {ffn, ffn};
    LinearShape down{name + ".down", ffn, Width(c), true};
    up.share = down.share = tokens;
    linears.insert(linears.end(), {up, down});
  };
  if (c.moe.shared_experts > 0) add("moe.shared", SharedFfn(c), 1.0);
  for (int e = 0; e < c.moe.experts; ++e) add("moe.experts." + std::to_string(e), Ffn(c), share);
  return linears;
}

std::vector<GainShape> Gains(const ModelConfig& c) { return {{"moe_norm.gain", Width(c)}}; }

std::size_t Biases(const ModelConfig& c) { return c.moe.bias_rate > 0.0f ? Experts(c) : 0; }

std::vector<std::size_t> Activations(const ModelConfig& c) {
  const std::size_t slots = SlotsPerToken(c);
  std::vector<std::size_t> columns = {
      Width(c),        1, Experts(c), slots * Width(c), slots * UpWidth(c, Ffn(c)), slots * Ffn(c),
      slots * Width(c)};
  if (c.moe.shared_experts > 0) {
    columns.insert(columns.end(), {UpWidth(c, SharedFfn(c)), SharedFfn(c)});
  }
  return columns;
}

std::vector<std::size_t> Gradients(const ModelConfig& c) {
  const std::size_t slots = SlotsPerToken(c);
  std::vector<std::size_t> columns = {Experts(c), slots * Width(c), slots * Ffn(c),
                                      slots * UpWidth(c, Ffn(c)), Width(c)};
  if (c.moe.shared_experts > 0) {
    columns.insert(columns.end(), {SharedFfn(c), UpWidth(c, SharedFfn(c))});
  }
  return columns;
}

// The norm's channel, which the router and the first matrix of each MLP read.
std::vector<ChannelScale> NormScales(const ModelConfig& c, std::size_t channel) {
  std::vector<ChannelScale> scales = {{ChannelScale::kGain, 0, channel, 1.0},
                                      {ChannelScale::kColumn, 0, channel, -1.0}};
  for (std::size_t up = 1; up < LinearsOf(c).size(); up += 2) {
    scales.push_back({ChannelScale::kColumn, up, channel, -1.0});
  }
  return scales;
}

// As in mlp.cc, in every expert and in the shared ones.
std::vector<ChannelScale> HiddenScales(const ModelConfig& c, std::size_t channel) {
  const bool gate = c.activation == Activation::kSwiglu;
  std::vector<ChannelScale> scales;
  const std::vector<LinearShape> linears = LinearsOf(c);
  for (std::size_t up = 1; up < linears.size(); up += 2) {
    const std::size_t ffn = linears[up + 1].in;
    scales.push_back({ChannelScale::kRow, up, (gate ? ffn : 0) + channel, gate ? 1.0 : 0.5});
    scales.push_back({ChannelScale::kColumn, up + 1, channel, -1.0});
  }
  return scales;
}

std::vector<OutlierPlace> Outliers(const ModelConfig& c) {
  std::vector<OutlierPlace> places = {{"norm", Width(c), NormScales}};
  if (c.activation != Activation::kGelu) places.push_back({"hidden", Ffn(c), HiddenScales});
  return places;
}

// Where the rows of a micro-batch's tokens stand among the rows of the experts.
struct Places {
  Routing routing;
  std::vector<std::size_t> first, rows;  // (E): of each expert, padding included
  std::vector<std::size_t> slot;         // (R, top_k)
  std::vector<std::size_t> token;        // of each slot; no token for padding
};
constexpr std::size_t kNoToken = static_cast<std::size_t>(-1);

void Place(std::size_t top_k, std::size_t pad, Places* places) {
  Places& p = *places;
  const std::size_t experts = p.routing.counts.size();
  p.first.assign(experts, 0);
  p.rows.assign(experts, 0);
  std::size_t end = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    p.first[e] = end;
    p.rows[e] = RoundUp(p.routing.counts[e], pad);
    end += p.rows[e];
  }
  p.token.assign(end, kNoToken);
  p.slot.resize(p.routing.chosen.size());
  std::vector<std::size_t> next = p.first;
  for (std::size_t i = 0; i < p.slot.size(); ++i) {
    p.slot[i] = next[p.routing.chosen[i]]++;
    p.token[p.slot[i]] = i / top_k;
  }
}

class Runner final : public PartRunner {
 public:
  explicit Runner(const ModelConfig& config)
      : config_(config),
        options_{.score = config.moe.score,
                 .top_k = TopK(config),
                 .normalize = config.moe.normalize,
                 .scale = config.moe.scale,
                 .balance_loss = config.moe.balance_loss},
        places_(static_cast<std::size_t>(config.layers)) {}

  void Forward(const PartUse& use, View x, View out) override {
    const View norm = use.activations[kNorm];
    RmsNorm(x, use.Gain(0), config_.norm_epsilon, norm, use.Column(kInverseRms));
    ParallelFor(x.rows, [&](std::size_t r) { std::copy_n(&x(r, 0), x.cols, &out(r, 0)); });
    use.Inspect("moe_norm.output", norm);
    Places& places = places_[static_cast<std::size_t>(use.block)];
    ForwardRouter(use, norm, &places);
    if (config_.moe.shared_experts > 0) {
      ForwardMlp(use, kSharedLinear, norm, use.activations[kSharedUp],
                 use.activations[kSharedActivated], Write::kAccumulate, out);
    }
    Gather(places, norm, Slots(use.activations[kGathered], places.token.size(), norm.cols));
    for (std::size_t e = 0; e < Experts(config_); ++e) {
      if (places.rows[e] == 0) continue;
      const auto rows = [&](ActivationIndex i, std::size_t cols) {
        return Rows(use.activations[i], places, e, cols);
      };
      ForwardMlp(use, ExpertLinear(e), rows(kGathered, norm.cols),
                 rows(kUpResult, UpWidth(config_, Ffn(config_))), rows(kActivated, Ffn(config_)),
                 Write::kOverwrite, rows(kResult, norm.cols));
    }
    AddResults(places, Slots(use.activations[kResult], places.token.size(), norm.cols), out);
    use.Inspect("moe.output", out);
  }

  void Backward(const PartUse& use, View x, const PartGradients& g) override {
    const View norm = use.activations[kNorm], d_norm = g.d_narrow;
    const Places& places = places_[static_cast<std::size_t>(use.block)];
    if (config_.moe.shared_experts > 0) {
      BackwardMlp(use, kSharedLinear, use.activations[kSharedUp], g.d_residual,
                  g.wide[kSharedActivatedGradient], g.wide[kSharedUpGradient], d_norm,
                  g.parameters);
    } else {
      ParallelFor(d_norm.rows,
                  [&](std::size_t r) { std::fill_n(&d_norm(r, 0), d_norm.cols, 0.0f); });
    }
    const std::size_t slots = places.token.size();
    const View d_slots = Slots(g.wide[kSlotGradient], slots, norm.cols);
    Matrix<float> d_weights(x.rows, TopK(config_));
    BackwardResults(places, Slots(use.activations[kResult], slots, norm.cols), g.d_residual,
                    d_slots, d_weights.View());
    const std::size_t ffn = Ffn(config_), up = UpWidth(config_, ffn);
    for (std::size_t e = 0; e < Experts(config_); ++e) {
      if (places.rows[e] == 0) continue;
      const View rows = Rows(g.wide[kSlotGradient], places, e, norm.cols);
      BackwardMlp(use, ExpertLinear(e), Rows(use.activations[kUpResult], places, e, up), rows,
                  Rows(g.wide[kActivatedGradient], places, e, ffn),
                  Rows(g.wide[kUpGradient], places, e, up), rows, g.parameters);
    }
    const View d_logits = g.wide[kLogitsGradient], d_router = g.wide[kRouterInputGradient];
    RouteBackward(options_, places.routing, d_weights.View(), g.loss_scale, d_logits);
    use.Inspect("moe.router.output.gradient", d_logits);
    use.linears->RunBackward(use.pass, use.Linear(kRouterLinear), {d_logits}, d_router,
                             g.parameters);
    AddInputs(places, d_slots, d_router, d_norm);
    if (use.balance != nullptr) AddSurplus(places.routing, g.Gain(*use.balance));
    RmsNormBackward(x, use.Gain(0), use.Column(kInverseRms), d_norm, Write::kAccumulate,
                    g.d_residual, g.Gain(use.gains[0]));
    use.Inspect("moe_norm.input.gradient", g.d_residual);
  }

 private:
  static constexpr std::size_t kRouterLinear = 0, kSharedLinear = 1;

  // The expert's up; down follows.
  std::size_t ExpertLinear(std::size_t e) const {
    return (config_.moe.shared_experts > 0 ? 3 : 1) + 2 * e;
  }

  // Memory of columns a token, as rows of experts.
  static View Slots(const View& memory, std::size_t slots, std::size_t cols) {
    Expects(slots * cols <= memory.size(), "moe: room for the experts' rows");
    return {memory.data, slots, cols};
  }
  static View Rows(const View& memory, const Places& places, std::size_t e, std::size_t cols) {
    return Slots(memory, places.token.size(), cols).Block(places.first[e], 0, places.rows[e], cols);
  }

  void ForwardRouter(const PartUse& use, View norm, Places* places) const {
    const View logits = use.activations[kLogits];
    use.linears->SetInput(use.Linear(kRouterLinear), {norm});
    use.linears->Run(use.pass, use.Linear(kRouterLinear), Write::kOverwrite, logits);
    use.Inspect("moe.router.output", logits);
    const std::span<const float> bias =
        use.balance == nullptr ? std::span<const float>() : use.linears->Gain(*use.balance);
    Route(options_, logits, bias, &places->routing);
    Place(options_.top_k, Pad(config_), places);
  }

  void ForwardMlp(const PartUse& use, std::size_t up, View x, View up_result, View activated,
                  Write write, View out) const {
    Linears& linears = *use.linears;
    linears.SetInput(use.Linear(up), {x});
    linears.Run(use.pass, use.Linear(up), Write::kOverwrite, up_result);
    const std::size_t f = activated.cols;
    ParallelRowChunks(activated.rows, f, [&](std::size_t first, std::size_t rows) {
      const View from = up_result.Block(first, 0, rows, up_result.cols),
                 to = activated.Block(first, 0, rows, f);
      switch (config_.activation) {
        case Activation::kSquaredRelu:
          return SquaredRelu(from, to);
        case Activation::kGelu:
          return Gelu(from, to);
        case Activation::kSwiglu:
          return Swiglu(from.Block(0, 0, rows, f), from.Block(0, f, rows, f), to);
      }
    });
    linears.SetInput(use.Linear(up + 1), {activated});
    linears.Run(use.pass, use.Linear(up + 1), write, out);
  }

  // dx may be dy.
  void BackwardMlp(const PartUse& use, std::size_t up, View up_result, View dy, View d_activated,
                   View d_up, View dx, std::span<float> parameters) const {
    Linears& linears = *use.linears;
    linears.RunBackward(use.pass, use.Linear(up + 1), {dy}, d_activated, parameters);
    const std::size_t f = d_activated.cols;
    ParallelRowChunks(d_up.rows, f, [&](std::size_t first, std::size_t rows) {
      const View from = up_result.Block(first, 0, rows, up_result.cols),
                 d = d_activated.Block(first, 0, rows, f),
                 to = d_up.Block(first, 0, rows, d_up.cols);
      switch (config_.activation) {
        case Activation::kSquaredRelu:
          return SquaredReluBackward(from, d, to);
        case Activation::kGelu:
          return GeluBackward(from, d, to);
        case Activation::kSwiglu:
          return SwigluBackward(from.Block(0, 0, rows, f), from.Block(0, f, rows, f), d,
                                to.Block(0, 0, rows, f), to.Block(0, f, rows, f));
      }
    });
    linears.RunBackward(use.pass, use.Linear(up), {d_up}, dx, parameters);
  }

  // The tokens that each expert had more than the mean.
  void AddSurplus(const Routing& routing, std::span<float> gradient) const {
    const auto choices = static_cast<double>(routing.chosen.size());
    const double mean = choices / static_cast<double>(routing.counts.size());
    for (std::size_t e = 0; e < gradient.size(); ++e) {
      gradient[e] += static_cast<float>(static_cast<double>(routing.counts[e]) - mean);
    }
  }

  static void Gather(const Places& places, View norm, View gathered) {
    ParallelFor(gathered.rows, [&](std::size_t s) {
      const std::size_t token = places.token[s];
      if (token == kNoToken) {
        std::fill_n(&gathered(s, 0), gathered.cols, 0.0f);
      } else {
        std::copy_n(&norm(token, 0), norm.cols, &gathered(s, 0));
      }
    });
  }

  // out += the weighted results of the token's experts, in the order of its choices.
  void AddResults(const Places& places, View results, View out) const {
    const std::size_t top_k = options_.top_k;
    ParallelFor(out.rows, [&](std::size_t r) {
      for (std::size_t k = 0; k < top_k; ++k) {
        const float weight = places.routing.weights(r, k);
        const std::size_t slot = places.slot[r * top_k + k];
        for (std::size_t c = 0; c < out.cols; ++c) out(r, c) += weight * results(slot, c);
      }
    });
  }

  void BackwardResults(const Places& places, View results, View dy, View d_results,
                       View d_weights) const {
    const std::size_t top_k = options_.top_k;
    ParallelFor(d_results.rows, [&](std::size_t s) {
      if (places.token[s] == kNoToken) std::fill_n(&d_results(s, 0), d_results.cols, 0.0f);
    });
    ParallelFor(dy.rows, [&](std::size_t r) {
      for (std::size_t k = 0; k < top_k; ++k) {
        const float weight = places.routing.weights(r, k);
        const std::size_t slot = places.slot[r * top_k + k];
        double dot = 0.0;
        for (std::size_t c = 0; c < dy.cols; ++c) {
          d_results(slot, c) = weight * dy(r, c);
          dot += double{dy(r, c)} * results(slot, c);
        }
        d_weights(r, k) = static_cast<float>(dot);
      }
    });
  }

  // d_norm += the gradients of the token's inputs to its experts, in order, and to the router.
  void AddInputs(const Places& places, View d_inputs, View d_router, View d_norm) const {
    const std::size_t top_k = options_.top_k;
    ParallelFor(d_norm.rows, [&](std::size_t r) {
      for (std::size_t k = 0; k < top_k; ++k) {
        const std::size_t slot = places.slot[r * top_k + k];
        for (std::size_t c = 0; c < d_norm.cols; ++c) d_norm(r, c) += d_inputs(slot, c);
      }
      for (std::size_t c = 0; c < d_norm.cols; ++c) d_norm(r, c) += d_router(r, c);
    });
  }

  ModelConfig config_;
  RouterOptions options_;
  std::vector<Places> places_;  // of each block, from its last Forward
};

}  // namespace

extern const Part kMoe;
const Part kMoe{.name = "moe",
                .check = Check,
                .widths = Widths,
                .linears = LinearsOf,
                .gains = Gains,
                .balance = Biases,
                .activations = Activations,
                .gradients = Gradients,
                .outliers = Outliers,
                .on_gpu = true,
                .make = MakeRunner<Runner>};

}  // namespace fp4lab
