// Gated linear attention (arXiv 2312.06635): x + out(rmsnorm_h(attention(q, k, v, z)) silu(g)),
// where n = rmsnorm(x), [q; k; v; g] = qkvg(n), z = decay_up(decay_down(n)), and rmsnorm_h norms
// each head's result under one gain for all heads. nn/attention/gated_linear.h has the attention.
#include <algorithm>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/nn/activation.h"
#include "fp4lab/nn/attention/gated_linear.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/train/parts/attention_widths.h"
#include "fp4lab/train/parts/part.h"
#include "fp4lab/train/parts/part_runner.h"

namespace fp4lab {
namespace {

using View = MatrixView<float>;

enum LinearIndex { kQkvg, kDecayDown, kDecayUp, kOut };
enum ActivationIndex {
  kNorm,
  kInverseRms,
  kMixed,  // queries, keys, values, gates
  kLow,
  kDecays,
  kHeads,
  kHeadInverseRms,
  kNormed,
  kGated
};
enum GradientIndex {
  kMixedGradient,
  kLowGradient,
  kDecaysGradient,
  kNormedGradient,
  kGatedGradient,
  kNormInputGradient
};
enum GainIndex { kNormGain, kHeadGain };

void Check(const ModelConfig& c, const std::string& where) {
  const auto check = [&](const char* key, int given, int divisor) {
    if (given > 0 || c.d_model % divisor == 0) return;
    throw Error(where + "/gla/" + key, "must be given: d_model " + std::to_string(c.d_model) +
                                           " is not a multiple of " + std::to_string(divisor));
  };
  if (c.mup.base_d_model > 0) {
    throw Error(where + "/mup",
                "has no rate for the part \"gla\", whose gate_rank stays as d_model grows");
  }
  check("key_head_dim", c.gla.key_head_dim, 2 * c.heads);
  check("value_head_dim", c.gla.value_head_dim, c.heads);
}

std::vector<PartWidth> Widths(const ModelConfig& c) {
  const GlaWidths w(c);
  const auto width = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  return {
      {"gla/key_head_dim", "the width of queries, keys, values and gates", width(w.Mixed()), false},
      {"gla/key_head_dim", "the width of decays", width(w.Keys()), false},
      {"gla/value_head_dim", "the width of values", width(w.Values()), true, false},
      {"gla/gate_rank", "gate_rank", width(w.rank)}};
}

std::vector<LinearShape> LinearsOf(const ModelConfig& c) {
  const GlaWidths w(c);
  return {{"gla.qkvg", w.model, w.Mixed(), false, {w.Keys(), w.Keys(), w.Values(), w.Values()}},
          {"gla.decay_down", w.model, w.rank},
          {"gla.decay_up", w.rank, w.Keys()},
          {"gla.out", w.Values(), w.model, true}};
}

std::vector<GainShape> Gains(const ModelConfig& c) {
  const GlaWidths w(c);
  return {{"gla_norm.gain", w.model}, {"gla.head_norm.gain", w.value}};
}

std::vector<std::size_t> Activations(const ModelConfig& c) {
  const GlaWidths w(c);
  return {w.model, 1, w.Mixed(), w.rank, w.Keys(), w.Values(), w.heads, w.Values(), w.Values()};
}

std::vector<std::size_t> Gradients(const ModelConfig& c) {
  const GlaWidths w(c);
  return {w.Mixed(), w.rank, w.Keys(), w.Values(), w.Values(), w.model};
}

// The norm's channel, which both first matrices read.
std::vector<ChannelScale> NormScales(const ModelConfig& /*config*/, std::size_t channel) {
  return {{ChannelScale::kGain, kNormGain, channel, 1.0},
          {ChannelScale::kColumn, kQkvg, channel, -1.0},
          {ChannelScale::kColumn, kDecayDown, channel, -1.0}};
}

// A channel of every head's norm, which the output reads once per head.
std::vector<ChannelScale> ValueScales(const ModelConfig& c, std::size_t channel) {
  const GlaWidths w(c);
  std::vector<ChannelScale> scales = {{ChannelScale::kGain, kHeadGain, channel, 1.0}};
  for (std::size_t h = 0; h < w.heads; ++h) {
    scales.push_back({ChannelScale::kColumn, kOut, h * w.value + channel, -1.0});
  }
  return scales;
}

std::vector<OutlierPlace> Outliers(const ModelConfig& c) {
  const GlaWidths w(c);
  return {{"norm", w.model, NormScales}, {"value", w.value, ValueScales}};
}

class Runner final : public PartRunner {
 public:
  explicit Runner(const ModelConfig& config) : config_(config), w_(config) {}

