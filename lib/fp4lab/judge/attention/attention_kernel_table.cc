// The table of wrong attention kernels.
#include <algorithm>
#include <array>
#include <functional>
#include <numbers>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/attention/attention_kernel.h"

namespace fp4lab {
namespace {

using Attending = AttentionPlan;
using Operands = std::vector<AttentionOperand>;

template <class T>
bool SetTo(T& member, T value) {
  const bool changed = member != value;
  member = value;
  return changed;
}

template <class Change>
bool InAll(Operands& operands, Change change) {
  bool changed = false;
  for (AttentionOperand& x : operands) changed = change(x.codes) || changed;
  return changed;
}

bool TensorScaleMissing(Operands& operands) {
  bool changed = false;
  for (AttentionOperand& x : operands) {
    changed =
        changed || std::any_of(x.decode.begin(), x.decode.end(), [](double d) { return d != 1.0; });
    x.decode.clear();
  }
  return changed;
}

bool NeighbourCodesSwapped(MmaOperand& x) {
  if (x.format.bits != 4) return false;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c + 1 < x.cols; c += 2) {
      std::swap(x.codes[r * x.cols + c], x.codes[r * x.cols + c + 1]);
    }
  }
  return true;
}

// Scales read from other places of their grid. `from` gives the place of scale i.
template <class From>
bool ScalesFrom(MmaOperand& x, From from) {
  if (!x.IsScaled()) return false;
  const std::vector<std::uint8_t> before = x.scales;
  for (std::size_t i = 0; i < before.size(); ++i) x.scales[i] = before[from(x, i)];
  return x.scales != before;
}

bool ScalesByColumns(MmaOperand& x) {
  return ScalesFrom(x, [](const MmaOperand& m, std::size_t i) {
    return i % m.ScaleCols() * m.rows + i / m.ScaleCols();
  });
}

bool ScalesOfRowZero(MmaOperand& x) {
  return ScalesFrom(x, [](const MmaOperand& m, std::size_t i) { return i % m.ScaleCols(); });
}

bool WholeScaleTiles(const MmaOperand& x) {
  return x.IsScaled() && x.rows % 128 == 0 && x.ScaleCols() % 4 == 0;
}

bool LinearAsTiles(MmaOperand& x) {
  return WholeScaleTiles(x) && ScalesFrom(x, [](const MmaOperand& m, std::size_t i) {
           return Offset128x4(i / m.ScaleCols(), i % m.ScaleCols(), m.ScaleCols());
         });
}

bool TilesAsLinear(MmaOperand& x) {
  if (!WholeScaleTiles(x)) return false;
  const std::vector<std::uint8_t> before = x.scales;
  for (std::size_t i = 0; i < before.size(); ++i) {
    x.scales[Offset128x4(i / x.ScaleCols(), i % x.ScaleCols(), x.ScaleCols())] = before[i];
  }
  return x.scales != before;
}

// The place of scale i of an order of four rows in turn under every scale (TensorRT-LLM's V).
std::size_t OfFourRows(const MmaOperand& x, std::size_t i) {
  const std::size_t row = i / x.ScaleCols(), col = i % x.ScaleCols();
  return row / 4 * 4 * x.ScaleCols() + col * 4 + row % 4;
}

bool LinearAsFourRows(MmaOperand& x) { return x.rows % 4 == 0 && ScalesFrom(x, OfFourRows); }

bool FourRowsAsLinear(MmaOperand& x) {
  if (!x.IsScaled() || x.rows % 4 != 0) return false;
  const std::vector<std::uint8_t> before = x.scales;
  for (std::size_t i = 0; i < before.size(); ++i) x.scales[OfFourRows(x, i)] = before[i];
  return x.scales != before;
}

bool HeadsOf(Attending& plan, std::size_t (*of)(std::size_t kv, std::size_t h, std::size_t count)) {
  const std::vector<std::size_t> before = plan.kv_of;
  for (std::size_t h = 0; h < plan.kv_of.size(); ++h) {
    plan.kv_of[h] = of(plan.kv_of[h], h, plan.k.size());
  }
  return plan.kv_of != before;
}

bool NextHead(Operands& operands) {
  if (operands.size() < 2) return false;
  std::rotate(operands.begin(), operands.begin() + 1, operands.end());
  return true;
}

bool TailOfKeysDropped(Attending& plan, std::size_t unit) {
  const std::size_t whole = plan.keys / unit * unit;
  if (whole == 0) return false;
  return SetTo(plan.keys, whole);
}

bool KeysPadded(Attending& plan) {
  const std::size_t tile = plan.scheme.tile;
  if (plan.causal || tile == 0) return false;
  return SetTo(plan.padded_keys, (tile - plan.keys % tile) % tile);
}

