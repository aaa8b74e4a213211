// Attention: answers of simulated devices lie inside the range, wrong kernels do not and are named.
#include "fp4lab/judge/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/attention/attention_case.h"
#include "fp4lab/judge/products/bench_coverage.h"
#include "tests/judge/bench_names.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

const AttentionBench& Bench() {
  static const AttentionBench bench(MakeAttentionCases());
  return bench;
}

std::size_t CaseAt(std::string_view name) { return fp4lab::CaseAt(Bench(), name); }

std::vector<std::string> Names(const std::vector<Matrix<float>>& answers) {
  return NamesOf(Bench(), answers);
}

// A device in binary32: another order of additions, an exp2 that errs by `ulps`, its own tiles.
// It shares the operands with the library, and nothing behind them.
struct Device {
  int ulps = 0;
  bool descending_sums = false;
  std::size_t tile = 128;
  bool last_first = false;
};

float Nudged(float x, int ulps) {
  for (int i = 0; i < std::abs(ulps); ++i) x = std::nextafter(x, ulps > 0 ? 1e38f : 0.0f);
  return x;
}
float ToFormat(FormatId f, float x) { return Decode(f, Encode(f, x)); }

// P of one row and tile in binary32, by the sentences of attention_scheme.h.
void DeviceWeights(const PRule& rule, std::vector<float>& p) {
  if (rule.group == 0) {
    for (float& x : p) x = ToFormat(rule.element, x);
    return;
  }
  const auto group = static_cast<std::size_t>(rule.group);
  const float most = *std::max_element(p.begin(), p.end());
  const float level = rule.level == PLevel::kRow ? 2688.0f / std::max(most, 1e-8f) : 1.0f;
  for (std::size_t from = 0; from < p.size(); from += group) {
    const std::size_t end = std::min(from + group, p.size());
    const auto at = [&](std::size_t i) { return p.begin() + static_cast<std::ptrdiff_t>(i); };
    const float b = *std::max_element(at(from), at(end));
    float s;
    if (rule.scale == FormatId::kE8M0) {
      s = std::ldexp(1.0f, std::max(std::ilogb(std::max(b, 1e-37f)) - 2, -127));
    } else {
      s = ToFormat(FormatId::kE4M3, b / 6.0f * level);
    }
    for (std::size_t i = from; i < end; ++i) {
      float code = 0;
      if (s > 0 && p[i] > 0) {
        code =
            ToFormat(FormatId::kE2M1, rule.by_exact_scale ? p[i] / (b / 6.0f)
                                                          : p[i] * (1.0f / (s * (1.0f / level))));
      }
      p[i] = code * s * (1.0f / level);
      if (rule.decoded_to_bf16) p[i] = RoundToBf16(p[i]);
    }
  }
}

