#include "fp4lab/judge/attention/attention_case.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

// Sizes and contents of a case.
struct CaseShape {
  std::size_t heads = 1, kv_heads = 1, queries = 1, keys = 1, width = 64;
  bool causal = false;
  float spread = 1.0f;  // of the logits
  float mean = 0.0f;    // of Q and K
  float rise = 0.0f;    // of K from key to key: the largest logit grows
  GemmOutput output = GemmOutput::kBf16;
};

// BF16 numbers between -2 and 2, times `factor`.
Matrix<float> EvenNumbers(std::size_t rows, std::size_t cols, std::uint64_t seed, float factor) {
  const RandomStream random{.seed = seed};
  Matrix<float> x(rows, cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const float u = static_cast<float>(random.Bits32(i) >> 8) * 0x1p-24f;
    x.values[i] = RoundToBf16((4.0f * u - 2.0f) * factor);
  }
  return x;
}

AttentionCase CaseOf(std::string_view name, std::string_view what, std::string_view scheme,
                     std::uint64_t seed, const CaseShape& s) {
  AttentionInputs in{.heads = s.heads,
                     .kv_heads = s.kv_heads,
                     .q = EvenNumbers(s.heads * s.queries, s.width, seed, s.spread),
                     .k = EvenNumbers(s.kv_heads * s.keys, s.width, seed + 1, 1.0f),
                     .v = EvenNumbers(s.kv_heads * s.keys, s.width, seed + 2, 1.0f),
                     .causal = s.causal,
                     .output = s.output};
  for (std::size_t r = 0; r < in.q.rows; ++r) {
    for (std::size_t c = 0; c < s.width; ++c) {
      const float of = s.mean * static_cast<float>(1 + r % s.queries / 128);
      in.q(r, c) = RoundToBf16(in.q(r, c) + (c % 3 == 0 ? of : -0.5f * of));
    }
  }
  for (std::size_t r = 0; r < in.k.rows; ++r) {
    const float factor = 1.0f + s.rise * static_cast<float>(r % s.keys);
    for (std::size_t c = 0; c < s.width; ++c) {
      const float of = c % 4 == 1 ? s.mean : 0.25f * s.mean;
      in.k(r, c) = RoundToBf16(in.k(r, c) * factor + of);
    }
  }
  const AttentionScheme& order = RequireAttentionScheme(scheme, "case");
  return {name, what, PlanOf(in, order)};
}

// Scale bytes that kernels read otherwise, in an NVFP4 cache: subnormals, the upper bit, and NaN.
AttentionCase CacheBytes() {
  AttentionCase c =
      CaseOf("cache-bytes", "E4M3 scale bytes: NaN, subnormals, the upper bit", "nvfp4-kv", 71,
             {.heads = 4, .kv_heads = 4, .queries = 4, .keys = 40, .width = 64});
  c.plan.operands_given = true;
  const auto set = [](AttentionOperand& x, std::size_t row, std::size_t block, std::uint8_t byte) {
    x.codes.scales[row * x.codes.ScaleCols() + block] = byte;
  };
  for (std::size_t r = 0; r < 40; ++r) {
    set(c.plan.v[0], r, 1, static_cast<std::uint8_t>(1 + r % 7));
    set(c.plan.k[0], r, 2, static_cast<std::uint8_t>(1 + r % 7));
    if (r % 2 == 0) c.plan.v[1].codes.scales[r * 4] |= 0x80;
    if (r % 3 == 0) c.plan.k[1].codes.scales[r * 4 + 1] |= 0x80;
  }
  set(c.plan.v[2], 11, 3, 0x7F);
  set(c.plan.k[3], 5, 0, 0x7F);
  return c;
}

// E8M0 scales from end to end: under 2^-127 in K stands 2^126 in Q.
AttentionCase MxBytes() {
  AttentionCase c = CaseOf("mxfp4-bytes", "E8M0 scale bytes: 0x00 and 0xFF", "mxfp4", 75,
                           {.heads = 3, .kv_heads = 3, .queries = 4, .keys = 64, .width = 64});
  c.plan.operands_given = true;
  std::fill(c.plan.q[0].codes.scales.begin(), c.plan.q[0].codes.scales.end(), std::uint8_t{253});
  for (std::size_t i = 0; i < c.plan.k[0].codes.scales.size(); ++i) {
    c.plan.k[0].codes.scales[i] = static_cast<std::uint8_t>(i % 3);
  }
  c.plan.v[1].codes.scales[6] = 0xFF;
  c.plan.k[2].codes.scales[9] = 0xFF;
  return c;
}

}  // namespace

