// Multi-head latent attention: x + out(attention(q, k, v)), n = rmsnorm(x), of each head
//   q        = q_b(rmsnorm(q_a(n))), or q(n) without a latent of queries
//   [c; p]   = kv_a(n)                the latent of keys and values, and the keys with positions
//   [k_h; v] = kv_b(rmsnorm(c))       k_h without positions
//   k        = [k_h; rope(p)]         p is the same for all heads; rope of q's last columns, too
// Rows of kv_b: the keys of all heads, then the values of all heads. Rows of q: each head's columns
// without positions, then those with them.
#include <algorithm>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/step_parts.h"
#include "fp4lab/nn/attention/attention.h"
#include "fp4lab/nn/attention/rope.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/train/parts/attention_widths.h"
#include "fp4lab/train/parts/part.h"
#include "fp4lab/train/parts/part_runner.h"

namespace fp4lab {
namespace {

using View = MatrixView<float>;

// The activations; those of the queries' latent stand there only if there is such a latent.
enum ActivationIndex {
  kNorm,
  kInverseRms,
  kQueries,
  kCompressed,
  kLatent,
  kLatentInverseRms,
  kExpanded,
  kKeys,
  kHeads,
  kStatistics,
  kQueryCompressed,
  kQueryLatent,
  kQueryInverseRms
};
enum GradientIndex {
  kHeadsGradient,
  kQueriesGradient,
  kKeysGradient,
  kExpandedGradient,
  kCompressedGradient,
  kLatentGradient,
  kQueryInputGradient,
  kQueryLatentGradient
};
enum GainIndex { kNormGain, kLatentGain, kQueryGain };

void Check(const ModelConfig& c, const std::string& where) {
  if (std::find(c.parts.begin(), c.parts.end(), "attention") != c.parts.end()) {
    throw Error(where + "/parts", "\"mla\" stands in place of \"attention\"; a block has one");
  }
  if (c.qk_norm) {
    throw Error(where + "/qk_norm", "the part \"mla\" norms its latents, not its heads");
  }
}

std::vector<PartWidth> PartWidths(const ModelConfig& c) {
  const MlaWidths w(c);
  const auto width = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  std::vector<PartWidth> widths = {
      {"mla/qk_nope_head_dim", "the width of queries", width(w.Queries()), false},
      {"mla/kv_lora_rank", "kv_lora_rank", width(w.latent), true, false},
      {"mla/qk_rope_head_dim", "kv_lora_rank + qk_rope_head_dim", width(w.Compressed()), false},
      {"mla/v_head_dim", "the width of keys and values", width(w.Expanded()), false},
      {"mla/v_head_dim", "the width of values", width(w.Values()), true, false}};
  if (w.query_latent > 0) {
    widths.push_back({"mla/q_lora_rank", "q_lora_rank", width(w.query_latent)});
  }
  return widths;
}

std::vector<LinearShape> LinearsOf(const ModelConfig& c) {
  const MlaWidths w(c);
  std::vector<LinearShape> linears;
  if (w.query_latent > 0) {
    linears = {{"attention.q_a", w.model, w.query_latent},
               {"attention.q_b", w.query_latent, w.Queries()}};
  } else {
    linears = {{"attention.q", w.model, w.Queries()}};
  }
  const LinearShape rest[] = {
      {"attention.kv_a", w.model, w.Compressed(), false, {w.latent, w.rope}},
      {"attention.kv_b", w.latent, w.Expanded(), false, {w.Keys(), w.Values()}},
      {"attention.out", w.Values(), w.model, true}};
  linears.insert(linears.end(), std::begin(rest), std::end(rest));
  return linears;
}

std::vector<GainShape> Gains(const ModelConfig& c) {
  const MlaWidths w(c);
  std::vector<GainShape> gains = {{"attention_norm.gain", w.model},
                                  {"attention.kv_norm.gain", w.latent}};
  if (w.query_latent > 0) gains.push_back({"attention.q_norm.gain", w.query_latent});
  return gains;
}

std::size_t AttentionColumns(const ModelConfig& c) {
  const MlaWidths w(c);
  return w.Queries() + w.Values();
}

std::vector<std::size_t> Activations(const ModelConfig& c) {
  const MlaWidths w(c);
  std::vector<std::size_t> columns = {w.model,    1,          w.Queries(),  w.Compressed(),
                                      w.latent,   1,          w.Expanded(), w.Queries(),
                                      w.Values(), 2 * w.heads};
  if (w.query_latent > 0) columns.insert(columns.end(), {w.query_latent, w.query_latent, 1});
  return columns;
}

std::vector<std::size_t> Gradients(const ModelConfig& c) {
  const MlaWidths w(c);
  std::vector<std::size_t> columns = {w.Values(),     w.Queries(), w.Queries(), w.Expanded(),
                                      w.Compressed(), w.latent,    w.model};
  if (w.query_latent > 0) columns.push_back(w.query_latent);
  return columns;
}

// The norm's channel, which the first matrices of queries and of keys and values read.
std::vector<ChannelScale> NormScales(const ModelConfig& c, std::size_t channel) {
  return {{ChannelScale::kGain, kNormGain, channel, 1.0},
          {ChannelScale::kColumn, 0, channel, -1.0},
          {ChannelScale::kColumn, MlaWidths(c).KvA(), channel, -1.0}};
}

// A channel of the values, which the output reads.
std::vector<ChannelScale> ValueScales(const ModelConfig& c, std::size_t channel) {
  const MlaWidths w(c);
  return {{ChannelScale::kRow, w.KvB(), w.Keys() + channel, 1.0},
          {ChannelScale::kColumn, w.Out(), channel, -1.0}};
}

std::vector<OutlierPlace> Outliers(const ModelConfig& c) {
  const MlaWidths w(c);
  return {{"norm", w.model, NormScales}, {"value", w.Values(), ValueScales}};
}

void CopyRow(const View& from, std::size_t row, std::size_t first, std::size_t count,
             const View& to, std::size_t to_first) {
  std::copy_n(&from(row, first), count, &to(row, to_first));
}

class Runner final : public PartRunner {
 public:
  explicit Runner(const ModelConfig& config)
      : config_(config),
        w_(config),
        rope_(
            MakeRopeTable(static_cast<std::size_t>(config.sequence), w_.rope, config.rope_theta)) {}