// The operands that the same inputs have under another scheme.
template <class Change, class Take>
bool MadeOtherwise(Attending& plan, Change change, Take take) {
  if (plan.operands_given) return false;
  AttentionScheme other = plan.scheme;
  change(other);
  take(PlanOf(plan.in, other));
  return true;
}

bool VAlongOtherAxis(Attending& plan) {
  if (plan.v.empty() || !plan.v[0].codes.IsScaled() || plan.scheme.decoded_to_bf16) return false;
  return MadeOtherwise(
      plan, [](AttentionScheme& s) { s.v_along_keys = !s.v_along_keys; },
      [&](Attending other) {
        plan.v = std::move(other.v);
        plan.scheme.v_along_keys = !plan.scheme.v_along_keys;
      });
}

bool QMeanKept(Attending& plan) {
  if (plan.scheme.q_mean_rows == 0) return false;
  return MadeOtherwise(
      plan, [](AttentionScheme& s) { s.q_mean_rows = 0; },
      [&](Attending other) { plan.q = std::move(other.q); });
}

bool KMeanKept(Attending& plan) {
  if (!plan.scheme.k_mean) return false;
  return MadeOtherwise(
      plan, [](AttentionScheme& s) { s.k_mean = s.k_mean_of_all = false; },
      [&](Attending other) {
        plan.k = std::move(other.k);
        plan.correction = std::move(other.correction);
      });
}

// The K that is quantized has its mean; the mean's part of the logits does not.
bool KMeanKeptInCodes(Attending& plan) {
  if (!plan.scheme.k_mean || plan.scheme.q_mean_rows == 0) return false;
  return MadeOtherwise(
      plan, [](AttentionScheme& s) { s.k_mean = s.k_mean_of_all = false; },
      [&](Attending other) { plan.correction = std::move(other.correction); });
}

bool QMeanOfFirstRows(Attending& plan) {
  bool changed = false;
  for (Matrix<double>& correction : plan.correction) {
    for (std::size_t g = 1; g < correction.rows; ++g) {
      for (std::size_t j = 0; j < correction.cols; ++j) {
        changed = SetTo(correction(g, j), correction(0, j)) || changed;
      }
    }
  }
  return changed;
}

bool QMeanNotAddedBack(Attending& plan) {
  const bool changed = !plan.correction.empty();
  plan.correction.clear();
  return changed;
}

bool HasWeightBlocks(const Attending& plan) { return plan.scheme.p.group > 0; }

bool LevelMissing(Attending& plan) {
  PRule& p = plan.scheme.p;
  const bool top = SetTo(p.top, 1.0), level = SetTo(p.level, PLevel::kNone);
  return HasWeightBlocks(plan) && (top || level);
}

bool LevelNotUndone(Attending& plan) {
  if (plan.scheme.p.top == 1.0) return false;
  plan.result_factor *= plan.scheme.p.top;
  return true;
}

