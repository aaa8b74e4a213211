// x + out(attention(rope(qkv(rmsnorm(x))))). qkv's rows: queries, keys, values. With qk_norm,
// rope(norm(...)), where norm is an RMSNorm of each head's queries and keys over head_dim with one
// gain for all heads of queries and one for all of keys.
#include "fp4lab/nn/attention/attention.h"

#include <optional>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/step_parts.h"
#include "fp4lab/nn/attention/rope.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/train/parts/part.h"
#include "fp4lab/train/parts/part_runner.h"

namespace fp4lab {
namespace {

using View = MatrixView<float>;

enum LinearIndex { kQkv, kOut };
// With qk_norm only: queries and keys after norm and rotation, 1 / rms of each head's row.
enum ActivationIndex {
  kNorm,
  kQkvResult,
  kHeads,
  kInverseRms,
  kStatistics,
  kRotated,
  kHeadInverseRms
};
// kHeadsGradient only if the heads are not as wide as the residual stream.
enum GradientIndex { kQkvGradient, kHeadsGradient };
enum GainIndex { kNormGain, kQueryGain, kKeyGain };

std::size_t Width(const ModelConfig& c) { return static_cast<std::size_t>(c.d_model); }
std::size_t QkvWidth(const ModelConfig& c) { return QueryWidth(c) + 2 * KvWidth(c); }
std::size_t NormedHeads(const ModelConfig& c) {
  return static_cast<std::size_t>(c.heads) + KvHeads(c);
}

void CheckHeads(const ModelConfig& m, const std::string& where) {
  if (m.head_dim % 2 != 0) {
    throw Error(where + "/head_dim",
                std::to_string(m.head_dim) + " is odd; rotary positions need an even number");
  }
  if (m.full_attention_every > 0 && m.window == 0) {
    throw Error(where + "/full_attention_every",
                "needs \"window\": without one every block sees all keys");
  }
  if (m.head_dim == 0 && m.d_model % m.heads != 0) {
    throw Error(where + "/heads", std::to_string(m.heads) + " heads do not divide d_model " +
                                      std::to_string(m.d_model));
  }
  if (m.head_dim == 0 && m.d_model / m.heads % 2 != 0) {
    throw Error(where + "/heads", "d_model / heads is " + std::to_string(m.d_model / m.heads) +
                                      "; rotary positions need an even number");
  }
  if (m.kv_heads > 0 && m.heads % m.kv_heads != 0) {
    throw Error(where + "/kv_heads", std::to_string(m.kv_heads) + " do not divide the " +
                                         std::to_string(m.heads) + " heads");
  }
}

std::vector<PartWidth> Widths(const ModelConfig& c) {
  std::vector<PartWidth> widths = {{"kv_heads", "the width of keys and values",
                                    static_cast<std::int64_t>(2 * KvWidth(c)), false}};
  if (c.head_dim > 0) {
    widths.push_back(
        {"head_dim", "the width of queries", static_cast<std::int64_t>(QueryWidth(c))});
  }
  return widths;
}

std::vector<LinearShape> LinearsOf(const ModelConfig& c) {
  return {{"attention.qkv", Width(c), QkvWidth(c), false, {QueryWidth(c), KvWidth(c), KvWidth(c)}},
          {"attention.out", QueryWidth(c), Width(c), true}};
}

std::vector<GainShape> Gains(const ModelConfig& c) {
  if (!c.qk_norm) return {{"attention_norm.gain", Width(c)}};
  return {{"attention_norm.gain", Width(c)},
          {"attention.q_norm.gain", HeadDim(c)},
          {"attention.k_norm.gain", HeadDim(c)}};
}

std::size_t AttentionColumns(const ModelConfig& c) { return 2 * QueryWidth(c); }

std::vector<std::size_t> Activations(const ModelConfig& c) {
  std::vector<std::size_t> columns = {Width(c), QkvWidth(c), QueryWidth(c), 1,
                                      2 * static_cast<std::size_t>(c.heads)};
  if (c.qk_norm) columns.insert(columns.end(), {QueryWidth(c) + KvWidth(c), NormedHeads(c)});
  return columns;
}

std::vector<std::size_t> Gradients(const ModelConfig& c) {
  if (QueryWidth(c) == Width(c)) return {QkvWidth(c)};
  return {QkvWidth(c), QueryWidth(c)};
}

// The norm's channel, which queries, keys and values read.
std::vector<ChannelScale> NormScales(const ModelConfig& /*config*/, std::size_t channel) {
  return {{ChannelScale::kGain, kNormGain, channel, 1.0},
          {ChannelScale::kColumn, kQkv, channel, -1.0}};
}

// A channel of the values, which the output reads once per head of queries of its group.
std::vector<ChannelScale> ValueScales(const ModelConfig& c, std::size_t channel) {
  const std::size_t head = channel / HeadDim(c), within = channel % HeadDim(c);
  const std::size_t group = static_cast<std::size_t>(c.heads) / KvHeads(c);
  std::vector<ChannelScale> scales = {
      {ChannelScale::kRow, kQkv, QueryWidth(c) + KvWidth(c) + channel, 1.0}};
  for (std::size_t q = head * group; q < (head + 1) * group; ++q) {
    scales.push_back({ChannelScale::kColumn, kOut, q * HeadDim(c) + within, -1.0});
  }
  return scales;
}

std::vector<OutlierPlace> Outliers(const ModelConfig& c) {
  return {{"norm", Width(c), NormScales}, {"value", KvWidth(c), ValueScales}};
}

class Runner final : public PartRunner {
 public:
  explicit Runner(const ModelConfig& config)
      : config_(config),
        rope_(MakeRopeTable(static_cast<std::size_t>(config.sequence), HeadDim(config),
                            config.rope_theta)) {}