  void Forward(const PartUse& use, View x, View out) override {
    const View norm = use.activations[kNorm], queries = use.activations[kQueries],
               compressed = use.activations[kCompressed], latent = use.activations[kLatent],
               expanded = use.activations[kExpanded], heads = use.activations[kHeads];
    RmsNorm(x, use.Gain(kNormGain), config_.norm_epsilon, norm, use.Column(kInverseRms));
    ParallelFor(x.rows, [&](std::size_t r) { CopyRow(x, r, 0, x.cols, out, 0); });
    use.Inspect("attention_norm.output", norm);
    ForwardQueries(use, norm);
    use.Inspect("attention.q.output", queries);
    Multiply(use, w_.KvA(), norm, Write::kOverwrite, compressed);
    use.Inspect("attention.kv_a.output", compressed);
    RmsNorm(Latent(compressed), use.Gain(kLatentGain), config_.norm_epsilon, latent,
            use.Column(kLatentInverseRms));
    use.Inspect("attention.kv_norm.output", latent);
    Multiply(use, w_.KvB(), latent, Write::kOverwrite, expanded);
    use.Inspect("attention.kv_b.output", expanded);
    ForwardHeads(use);
    use.Inspect("attention.output", heads);
    Multiply(use, w_.Out(), heads, Write::kAccumulate, out);
    use.Inspect("attention.out.output", out);
  }

  void Backward(const PartUse& use, View x, const PartGradients& g) override {
    const View d_queries = g.wide[kQueriesGradient], d_expanded = g.wide[kExpandedGradient],
               d_compressed = g.wide[kCompressedGradient], d_latent = g.wide[kLatentGradient],
               d_norm = g.d_narrow;
    MultiplyBackward(use, w_.Out(), g.d_residual, g.wide[kHeadsGradient], g);
    BackwardHeads(use, g);
    use.Inspect("attention.kv_b.output.gradient", d_expanded);
    MultiplyBackward(use, w_.KvB(), d_expanded, d_latent, g);
    RmsNormBackward(Latent(use.activations[kCompressed]), use.Gain(kLatentGain),
                    use.Column(kLatentInverseRms), d_latent, Write::kOverwrite,
                    Latent(d_compressed), g.Gain(use.gains[kLatentGain]));
    use.Inspect("attention.kv_a.output.gradient", d_compressed);
    MultiplyBackward(use, w_.KvA(), d_compressed, d_norm, g);
    use.Inspect("attention.q.output.gradient", d_queries);
    BackwardQueries(use, g);
    const View d_query_input = g.wide[kQueryInputGradient];
    ParallelFor(d_norm.rows, [&](std::size_t r) {
      for (std::size_t c = 0; c < d_norm.cols; ++c) d_norm(r, c) += d_query_input(r, c);
    });
    RmsNormBackward(x, use.Gain(kNormGain), use.Column(kInverseRms), d_norm, Write::kAccumulate,
                    g.d_residual, g.Gain(use.gains[kNormGain]));
    use.Inspect("attention_norm.input.gradient", g.d_residual);
  }

 private:
  AttentionShape ShapeOf(std::size_t rows, int block) const {
    const auto sequence = static_cast<std::size_t>(config_.sequence);
    return {.batch = rows / sequence,
            .sequence = sequence,
            .heads = w_.heads,
            .kv_heads = w_.heads,
            .head_dim = w_.Head(),
            .window = WindowOf(config_, block),
            .value_dim = w_.value,
            .scale = ScoreScale(config_, w_.Head())};
  }