std::vector<AttentionCase> MakeAttentionCases() {
  const IeeeArithmetic ieee;
  return {
      CaseOf("bf16-gqa", "heads that share K and V, the scale, the exponential", "bf16", 11,
             {.heads = 4, .kv_heads = 2, .queries = 12, .keys = 40}),
      CaseOf("bf16-causal", "the mask with more keys than queries", "bf16", 15,
             {.heads = 2, .kv_heads = 1, .queries = 24, .keys = 40, .causal = true}),
      CaseOf("bf16-rows-without-keys", "the mask with more queries than keys", "bf16", 19,
             {.heads = 1, .kv_heads = 1, .queries = 40, .keys = 24, .causal = true}),
      CaseOf("bf16-large-logits", "logits beyond 88, tails of keys", "bf16", 23,
             {.heads = 1, .kv_heads = 1, .queries = 8, .keys = 213, .spread = 24.0f}),
      CaseOf("fp8", "tensor scales, P in E4M3", "fp8", 27,
             {.heads = 2, .kv_heads = 2, .queries = 12, .keys = 200, .rise = 0.004f}),
      CaseOf("sageattention3", "means of Q and K, P in two levels, V along the keys",
             "sageattention3", 31,
             {.heads = 2, .kv_heads = 1, .queries = 136, .keys = 200, .mean = 1.0f}),
      CaseOf("sageattention3-causal", "the mask inside blocks of 16 keys", "sageattention3", 35,
             {.heads = 1, .kv_heads = 1, .queries = 40, .keys = 152, .causal = true, .mean = 1.0f}),
      CaseOf(
          "flashinfer", "the mean's part in FP32, a largest logit that grows", "flashinfer.sm120",
          39,
          {.heads = 1, .kv_heads = 1, .queries = 24, .keys = 280, .mean = 0.75f, .rise = -0.002f}),
      CaseOf("attn-qat", "a level of P for each row and tile, tensor scales of 32 rows", "attn-qat",
             43, {.heads = 2, .kv_heads = 2, .queries = 40, .keys = 72, .mean = 0.5f}),
      CaseOf("attn-qat-one-level", "P whose small scales are subnormal", "attn-qat.one-level", 47,
             {.heads = 2, .kv_heads = 2, .queries = 24, .keys = 96}),
      CaseOf("nvfp4-cache", "an NVFP4 cache: its scales in tiles, its tensor scales", "nvfp4-kv",
             51, {.heads = 4, .kv_heads = 2, .queries = 8, .keys = 128}),
      CacheBytes(),
      CaseOf("mxfp4", "MXFP4 of all operands, scales in tiles", "mxfp4", 55,
             {.heads = 1, .kv_heads = 1, .queries = 40, .keys = 128, .width = 128}),
      MxBytes(),
      CaseOf("fp16-output", "a result in FP16", "sageattention3", 59,
             {.heads = 1, .kv_heads = 1, .queries = 16, .keys = 128, .output = GemmOutput::kFp16}),
  };
}

AttentionBench::AttentionBench(std::vector<AttentionCase> cases)
    : cases_(std::move(cases)), wrong_(WrongAttentions()) {
  const IeeeArithmetic ieee;
  for (const AttentionCase& c : cases_) right_.push_back(EvaluateAttention(c.plan));
}

const std::optional<AttentionRange>& AttentionBench::RangeIfChanged(std::size_t w,
                                                                    std::size_t c) const {
  const IeeeArithmetic ieee;
  std::call_once(once_, [&] {
    ranges_.resize(wrong_.size());
    ParallelFor(wrong_.size(), [&](std::size_t i) {
      ranges_[i].resize(cases_.size());
      for (std::size_t k = 0; k < cases_.size(); ++k) {
        AttentionPlan plan = cases_[k].plan;
        if (wrong_[i].Apply(plan)) ranges_[i][k] = EvaluateAttention(plan);
      }
    });
  });
  return ranges_[w][c];
}

const AttentionRange& AttentionBench::Range(std::size_t w, std::size_t c) const {
  const std::optional<AttentionRange>& range = RangeIfChanged(w, c);
  return range ? *range : right_[c];
}

std::vector<Matrix<float>> AttentionBench::AnswersOf(std::span<const std::size_t> w) const {
  const IeeeArithmetic ieee;
  std::vector<Matrix<float>> answers;
  for (const AttentionCase& c : cases_) {
    AttentionPlan plan = c.plan;
    for (const std::size_t i : w) wrong_[i].Apply(plan);
    answers.push_back(EvaluateAttention(plan).answer);
  }
  return answers;
}

bool AttentionBench::IsRight(std::size_t c, const Matrix<float>& answer) const {
  const IeeeArithmetic ieee;
  const Matrix<float>& right = right_[c].answer;
  return answer.rows == right.rows && answer.cols == right.cols &&
         AllAllowed(right_[c], answer.View());
}

std::vector<std::size_t> AttentionBench::Name(
    std::span<const std::optional<Matrix<float>>> answers) const {
  const IeeeArithmetic ieee;
  Expects(answers.size() == cases_.size(), "an answer, or none, to every case");
  std::vector<std::size_t> names;
  std::vector<bool> right(cases_.size());
  for (std::size_t c = 0; c < cases_.size(); ++c) right[c] = !answers[c] || IsRight(c, *answers[c]);
  if (std::find(right.begin(), right.end(), false) == right.end()) return names;
  for (std::size_t w = 0; w < wrong_.size(); ++w) {
    bool fits = true;
    for (std::size_t c = 0; c < cases_.size() && fits; ++c) {
      if (!answers[c]) continue;
      const AttentionRange& range = Range(w, c);
      fits = RangeIfChanged(w, c) ? answers[c]->values.size() == range.answer.values.size() &&
                                        AllAllowed(range, answers[c]->View())
                                  : right[c];
    }
    if (fits) names.push_back(w);
  }
  return names;
}

}  // namespace fp4lab
