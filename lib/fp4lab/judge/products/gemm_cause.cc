#include "fp4lab/judge/products/gemm_cause.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/products/scale_readings.h"

namespace fp4lab {
namespace {

bool NibblesSwapped(MmaOperand& x) {
  if (x.format.bits != 4) return false;
  const std::vector<std::uint32_t> before = x.codes;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c + 1 < x.cols; c += 2) {
      std::swap(x.codes[r * x.cols + c], x.codes[r * x.cols + c + 1]);
    }
  }
  return x.codes != before;
}

// The operand read as (cols, rows): of square operands alone, whose scales stay where they are.
bool Transposed(MmaOperand& x) {
  if (x.rows != x.cols || x.IsScaled()) return false;
  const std::vector<std::uint32_t> before = x.codes;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) x.codes[c * x.rows + r] = before[r * x.cols + c];
  }
  return x.codes != before;
}

// Scales of block k taken for block k + 1, the first for itself.
bool ScalesOfBefore(MmaOperand& x) {
  if (!x.IsScaled()) return false;
  const std::vector<std::uint8_t> before = x.scales;
  const std::size_t cols = x.ScaleCols();
  for (std::size_t i = 0; i < x.scales.size(); ++i) {
    if (i % cols != 0) x.scales[i] = before[i - 1];
  }
  return x.scales != before;
}

// The rows of scales of the first row for all rows.
bool ScalesOfFirstRow(MmaOperand& x) {
  if (!x.IsScaled()) return false;
  const std::vector<std::uint8_t> before = x.scales;
  for (std::size_t i = 0; i < x.scales.size(); ++i) x.scales[i] = before[i % x.ScaleCols()];
  return x.scales != before;
}

bool SignsDropped(MmaOperand& x) {
  bool changed = false;
  for (std::uint32_t& code : x.codes) {
    changed = changed || (code & SignBit(x.format)) != 0;
    code &= ~SignBit(x.format);
  }
  return changed;
}

// The last columns of K that do not fill `unit` columns are left out; K below `unit` is kept.
bool TailDropped(GemmInputs& in, std::size_t unit) {
  const std::size_t whole = in.a.cols / unit * unit;
  if (whole == in.a.cols || whole == 0) return false;
  for (MmaOperand* x : {&in.a, &in.b}) {
    for (std::size_t r = 0; r < x->rows; ++r) {
      for (std::size_t c = whole; c < x->cols; ++c) x->codes[r * x->cols + c] = 0;
    }
  }
  return true;
}

// The last block of K is left out, or the first.
bool BlockDropped(GemmInputs& in, bool first) {
  const std::size_t width = in.a.IsScaled() ? static_cast<std::size_t>(in.a.group) : 16;
  if (in.a.cols <= width) return false;
  const std::size_t from = first ? 0 : (in.a.cols - 1) / width * width;
  const std::size_t to = first ? width : in.a.cols;
  for (std::size_t r = 0; r < in.a.rows; ++r) {
    for (std::size_t c = from; c < to; ++c) in.a.codes[r * in.a.cols + c] = 0;
  }
  return true;
}

bool SetAlpha(GemmInputs& in, float alpha) {
  const bool changed = in.alpha != alpha;
  in.alpha = alpha;
  return changed;
}

using In = GemmInputs;

// clang-format off
constexpr auto kTable = std::to_array<GemmDeviation>({
    {"a-scales-missing", "leaves the block scales of A out", [](In& in) { return IgnoreScales(in.a); }},
    {"b-scales-missing", "leaves the block scales of B out", [](In& in) { return IgnoreScales(in.b); }},
    {"nibbles-swapped", "reads the two codes of every byte of one operand in the wrong order",
     [](In& in) { return NibblesSwapped(in.a); }},  // of B: the same products in another order
    {"a-transposed", "reads A transposed", [](In& in) { return Transposed(in.a); }},
    {"b-transposed", "reads B transposed", [](In& in) { return Transposed(in.b); }},
    {"a-scales-of-block-before", "takes the scales of A from the block before",
     [](In& in) { return ScalesOfBefore(in.a); }},
    {"b-scales-of-block-before", "takes the scales of B from the block before",
     [](In& in) { return ScalesOfBefore(in.b); }},
    {"a-scales-of-first-row", "takes the scales of A's first row for all rows",
     [](In& in) { return ScalesOfFirstRow(in.a); }},
    {"b-scales-of-first-row", "takes the scales of B's first row for all rows",
     [](In& in) { return ScalesOfFirstRow(in.b); }},
    {"a-signs-dropped", "drops the signs of A", [](In& in) { return SignsDropped(in.a); }},
    {"b-signs-dropped", "drops the signs of B", [](In& in) { return SignsDropped(in.b); }},
    {"k-tail-of-32-dropped", "leaves out the end of K that does not fill 32 elements",
     [](In& in) { return TailDropped(in, 32); }},
    {"k-tail-of-64-dropped", "leaves out the end of K that does not fill 64 elements",
     [](In& in) { return TailDropped(in, 64); }},
    {"k-tail-of-128-dropped", "leaves out the end of K that does not fill 128 elements",
     [](In& in) { return TailDropped(in, 128); }},
    {"k-last-block-dropped", "leaves out the last block of K",
     [](In& in) { return BlockDropped(in, false); }},
    {"k-first-block-dropped", "leaves out the first block of K",
     [](In& in) { return BlockDropped(in, true); }},
    {"alpha-missing", "leaves alpha out", [](In& in) { return SetAlpha(in, 1.0f); }},
    {"alpha-twice", "multiplies by alpha twice",
     [](In& in) { return SetAlpha(in, in.alpha * in.alpha); }},
    {"alpha-inverted", "divides by alpha", [](In& in) { return SetAlpha(in, 1.0f / in.alpha); }},
});
// clang-format on

}  // namespace

std::span<const GemmDeviation> GemmDeviations() { return kTable; }

std::vector<GemmCause> FindGemmCauses(const GemmClaim& claim, const Accumulation& under) {
  const IeeeArithmetic ieee;
  std::vector<GemmCause> causes, between_them;
  for (const ReadingMatch& m : FindScaleReadings(claim, under)) {
    (m.elements == 0 ? causes : between_them)
        .push_back(
            {std::string(m.reading->name), std::string(m.reading->text), m.different, m.elements});
  }
  for (const GemmDeviation& d : kTable) {
    GemmInputs in{claim.a, claim.b, claim.alpha};
    if (!d.apply(in) || !(in.alpha - in.alpha == 0.0f)) continue;
    if (!WhyNot(under, in.a, in.b).empty()) continue;
    const GemmClaim wrong{
        .a = in.a, .b = in.b, .d = claim.d, .alpha = in.alpha, .output = claim.output};
    const GemmJudgement j = JudgeGemm(wrong, under);
    if (j.outside > 0) continue;
    causes.push_back({std::string(d.name), std::string(d.what), j.different});
  }
  const auto equal = [](const GemmCause& c) { return c.equal(); };
  if (std::any_of(causes.begin(), causes.end(), equal)) std::erase_if(causes, std::not_fn(equal));
  return causes.empty() ? between_them : causes;
}

}  // namespace fp4lab