Matrix<float> RunDevice(const AttentionPlan& plan, const Device& device) {
  const std::size_t queries = plan.in.Queries(), width = plan.in.q.cols;
  Matrix<float> o(plan.in.heads * queries, width);
  constexpr float kLog2e = 1.44269504f;
  const float scale_log2 = static_cast<float>(plan.scale) * kLog2e;
  for (std::size_t h = 0; h < plan.in.heads; ++h) {
    const Matrix<double> q = ValuesOf(plan.q[h]), k = ValuesOf(plan.k[plan.kv_of[h]]);
    const AttentionOperand& v_of = plan.v[plan.kv_of[h]];
    const Matrix<double> v = ValuesOf(v_of);
    const auto decode = [](const AttentionOperand& x, std::size_t row) {
      return x.decoded_to_bf16 || x.decode.empty() ? 1.0f : static_cast<float>(x.decode[row]);
    };
    for (std::size_t i = 0; i < queries; ++i) {
      const std::size_t tiles = (plan.keys + device.tile - 1) / device.tile;
      std::vector<float> sum(width);
      float l = 0, m = -std::numeric_limits<float>::infinity();
      for (std::size_t n = 0; n < tiles; ++n) {
        const std::size_t from = (device.last_first ? tiles - 1 - n : n) * device.tile;
        const std::size_t end = std::min(from + device.tile, plan.keys);
        std::vector<float> y(end - from, -std::numeric_limits<float>::infinity());
        float tile_max = m;
        for (std::size_t j = from; j < end; ++j) {
          if (plan.causal &&
              static_cast<std::ptrdiff_t>(j) > static_cast<std::ptrdiff_t>(i) + plan.diagonal) {
            continue;
          }
          float dot = 0;
          for (std::size_t c = 0; c < width; ++c) {
            const std::size_t at = device.descending_sums ? width - 1 - c : c;
            dot += static_cast<float>(q(i, at) * k(j, at));
          }
          dot *= decode(plan.q[h], i) * decode(plan.k[plan.kv_of[h]], j);
          if (!plan.correction.empty()) {
            float extra = static_cast<float>(plan.correction[h](i / plan.scheme.q_mean_rows, j));
            if (plan.scheme.correction_in_bf16) extra = RoundToBf16(extra);
            dot += extra;
          }
          y[j - from] = dot;
          tile_max = std::max(tile_max, dot);
        }
        if (tile_max == -std::numeric_limits<float>::infinity()) continue;
        const float r = std::exp2((m - tile_max) * scale_log2);
        m = tile_max;
        l *= r;
        for (float& x : sum) x *= r;
        const float top = static_cast<float>(std::log2(plan.scheme.p.top));
        std::vector<float> p;
        for (const float x : y) {
          p.push_back(Nudged(std::exp2(x * scale_log2 - (m * scale_log2 - top)),
                             x == m && top == 0.0f ? 0 : device.ulps));
          if (!plan.scheme.sums_rounded) l += p.back();
        }
        DeviceWeights(plan.scheme.p, p);
        for (const float x : p) l += plan.scheme.sums_rounded ? x : 0.0f;
        for (std::size_t c = 0; c < width; ++c) {
          float tile_sum = 0;
          for (std::size_t j = from; j < end; ++j) {
            const double x = plan.scheme.v_along_keys ? v(c, j) : v(j, c);
            const bool rows = !plan.scheme.v_along_keys && plan.scheme.scale_rows > 0;
            tile_sum += p[j - from] * static_cast<float>(x) * (rows ? decode(v_of, j) : 1.0f);
          }
          sum[c] += tile_sum;
        }
      }
      for (std::size_t c = 0; c < width; ++c) {
        const float x = l > 0 ? sum[c] * (1.0f / l) * decode(v_of, 0) : 0.0f;
        o(h * queries + i, c) = FinishProduct(x, {.output = plan.output});
      }
    }
  }
  return o;
}

TEST_CASE("Answers of simulated devices lie in the range, in any order of additions", "[judge]") {
  std::size_t different = 0;
  for (std::size_t c = 0; c < Bench().cases().size(); ++c) {
    const AttentionPlan& plan = Bench().cases()[c].plan;
    if (plan.operands_given) continue;  // NaN
    for (const Device& device :
         {Device{}, Device{.ulps = 2, .descending_sums = true}, Device{.ulps = -2}}) {
      Device d = device;
      d.tile = plan.scheme.any_tile && device.ulps > 0 ? 48 : plan.scheme.tile;
      d.last_first = plan.scheme.last_first;
      const Matrix<float> o = RunDevice(plan, d);
      const AttentionJudgement j = JudgeAttention(Bench().RightRange(c), plan.in.heads, o.View());
      INFO(Bench().cases()[c].name << ", " << device.ulps << " ulps: head " << j.first.head
                                   << ", query " << j.first.query << ", channel " << j.first.channel
                                   << ": " << j.first.got << " not in " << j.first.low << " .. "
                                   << j.first.high);
      CHECK(j.outside == 0);
      different += j.different;
    }
  }
  CHECK(different > 20);  // the range is needed
}

TEST_CASE("Simulated devices with other tiles are outside where the scheme states tiles",
          "[judge]") {
  for (const char* name : {"sageattention3", "flashinfer", "fp8"}) {
    const std::size_t c = CaseAt(name);
    const AttentionPlan& plan = Bench().cases()[c].plan;
    const Matrix<float> o =
        RunDevice(plan, {.tile = plan.scheme.tile, .last_first = !plan.scheme.last_first});
    CHECK(JudgeAttention(Bench().RightRange(c), plan.in.heads, o.View()).outside > 0);
    const std::vector<GemmCause> causes = FindAttentionCauses(plan, o.View());
    REQUIRE(causes.size() == 1);
    CHECK(causes[0].name == "weights-in-reverse-tiles");
  }
}

TEST_CASE("The directed cases catch and name every wrong attention kernel", "[judge]") {
  const BenchCoverage coverage = MeasureBench(Bench());
  INFO(CoverageText(Bench(), coverage));
  CHECK(coverage.rows.size() >= 60);
  CHECK(coverage.caught == coverage.rows.size());
  CHECK(coverage.named == coverage.rows.size());
  std::set<std::string_view> names;
  for (const WrongAttention& w : Bench().wrong()) names.insert(w.name);
  CHECK(names.size() == Bench().wrong().size());
}