  void Forward(const PartUse& use, View x, View out) override {
    const View norm = use.activations[kNorm], qkv = use.activations[kQkvResult],
               heads = use.activations[kHeads];
    Linears& linears = *use.linears;
    linears.MakeNorm(use.pass, use.Linear(kQkv), x, use.Gain(0), config_.norm_epsilon, norm,
                     use.Column(kInverseRms), out.data);
    use.Inspect("attention_norm.output", norm);
    linears.Run(use.pass, use.Linear(kQkv), Write::kOverwrite, qkv);
    use.Inspect("attention.qkv.output", qkv);
    if (config_.qk_norm) NormHeads(use);
    ForwardHeads(use);
    use.Inspect("attention.output", heads);
    // This tensor is not rounded in place, because attention's backward pass reads it.
    linears.SetInput(use.Linear(kOut), {heads});
    linears.Run(use.pass, use.Linear(kOut), Write::kAccumulate, out);
    use.Inspect("attention.out.output", out);
  }

  void Backward(const PartUse& use, View x, const PartGradients& g) override {
    const View d_qkv = g.wide[kQkvGradient];
    Linears& linears = *use.linears;
    linears.RunBackward(use.pass, use.Linear(kOut), {g.d_residual}, HeadsGradient(g), g.parameters);
    const AttentionShape all = ShapeOf(x.rows, use.block);
    const bool together = SharesOutSequences(all);
    std::optional<StepScope> part(StepPart::kAttention);  // with the rounding of queries' gradient
    if (!together) BackwardSequences(use, g, 0, all);
    AttentionShape one = all;
    one.batch = 1;
    // The gains' gradients are sums over all rows, so the norm waits for all sequences.
    if (config_.qk_norm) {
      ParallelFor(all.batch, [&](std::size_t i) {
        const std::size_t first = i * one.sequence;
        if (together) BackwardSequences(use, g, first, one);
        RotateBack(use.block, d_qkv.Block(first, 0, one.sequence, d_qkv.cols));
      });
      NormHeadsBackward(use, g);
    }
    const LinearInput dy = linears.MakeRounded(use.pass, use.Linear(kQkv), one.sequence, d_qkv,
                                               [&](std::size_t first, std::size_t rows, bool bf16) {
                                                 if (together && !config_.qk_norm)
                                                   BackwardSequences(use, g, first, one);
                                                 const View piece =
                                                     d_qkv.Block(first, 0, rows, d_qkv.cols);
                                                 if (!config_.qk_norm) RotateBack(use.block, piece);
                                                 return bf16 ? RoundBf16(piece, piece) : 0.0f;
                                               });
    part.reset();
    use.Inspect("attention.qkv.output.gradient", d_qkv);
    linears.RunBackward(use.pass, use.Linear(kQkv), dy, g.d_narrow, g.parameters);
    RmsNormBackward(x, use.Gain(0), use.Column(kInverseRms), g.d_narrow, Write::kAccumulate,
                    g.d_residual, g.Gain(use.gains[0]));
    use.Inspect("attention_norm.input.gradient", g.d_residual);
  }

 private:
  AttentionShape ShapeOf(std::size_t rows, int block) const {
    const auto sequence = static_cast<std::size_t>(config_.sequence);
    return {.batch = rows / sequence,
            .sequence = sequence,
            .heads = static_cast<std::size_t>(config_.heads),
            .kv_heads = KvHeads(config_),
            .head_dim = HeadDim(config_),
            .window = WindowOf(config_, block),
            .scale = ScoreScale(config_, HeadDim(config_))};
  }