  void Forward(const PartUse& use, View x, View out) override {
    const View norm = use.activations[kNorm], mixed = use.activations[kMixed],
               low = use.activations[kLow], decays = use.activations[kDecays],
               heads = use.activations[kHeads], normed = use.activations[kNormed],
               gated = use.activations[kGated];
    RmsNorm(x, use.Gain(kNormGain), config_.norm_epsilon, norm, use.Column(kInverseRms));
    ParallelFor(x.rows, [&](std::size_t r) { std::copy_n(&x(r, 0), x.cols, &out(r, 0)); });
    use.Inspect("gla_norm.output", norm);
    Multiply(use, kQkvg, norm, Write::kOverwrite, mixed);
    use.Inspect("gla.qkvg.output", mixed);
    Multiply(use, kDecayDown, norm, Write::kOverwrite, low);
    use.Inspect("gla.decay_down.output", low);
    Multiply(use, kDecayUp, low, Write::kOverwrite, decays);
    use.Inspect("gla.decay_up.output", decays);
    GatedLinearAttention(ShapeOf(x.rows), InputsOf(use), heads);
    use.Inspect("gla.attention.output", heads);
    ForHeads(use, [&](auto head, std::span<float> inverse_rms) {
      RmsNorm(head(heads), use.Gain(kHeadGain), config_.norm_epsilon, head(normed), inverse_rms);
    });
    use.Inspect("gla.head_norm.output", normed);
    Swiglu(Gates(mixed), normed, gated);
    use.Inspect("gla.gate.output", gated);
    Multiply(use, kOut, gated, Write::kAccumulate, out);
    use.Inspect("gla.out.output", out);
  }

  void Backward(const PartUse& use, View x, const PartGradients& g) override {
    const View d_mixed = g.wide[kMixedGradient], d_low = g.wide[kLowGradient],
               d_decays = g.wide[kDecaysGradient], d_normed = g.wide[kNormedGradient],
               d_gated = g.wide[kGatedGradient], d_input = g.wide[kNormInputGradient],
               d_norm = g.d_narrow;
    MultiplyBackward(use, kOut, g.d_residual, d_gated, g);
    SwigluBackward(Gates(use.activations[kMixed]), use.activations[kNormed], d_gated,
                   Gates(d_mixed), d_normed);
    ForHeads(use, [&](auto head, std::span<float> inverse_rms) {
      RmsNormBackward(head(use.activations[kHeads]), use.Gain(kHeadGain), inverse_rms,
                      head(d_normed), Write::kOverwrite, head(d_normed),
                      g.Gain(use.gains[kHeadGain]));
    });
    use.Inspect("gla.attention.output.gradient", d_normed);
    GatedLinearAttentionBackward(ShapeOf(x.rows), InputsOf(use), d_normed,
                                 {Queries(d_mixed), Keys(d_mixed), Values(d_mixed), d_decays});
    use.Inspect("gla.decay_up.output.gradient", d_decays);
    MultiplyBackward(use, kDecayUp, d_decays, d_low, g);
    MultiplyBackward(use, kDecayDown, d_low, d_input, g);
    use.Inspect("gla.qkvg.output.gradient", d_mixed);
    MultiplyBackward(use, kQkvg, d_mixed, d_norm, g);
    ParallelFor(d_norm.rows, [&](std::size_t r) {
      for (std::size_t c = 0; c < d_norm.cols; ++c) d_norm(r, c) += d_input(r, c);
    });
    RmsNormBackward(x, use.Gain(kNormGain), use.Column(kInverseRms), d_norm, Write::kAccumulate,
                    g.d_residual, g.Gain(use.gains[kNormGain]));
    use.Inspect("gla_norm.input.gradient", g.d_residual);
  }

 private:
  GatedLinearShape ShapeOf(std::size_t rows) const {
    const auto sequence = static_cast<std::size_t>(config_.sequence);
    return {.batch = rows / sequence,
            .sequence = sequence,
            .heads = w_.heads,
            .key_dim = w_.key,
            .value_dim = w_.value};
  }

  View Queries(const View& mixed) const { return mixed.Block(0, 0, mixed.rows, w_.Keys()); }
  View Keys(const View& mixed) const { return mixed.Block(0, w_.Keys(), mixed.rows, w_.Keys()); }
  View Values(const View& mixed) const {
    return mixed.Block(0, 2 * w_.Keys(), mixed.rows, w_.Values());
  }
  View Gates(const View& mixed) const {
    return mixed.Block(0, 2 * w_.Keys() + w_.Values(), mixed.rows, w_.Values());
  }
  GatedLinearInputs InputsOf(const PartUse& use) const {
    const View mixed = use.activations[kMixed];
    return {Queries(mixed), Keys(mixed), Values(mixed), use.activations[kDecays]};
  }

  // Calls each(columns of a head, 1 / rms of its rows) for every head.
  template <class Function>
  void ForHeads(const PartUse& use, Function each) const {
    const std::size_t rows = use.activations[kHeads].rows;
    for (std::size_t h = 0; h < w_.heads; ++h) {
      each([&](const View& x) { return x.Block(0, h * w_.value, rows, w_.value); },
           use.Column(kHeadInverseRms).subspan(h * rows, rows));
    }
  }

  static void Multiply(const PartUse& use, std::size_t linear, const View& x, Write write,
                       const View& y) {
    use.linears->SetInput(use.Linear(linear), {x});
    use.linears->Run(use.pass, use.Linear(linear), write, y);
  }
  static void MultiplyBackward(const PartUse& use, std::size_t linear, const View& dy,
                               const View& dx, const PartGradients& g) {
    use.linears->RunBackward(use.pass, use.Linear(linear), {dy}, dx, g.parameters);
  }

  ModelConfig config_;
  GlaWidths w_;
};

}  // namespace

extern const Part kGla;
const Part kGla{.name = "gla",
                .check = Check,
                .widths = Widths,
                .linears = LinearsOf,
                .gains = Gains,
                .activations = Activations,
                .gradients = Gradients,
                .outliers = Outliers,
                .on_gpu = true,
                .make = MakeRunner<Runner>};

}  // namespace fp4lab