TEST_CASE("Two random deviations of an attention kernel never name a third", "[judge]") {
  const RandomStream random{.seed = 36};
  const std::size_t rows = Bench().wrong().size();
  constexpr std::size_t kPairs = 60;
  std::vector<std::vector<std::string>> names(kPairs);
  const auto pair = [&](std::size_t i) {
    const std::size_t first = random.Bits32(2 * i) % rows;
    return std::vector{first, (first + 1 + random.Bits32(2 * i + 1) % (rows - 1)) % rows};
  };
  ParallelFor(kPairs, [&](std::size_t i) { names[i] = Names(Bench().AnswersOf(pair(i))); });
  for (std::size_t i = 0; i < kPairs; ++i) {
    const std::string one(Bench().wrong()[pair(i)[0]].name), two(Bench().wrong()[pair(i)[1]].name);
    INFO(one << ", then " << two);
    for (const std::string& name : names[i]) CHECK((name == one || name == two));
  }
}

TEST_CASE("A sum of rounded weights is FlashInfer's order and not FlashAttention's", "[judge]") {
  // The key with a value has a weight that BF16 rounds down, most others have one that it rounds
  // up.
  constexpr std::size_t kKeys = 18;
  AttentionInputs in{.heads = 1,
                     .kv_heads = 1,
                     .q = Matrix<float>(1, 16),
                     .k = Matrix<float>(kKeys, 16),
                     .v = Matrix<float>(kKeys, 16),
                     .scale = 1.0,
                     .output = GemmOutput::kFp32};
  in.q(0, 0) = in.q(0, 1) = 1.0f;
  in.v(1, 3) = 1.0f;
  for (std::size_t key = 1; key < kKeys; ++key) {
    const auto logit = static_cast<float>(std::log(0.5 + (key == 1 ? 0.45 : 0.55) / 256.0));
    in.k(key, 0) = RoundToBf16(logit);
    in.k(key, 1) = RoundToBf16(logit - in.k(key, 0));
  }
  const AttentionPlan rounded = PlanOf(in, RequireAttentionScheme("bf16.flashinfer", "test"));
  const AttentionPlan plain = PlanOf(in, RequireAttentionScheme("bf16", "test"));
  const Matrix<float> of_rounded = RunDevice(rounded, {}), of_plain = RunDevice(plain, {});
  CHECK(AllAllowed(EvaluateAttention(rounded), of_rounded.View()));
  CHECK(AllAllowed(EvaluateAttention(plain), of_plain.View()));
  CHECK_FALSE(AllAllowed(EvaluateAttention(plain), of_rounded.View()));
}

TEST_CASE("Heads of Q that share K share FlashAttention's FP8 scale", "[judge]") {
  AttentionInputs in{.heads = 4,
                     .kv_heads = 2,
                     .q = Matrix<float>(4, 16, 1.0f),
                     .k = Matrix<float>(6, 16, 1.0f),
                     .v = Matrix<float>(6, 16, 1.0f)};
  for (std::size_t c = 0; c < 16; ++c) in.q(1, c) = 8.0f, in.q(3, c) = 2.0f;
  const AttentionPlan plan = PlanOf(in, RequireAttentionScheme("fp8", "test"));
  for (std::size_t h = 0; h < 4; ++h) {
    CAPTURE(h);
    CHECK(plan.q[h].decode[0] == plan.q[h / 2 * 2 + 1].decode[0]);
  }
  CHECK(plan.q[0].decode[0] == 4.0 * plan.q[2].decode[0]);
  CHECK(std::abs(ValuesOf(plan.q[0])(0, 0) * plan.q[0].decode[0] - 1.0) < 1e-6);
}