// clang-format off
constexpr auto kWrongAttention = std::to_array<WrongAttention>({
    // Logits.
    {"scale-missing", "does not multiply the logits by the scale", nullptr,
     [](Attending& p) { return SetTo(p.scale, 1.0); }},
    {"scale-twice", "multiplies the logits by the scale twice", nullptr,
     [](Attending& p) { return SetTo(p.scale, p.scale * p.scale); }},
    {"base-2-for-e", "takes 2 to the power of the logits and leaves log2 e out", nullptr,
     [](Attending& p) { return SetTo(p.exponent_factor, std::numbers::ln2); }},
    {"log2e-twice", "takes e to the power of logits that it multiplied by log2 e", nullptr,
     [](Attending& p) { return SetTo(p.exponent_factor, std::numbers::log2e); }},
    {"q-mean-not-added-back", "does not add the part of Q's mean to the logits", nullptr, QMeanNotAddedBack},
    {"q-mean-of-first-rows", "adds the mean of the first rows of Q for all rows", nullptr, QMeanOfFirstRows},
    {"q-mean-not-subtracted", "adds the part of Q's mean, which it did not subtract", nullptr, QMeanKept},
    {"k-mean-not-subtracted", "quantizes K with its mean", nullptr, KMeanKept},
    {"k-mean-in-correction", "multiplies Q's mean by K with its mean", nullptr, KMeanKeptInCodes},
    // The mask.
    {"mask-missing", "does not mask", nullptr, [](Attending& p) { return SetTo(p.causal, false); }},
    {"mask-one-key-more", "lets every query see one key more", nullptr,
     [](Attending& p) { p.diagonal += 1; return p.causal; }},
    {"mask-one-key-less", "hides one key more from every query", nullptr,
     [](Attending& p) { p.diagonal -= 1; return p.causal; }},
    {"mask-from-first-key", "lets query i see the keys up to i, whatever the numbers of both", nullptr,
     [](Attending& p) { return SetTo(p.diagonal, std::ptrdiff_t{0}) && p.causal; }},
    {"masked-rows-nan", "divides 0 by 0 in rows without a visible key", nullptr,
     [](Attending& p) { return SetTo(p.empty_row_is_nan, true) && p.causal && p.diagonal < 0; }},
    // The softmax.
    {"max-not-subtracted", "does not subtract the largest logit", nullptr,
     [](Attending& p) { return SetTo(p.subtracts_max, false); }},
    {"result-not-rescaled", "does not rescale the result when the largest logit grows", nullptr,
     [](Attending& p) { return SetTo(p.rescales, false); }},
    {"sum-not-rescaled", "does not rescale the sum of weights when the largest logit grows", nullptr,
     [](Attending& p) { return SetTo(p.rescales_sum, false); }},
    {"not-normalized", "does not divide by the sum of weights", nullptr,
     [](Attending& p) { return SetTo(p.normalizes, false); }},
    {"sum-of-rounded-weights", "sums the rounded weights", nullptr,
     [](Attending& p) { return SetTo(p.sums_rounded_weights, true); }},
    // P.
    {"weights-not-rounded", "does not round the weights", nullptr,
     [](Attending& p) { return SetTo(p.rounds_weights, false); }},
    {"weight-blocks-along-queries", "scales the weights in blocks of queries", nullptr,
     [](Attending& p) { return HasWeightBlocks(p) && SetTo(p.weights_along_queries, true); }},
    {"weight-level-missing", "leaves the second level of the weights' scales out", nullptr, LevelMissing},
    {"weight-level-not-undone", "does not divide by the second level of the weights' scales", nullptr, LevelNotUndone},
    {"weights-by-other-scale", "divides weights by the rounded scale where the exact one is stated, or the reverse", nullptr,
     [](Attending& p) { return HasWeightBlocks(p) && SetTo(p.scheme.p.by_exact_scale, !p.scheme.p.by_exact_scale); }},
    {"weights-in-reverse-tiles", "takes the tiles of keys in the reverse order", nullptr,
     [](Attending& p) { return p.scheme.tile > 0 && p.keys > p.scheme.tile && SetTo(p.scheme.last_first, !p.scheme.last_first); }},
    // Heads and keys.
    {"kv-heads-interleaved", "gives head h of Q the head h mod n of K and V", nullptr,
     [](Attending& p) { return HeadsOf(p, [](std::size_t, std::size_t h, std::size_t n) { return h % n; }); }},
    {"kv-head-first", "takes the first head of K and V for all heads", nullptr,
     [](Attending& p) { return HeadsOf(p, [](std::size_t, std::size_t, std::size_t) { return std::size_t{0}; }); }},
    {"kv-head-next", "takes the next head of K and V", nullptr,
     [](Attending& p) { return HeadsOf(p, [](std::size_t kv, std::size_t, std::size_t n) { return (kv + 1) % n; }); }},
    {"q-head-next", "takes the rows of Q of the next head", nullptr, [](Attending& p) { return NextHead(p.q); }},
    {"v-head-next", "takes the rows of V of the next head", nullptr, [](Attending& p) { return NextHead(p.v); }},
    {"keys-tail-of-16-dropped", "leaves out the keys that do not fill 16", nullptr,
     [](Attending& p) { return TailOfKeysDropped(p, 16); }},
    {"keys-tail-of-64-dropped", "leaves out the keys that do not fill 64", nullptr,
     [](Attending& p) { return TailOfKeysDropped(p, 64); }},
    {"keys-tail-of-128-dropped", "leaves out the keys that do not fill 128", nullptr,
     [](Attending& p) { return TailOfKeysDropped(p, 128); }},
    {"keys-padded-with-zeros", "counts the zeros that fill the last tile of keys", nullptr, KeysPadded},
    // The operands.
    {"q-nibbles-swapped", "reads the two codes of every byte of Q in the wrong order", nullptr,
     [](Attending& p) { return InAll(p.q, NeighbourCodesSwapped); }},
    {"v-nibbles-swapped", "reads the two codes of every byte of V in the wrong order", nullptr,
     [](Attending& p) { return InAll(p.v, NeighbourCodesSwapped); }},
    {"q-scales-missing", "leaves the block scales of Q out", nullptr, [](Attending& p) { return InAll(p.q, IgnoreScales); }},
    {"k-scales-missing", "leaves the block scales of K out", nullptr, [](Attending& p) { return InAll(p.k, IgnoreScales); }},
    {"v-scales-missing", "leaves the block scales of V out", nullptr, [](Attending& p) { return InAll(p.v, IgnoreScales); }},
    {"k-scales-column-major", "reads the grid of K's scales column by column", nullptr,
     [](Attending& p) { return InAll(p.k, ScalesByColumns); }},
    {"v-scales-column-major", "reads the grid of V's scales column by column", nullptr,
     [](Attending& p) { return InAll(p.v, ScalesByColumns); }},
    {"v-scales-of-first-row", "takes the scales of V's first row for all rows", nullptr,
     [](Attending& p) { return InAll(p.v, ScalesOfRowZero); }},
    {"k-scales-linear-as-128x4", "reads the linear scales of K as tiles of 128x4", nullptr,
     [](Attending& p) { return InAll(p.k, LinearAsTiles); }},
    {"v-scales-linear-as-128x4", "reads the linear scales of V as tiles of 128x4", nullptr,
     [](Attending& p) { return InAll(p.v, LinearAsTiles); }},
    {"k-scales-128x4-as-linear", "reads K's tiles of 128x4 scales as linear ones", nullptr,
     [](Attending& p) { return InAll(p.k, TilesAsLinear); }},
    {"v-scales-128x4-as-linear", "reads V's tiles of 128x4 scales as linear ones", nullptr,
     [](Attending& p) { return InAll(p.v, TilesAsLinear); }},
    {"v-scales-linear-as-trtllm", "reads the linear scales of V as TensorRT-LLM's, four keys in turn", nullptr,
     [](Attending& p) { return InAll(p.v, LinearAsFourRows); }},
    {"v-scales-trtllm-as-linear", "reads V's scales of four keys in turn, TensorRT-LLM's, as linear ones", nullptr,
     [](Attending& p) { return InAll(p.v, FourRowsAsLinear); }},
    {"v-blocks-along-other-axis", "quantizes V along the other axis", nullptr, VAlongOtherAxis},
    {"q-tensor-scale-missing", "leaves the tensor scale of Q out", nullptr, [](Attending& p) { return TensorScaleMissing(p.q); }},
    {"k-tensor-scale-missing", "leaves the tensor scale of K out", nullptr, [](Attending& p) { return TensorScaleMissing(p.k); }},
    {"v-tensor-scale-missing", "leaves the tensor scale of V out", nullptr, [](Attending& p) { return TensorScaleMissing(p.v); }},
    // Sums and the output.
    {"sums-in-bf16", "rounds every sum of P V to BF16", nullptr,
     [](Attending& p) { return SetTo(p.sums, WeightedSums::kBf16); }},
    {"sums-in-fp16", "rounds every sum of P V to FP16", nullptr,
     [](Attending& p) { return SetTo(p.sums, WeightedSums::kFp16); }},
    {"output-toward-zero", "truncates the output", nullptr,
     [](Attending& p) { return p.output == GemmOutput::kBf16 && SetTo(p.truncates_output, true); }},
});
// clang-format on

}  // namespace

