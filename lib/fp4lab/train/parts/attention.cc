// x + out(attention(rope(qkv(rmsnorm(x))))). qkv's rows: queries, keys, values.
#include "fp4lab/nn/attention/attention.h"

#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/nn/attention/rope.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/train/parts/part.h"
#include "fp4lab/train/parts/part_runner.h"

namespace fp4lab {
namespace {

using View = MatrixView<float>;

enum LinearIndex { kQkv, kOut };
enum ActivationIndex { kNorm, kQkvResult, kHeads, kInverseRms, kStatistics };
enum GradientIndex { kQkvGradient };

std::size_t Width(const ModelConfig& c) { return static_cast<std::size_t>(c.d_model); }
std::size_t QkvWidth(const ModelConfig& c) { return Width(c) + 2 * KvWidth(c); }

void CheckHeads(const ModelConfig& m, const std::string& where) {
  if (m.d_model % m.heads != 0) {
    throw Error(where + "/heads", std::to_string(m.heads) + " heads do not divide d_model " +
                                      std::to_string(m.d_model));
  }
  if (m.d_model / m.heads % 2 != 0) {
    throw Error(where + "/heads", "d_model / heads is " + std::to_string(m.d_model / m.heads) +
                                      "; rotary positions need an even number");
  }
  if (m.kv_heads > 0 && m.heads % m.kv_heads != 0) {
    throw Error(where + "/kv_heads", std::to_string(m.kv_heads) + " do not divide the " +
                                         std::to_string(m.heads) + " heads");
  }
}

std::vector<PartWidth> Widths(const ModelConfig& c) {
  return {{"kv_heads", "the width of keys and values", static_cast<std::int64_t>(2 * KvWidth(c)),
           false}};
}

std::vector<LinearShape> LinearsOf(const ModelConfig& c) {
  return {{"attention.qkv", Width(c), QkvWidth(c), false, {Width(c), KvWidth(c), KvWidth(c)}},
          {"attention.out", Width(c), Width(c), true}};
}

std::vector<GainShape> Gains(const ModelConfig& c) { return {{"attention_norm.gain", Width(c)}}; }

std::vector<std::size_t> Activations(const ModelConfig& c) {
  return {Width(c), QkvWidth(c), Width(c), 1, 2 * static_cast<std::size_t>(c.heads)};
}

std::vector<std::size_t> Gradients(const ModelConfig& c) { return {QkvWidth(c)}; }

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
    linears.RunBackward(use.pass, use.Linear(kOut), {g.d_residual}, g.d_narrow, g.parameters);
    const AttentionShape all = ShapeOf(x.rows);
    const bool together = SharesOutSequences(all);
    if (!together) BackwardSequences(use, g, 0, all);
    AttentionShape one = all;
    one.batch = 1;
    const LinearInput dy = linears.MakeRounded(use.pass, use.Linear(kQkv), one.sequence, d_qkv,
                                               [&](std::size_t first, std::size_t rows, bool bf16) {
                                                 if (together)
                                                   BackwardSequences(use, g, first, one);
                                                 const View piece =
                                                     d_qkv.Block(first, 0, rows, d_qkv.cols);
                                                 RopeBackward(rope_, QueriesAndKeys(piece));
                                                 return bf16 ? RoundBf16(piece, piece) : 0.0f;
                                               });
    use.Inspect("attention.qkv.output.gradient", d_qkv);
    linears.RunBackward(use.pass, use.Linear(kQkv), dy, g.d_narrow, g.parameters);
    RmsNormBackward(x, use.Gain(0), use.Column(kInverseRms), g.d_narrow, Write::kAccumulate,
                    g.d_residual, g.Gain(use.gains[0]));
    use.Inspect("attention_norm.input.gradient", g.d_residual);
  }

 private:
  AttentionShape ShapeOf(std::size_t rows) const {
    const auto sequence = static_cast<std::size_t>(config_.sequence);
    return {rows / sequence, sequence, static_cast<std::size_t>(config_.heads), KvHeads(config_),
            HeadDim(config_)};
  }

  // Queries, keys or values (0, 1 or 2) of rows of qkv.
  View Slice(const View& qkv, int part) const {
    const std::size_t d = Width(config_), kv = KvWidth(config_);
    if (part == 0) return qkv.Block(0, 0, qkv.rows, d);
    return qkv.Block(0, part == 1 ? d : d + kv, qkv.rows, kv);
  }
  View QueriesAndKeys(const View& qkv) const {
    return qkv.Block(0, 0, qkv.rows, qkv.cols - KvWidth(config_));
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
    const View qkv = rows(use.activations[kQkvResult]);
    Rope(rope_, QueriesAndKeys(qkv));
    Attention(shape, Slice(qkv, 0), Slice(qkv, 1), Slice(qkv, 2), rows(use.activations[kHeads]),
              StatisticsOf(use, row, shape));
  }

  // One sequence at a time, so that attention finds Rope's results in the cache.
  void ForwardHeads(const PartUse& use) const {
    const AttentionShape all = ShapeOf(use.activations[kHeads].rows);
    if (!SharesOutSequences(all)) return ForwardSequences(use, 0, all);
    AttentionShape one = all;
    one.batch = 1;
    ParallelFor(all.batch, [&](std::size_t i) { ForwardSequences(use, i * one.sequence, one); });
  }

  void BackwardSequences(const PartUse& use, const PartGradients& g, std::size_t row,
                         const AttentionShape& shape) const {
    const auto rows = [&](const View& x) { return x.Block(row, 0, shape.Rows(), x.cols); };
    const View qkv = rows(use.activations[kQkvResult]), d_qkv = rows(g.wide[kQkvGradient]);
    AttentionBackward(shape, Slice(qkv, 0), Slice(qkv, 1), Slice(qkv, 2),
                      rows(use.activations[kHeads]), StatisticsOf(use, row, shape),
                      rows(g.d_narrow), {Slice(d_qkv, 0), Slice(d_qkv, 1), Slice(d_qkv, 2)});
  }

  ModelConfig config_;
  RopeTable rope_;
};

std::unique_ptr<PartRunner> Make(const ModelConfig& config) {
  return std::make_unique<Runner>(config);
}

}  // namespace

extern const Part kAttention;
const Part kAttention{.name = "attention",
                      .check = CheckHeads,
                      .widths = Widths,
                      .linears = LinearsOf,
                      .gains = Gains,
                      .activations = Activations,
                      .gradients = Gradients,
                      .on_gpu = true,
                      .make = Make};

}  // namespace fp4lab