TEST_CASE("An attention answer changed by hand has its place and its cause", "[judge]") {
  const std::size_t c = CaseAt("bf16-causal");
  const AttentionPlan& plan = Bench().cases()[c].plan;
  Matrix<float> o = Bench().Right(c);
  for (std::size_t r = 24 + 8; r < 24 + 12; ++r) {  // head 1, queries 8..11, channels 32..47
    for (std::size_t d = 32; d < 48; ++d) o(r, d) = 5.0f;
  }
  const AttentionJudgement j = JudgeAttention(Bench().RightRange(c), 2, o.View());
  CHECK(j.outside == 64);
  CHECK(j.heads == std::vector<std::size_t>{1});
  CHECK(j.outside_in == Rectangle{8, 32, 4, 16});
  CHECK(j.first.head == 1);
  CHECK(j.first.query == 8);
  CHECK(j.first.channel == 32);
  CHECK(FindAttentionCauses(plan, o.View()).empty());

  // Uniform weights, by hand: a scale of 0 makes every visible key equal.
  AttentionInputs in{.heads = 1,
                     .kv_heads = 1,
                     .q = Matrix<float>(2, 16, 1.0f),
                     .k = Matrix<float>(4, 16, 1.0f),
                     .v = Matrix<float>(4, 16)};
  for (std::size_t key = 0; key < 4; ++key) in.v(key, 3) = static_cast<float>(key);
  in.causal = true;
  const AttentionPlan uniform = PlanOf(in, RequireAttentionScheme("bf16", "test"));
  const AttentionRange range = EvaluateAttention(uniform);
  CHECK(range.answer(0, 3) == 1.0f);  // keys 0, 1, 2
  CHECK(range.answer(1, 3) == 1.5f);
  Matrix<float> late = range.answer;
  late(0, 3) = 1.5f;  // sees key 3
  late(1, 3) = 1.5f;
  std::vector<std::string> found;
  for (const GemmCause& cause : FindAttentionCauses(uniform, late.View())) {
    found.push_back(cause.name);
  }
  CHECK(std::count(found.begin(), found.end(), "mask-one-key-more") == 1);
}

TEST_CASE("NaN and infinities of attention have their stated results", "[judge]") {
  AttentionInputs in{.heads = 1,
                     .kv_heads = 1,
                     .q = Matrix<float>(3, 16, 0.5f),
                     .k = Matrix<float>(3, 16, 0.5f),
                     .v = Matrix<float>(3, 16, 1.0f)};
  in.causal = true;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  in.k(1, 2) = nan;
  in.v(2, 7) = std::numeric_limits<float>::infinity();
  const AttentionRange range =
      EvaluateAttention(PlanOf(in, RequireAttentionScheme("bf16", "test")));
  CHECK(range.answer(0, 0) == 1.0f);  // key 1 is masked
  CHECK(std::isnan(range.answer(1, 0)));
  CHECK(!range.Allows(16, 1.0f));
  CHECK(range.Allows(16, nan));
  CHECK(!range.Allows(0, nan));
}

TEST_CASE("A row's weights may take the codes beside a tie and no others", "[judge]") {
  constexpr PRule rule{
      .element = FormatId::kE2M1, .group = 16, .top = 2688.0, .by_exact_scale = true};
  std::vector<AllowedNumber> p(16);
  const auto exact = [](double x, double error) {
    return AllowedNumber{x * (1 - error), x, x * (1 + error)};
  };
  p[0] = exact(2688.0, 0);           // 6
  p[1] = exact(448.0 * 2.5, 1e-5);   // a tie of 2 and 3
  p[2] = exact(448.0 * 2.49, 1e-5);  // 2
  RoundWeights(rule, p);
  CHECK(p[0].lo == 2688.0);
  CHECK(p[0].hi == 2688.0);
  CHECK(p[1].lo == 896.0);
  CHECK(p[1].x == 896.0);
  CHECK(p[1].hi == 1344.0);
  CHECK(p[2].lo == 896.0);
  CHECK(p[2].hi == 896.0);
  CHECK(p[3].hi == 0.0);
}

TEST_CASE("Attention that does not fit is refused with its numbers", "[judge]") {
  const auto refused = [](const AttentionInputs& in) {
    try {
      CheckAttention(in, RequireAttentionScheme("bf16", "x"), "x");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  AttentionInputs in{.heads = 4,
                     .kv_heads = 2,
                     .q = Matrix<float>(8, 16),
                     .k = Matrix<float>(6, 16),
                     .v = Matrix<float>(6, 16)};
  CHECK(refused(in).empty());
  in.kv_heads = 3;
  CHECK_THAT(refused(in), ContainsSubstring("4 heads of Q on 3 heads of K"));
  in.kv_heads = 4;
  CHECK_THAT(refused(in), ContainsSubstring("6 of K for 4"));
  in.kv_heads = 2;
  in.v = Matrix<float>(6, 8);
  CHECK_THAT(refused(in), ContainsSubstring("V 6x8"));
  CHECK_THROWS_WITH(RequireAttentionScheme("sageatention3", "--scheme"),
                    ContainsSubstring("sageattention3"));
}

}  // namespace
}  // namespace fp4lab