  View Latent(const View& compressed) const {
    return compressed.Block(0, 0, compressed.rows, w_.latent);
  }
  View SharedPositions(const View& compressed) const {
    return compressed.Block(0, w_.latent, compressed.rows, w_.rope);
  }
  // The columns with positions of a head's queries.
  View Positions(const View& queries, std::size_t head) const {
    return queries.Block(0, head * w_.Head() + w_.nope, queries.rows, w_.rope);
  }
  View Values(const View& expanded) const {
    return expanded.Block(0, w_.Keys(), expanded.rows, w_.Values());
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

  void ForwardQueries(const PartUse& use, const View& norm) const {
    const View queries = use.activations[kQueries];
    if (w_.query_latent == 0) return Multiply(use, 0, norm, Write::kOverwrite, queries);
    const View compressed = use.activations[kQueryCompressed],
               latent = use.activations[kQueryLatent];
    Multiply(use, 0, norm, Write::kOverwrite, compressed);
    use.Inspect("attention.q_a.output", compressed);
    RmsNorm(compressed, use.Gain(kQueryGain), config_.norm_epsilon, latent,
            use.Column(kQueryInverseRms));
    use.Inspect("attention.q_norm.output", latent);
    Multiply(use, 1, latent, Write::kOverwrite, queries);
  }
  void BackwardQueries(const PartUse& use, const PartGradients& g) const {
    const View d_queries = g.wide[kQueriesGradient], d_input = g.wide[kQueryInputGradient];
    if (w_.query_latent == 0) return MultiplyBackward(use, 0, d_queries, d_input, g);
    const View d_latent = g.wide[kQueryLatentGradient];
    MultiplyBackward(use, 1, d_queries, d_latent, g);
    RmsNormBackward(use.activations[kQueryCompressed], use.Gain(kQueryGain),
                    use.Column(kQueryInverseRms), d_latent, Write::kOverwrite, d_latent,
                    g.Gain(use.gains[kQueryGain]));
    use.Inspect("attention.q_a.output.gradient", d_latent);
    MultiplyBackward(use, 0, d_latent, d_input, g);
  }

  // Rotation and attention.
  void ForwardHeads(const PartUse& use) const {
    const StepScope part(StepPart::kAttention);
    const View queries = use.activations[kQueries], compressed = use.activations[kCompressed],
               expanded = use.activations[kExpanded], keys = use.activations[kKeys];
    if (!HasNoRope(config_, use.block)) {
      for (std::size_t h = 0; h < w_.heads; ++h) Rope(rope_, Positions(queries, h));
      Rope(rope_, SharedPositions(compressed));
    }
    JoinKeys(compressed, expanded, keys);
    Attention(ShapeOf(queries.rows, use.block), queries, keys, Values(expanded),
              use.activations[kHeads], use.Column(kStatistics));
  }
  void BackwardHeads(const PartUse& use, const PartGradients& g) const {
    const StepScope part(StepPart::kAttention);
    const View queries = use.activations[kQueries], expanded = use.activations[kExpanded];
    const View d_queries = g.wide[kQueriesGradient], d_keys = g.wide[kKeysGradient],
               d_expanded = g.wide[kExpandedGradient], d_compressed = g.wide[kCompressedGradient];
    AttentionBackward(ShapeOf(queries.rows, use.block), queries, use.activations[kKeys],
                      Values(expanded), use.activations[kHeads], use.Column(kStatistics),
                      g.wide[kHeadsGradient], {d_queries, d_keys, Values(d_expanded)});
    JoinKeysBackward(d_keys, d_compressed, d_expanded);
    if (HasNoRope(config_, use.block)) return;
    for (std::size_t h = 0; h < w_.heads; ++h) RopeBackward(rope_, Positions(d_queries, h));
    RopeBackward(rope_, SharedPositions(d_compressed));
  }

  // The keys of each head: its own columns, then those that all heads share.
  void JoinKeys(const View& compressed, const View& expanded, const View& keys) const {
    ParallelFor(keys.rows, [&](std::size_t r) {
      for (std::size_t h = 0; h < w_.heads; ++h) {
        CopyRow(expanded, r, h * w_.nope, w_.nope, keys, h * w_.Head());
        CopyRow(compressed, r, w_.latent, w_.rope, keys, h * w_.Head() + w_.nope);
      }
    });
  }
  void JoinKeysBackward(const View& d_keys, const View& d_compressed,
                        const View& d_expanded) const {
    ParallelFor(d_keys.rows, [&](std::size_t r) {
      float* const shared = &d_compressed(r, w_.latent);
      std::fill_n(shared, w_.rope, 0.0f);
      for (std::size_t h = 0; h < w_.heads; ++h) {
        CopyRow(d_keys, r, h * w_.Head(), w_.nope, d_expanded, h * w_.nope);
        const float* const own = &d_keys(r, h * w_.Head() + w_.nope);
        for (std::size_t i = 0; i < w_.rope; ++i) shared[i] += own[i];
      }
    });
  }

  ModelConfig config_;
  MlaWidths w_;
  RopeTable rope_;
};

}  // namespace

extern const Part kMla;
const Part kMla{.name = "mla",
                .check = Check,
                .widths = PartWidths,
                .linears = LinearsOf,
                .gains = Gains,
                .attention_columns = AttentionColumns,
                .activations = Activations,
                .gradients = Gradients,
                .outliers = Outliers,
                .on_gpu = true,
                .make = MakeRunner<Runner>};

}  // namespace fp4lab