  // Queries, keys or values (0, 1 or 2) of rows of qkv.
  View Slice(const View& qkv, int part) const {
    const std::size_t d = QueryWidth(config_), kv = KvWidth(config_);
    if (part == 0) return qkv.Block(0, 0, qkv.rows, d);
    return qkv.Block(0, part == 1 ? d : d + kv, qkv.rows, kv);
  }
  View QueriesAndKeys(const View& qkv) const {
    return qkv.Block(0, 0, qkv.rows, qkv.cols - KvWidth(config_));
  }
  // Queries and keys as attention reads them, in that order.
  View Rotated(const PartUse& use) const {
    return config_.qk_norm ? use.activations[kRotated]
                           : QueriesAndKeys(use.activations[kQkvResult]);
  }
  View HeadsGradient(const PartGradients& g) const {
    return QueryWidth(config_) == Width(config_) ? g.d_narrow : g.wide[kHeadsGradient];
  }
  void RotateBack(int block, const View& d_qkv) const {
    if (!HasNoRope(config_, block)) RopeBackward(rope_, QueriesAndKeys(d_qkv));
  }

  // Calls each(columns of a head among queries and keys, 1 / rms of its rows, its gain's index).
  template <class Function>
  void ForNormedHeads(const PartUse& use, Function each) const {
    const std::size_t size = HeadDim(config_), rows = use.activations[kRotated].rows;
    for (std::size_t h = 0; h < NormedHeads(config_); ++h) {
      const bool query = h < static_cast<std::size_t>(config_.heads);
      each([=](const View& x) { return x.Block(0, h * size, rows, size); },
           use.Column(kHeadInverseRms).subspan(h * rows, rows), query ? kQueryGain : kKeyGain);
    }
  }
  void NormHeads(const PartUse& use) const {
    ForNormedHeads(use, [&](auto head, std::span<float> inverse_rms, GainIndex gain) {
      RmsNorm(head(use.activations[kQkvResult]), use.Gain(gain), config_.norm_epsilon,
              head(use.activations[kRotated]), inverse_rms);
    });
    use.Inspect("attention.qk_norm.output", use.activations[kRotated]);
  }
  void NormHeadsBackward(const PartUse& use, const PartGradients& g) const {
    ForNormedHeads(use, [&](auto head, std::span<float> inverse_rms, GainIndex gain) {
      const View d = head(g.wide[kQkvGradient]);
      RmsNormBackward(head(use.activations[kQkvResult]), use.Gain(gain), inverse_rms, d,
                      Write::kOverwrite, d, g.Gain(use.gains[gain]));
    });
  }

  static std::span<float> StatisticsOf(const PartUse& use, std::size_t row,
                                       const AttentionShape& shape) {
    return use.Column(kStatistics).subspan(2 * row * shape.heads, shape.StatisticsSize());
  }

  // Whether each thread takes sequences. If there are too few of them, one call covers all, and the
  // threads share out the heads.
  static bool SharesOutSequences(const AttentionShape& all) {
    return all.batch >= 2 * static_cast<std::size_t>(Threads());
  }

  // Rope and attention of the sequences from `row` on, which `shape` counts.
  void ForwardSequences(const PartUse& use, std::size_t row, const AttentionShape& shape) const {
    const auto rows = [&](const View& x) { return x.Block(row, 0, shape.Rows(), x.cols); };
    const View qkv = rows(use.activations[kQkvResult]), qk = rows(Rotated(use));
    if (!HasNoRope(config_, use.block)) Rope(rope_, qk);
    Attention(shape, Slice(qk, 0), Slice(qk, 1), Slice(qkv, 2), rows(use.activations[kHeads]),
              StatisticsOf(use, row, shape));
  }

  // One sequence at a time, so that attention finds Rope's results in the cache.
  void ForwardHeads(const PartUse& use) const {
    const StepScope part(StepPart::kAttention);
    const AttentionShape all = ShapeOf(use.activations[kHeads].rows, use.block);
    if (!SharesOutSequences(all)) return ForwardSequences(use, 0, all);
    AttentionShape one = all;
    one.batch = 1;
    ParallelFor(all.batch, [&](std::size_t i) { ForwardSequences(use, i * one.sequence, one); });
  }

  void BackwardSequences(const PartUse& use, const PartGradients& g, std::size_t row,
                         const AttentionShape& shape) const {
    const auto rows = [&](const View& x) { return x.Block(row, 0, shape.Rows(), x.cols); };
    const View qkv = rows(use.activations[kQkvResult]), qk = rows(Rotated(use)),
               d_qkv = rows(g.wide[kQkvGradient]);
    AttentionBackward(shape, Slice(qk, 0), Slice(qk, 1), Slice(qkv, 2),
                      rows(use.activations[kHeads]), StatisticsOf(use, row, shape),
                      rows(HeadsGradient(g)), {Slice(d_qkv, 0), Slice(d_qkv, 1), Slice(d_qkv, 2)});
  }

  ModelConfig config_;
  RopeTable rope_;
};

}  // namespace

extern const Part kAttention;
const Part kAttention{.name = "attention",
                      .check = CheckHeads,
                      .widths = Widths,
                      .linears = LinearsOf,
                      .gains = Gains,
                      .attention_columns = AttentionColumns,
                      .activations = Activations,
                      .gradients = Gradients,
                      .outliers = Outliers,
                      .on_gpu = true,
                      .make = MakeRunner<Runner>};

}  // namespace fp4lab