bool WrongAttention::Apply(AttentionPlan& plan) const {
  const IeeeArithmetic ieee;
  if (reading == nullptr) return change(plan);
  bool changed = false;
  for (Operands* operands : {&plan.q, &plan.k, &plan.v}) {
    for (AttentionOperand& x : *operands) changed = reading->apply(x.codes) || changed;
  }
  return changed;
}

std::vector<WrongAttention> WrongAttentions() {
  std::vector<WrongAttention> all;
  for (const ScaleReading& r : ScaleReadings()) {
    all.push_back({.name = r.name, .what = r.text, .reading = &r});
  }
  all.insert(all.end(), kWrongAttention.begin(), kWrongAttention.end());
  return all;
}

std::vector<GemmCause> FindAttentionCauses(const AttentionPlan& plan, MatrixView<const float> o) {
  const IeeeArithmetic ieee;
  std::vector<GemmCause> causes;
  if (AllAllowed(EvaluateAttention(plan), o)) return causes;
  for (const WrongAttention& wrong : WrongAttentions()) {
    AttentionPlan other = plan;
    if (!wrong.Apply(other)) continue;
    const AttentionRange range = EvaluateAttention(other);
    if (!AllAllowed(range, o)) continue;
    causes.push_back({.name = std::string(wrong.name),
                      .what = std::string(wrong.what),
                      .different = JudgeAttention(range, plan.in.heads, o).different});
  }
  const auto equal = [](const GemmCause& c) { return c.equal(); };
  if (std::any_of(causes.begin(), causes.end(), equal)) std::erase_if(causes, std::not_fn(equal));
  return causes;
}

}  // namespace fp4lab
