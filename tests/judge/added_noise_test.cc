// Roundings that add noise: which codes they reach, how often, and what verify and explain say.
#include "fp4lab/dialect/noise/added_noise.h"

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/dialect/noise/noise_verdict.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/judge/verify/verify_stochastic.h"
#include "tests/support/catch.h"
#include "tests/support/comfy_rounding.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

float Uniform(const RandomStream& stream, std::size_t i) {
  return static_cast<float>(stream.Bits32(i) >> 8) * 0x1p-24f;
}

TEST_CASE("The segments of ComfyUI's rounding are those of its code without noise", "[judge]") {
  for (std::size_t i = 0; i < kComfySegments.size(); ++i) {
    const double begin = kComfySegments[i].begin;
    const double end = i + 1 < kComfySegments.size() ? kComfySegments[i + 1].begin : kComfyLargest;
    for (const double at : {begin + (end - begin) * 1e-4, (begin + end) / 2, end - 1e-5}) {
      CAPTURE(at);
      CHECK(EncodeComfyCentre(static_cast<float>(at)) == kComfySegments[i].code);
      CHECK(ComfyStochasticCode(static_cast<float>(at), 0.5f) == kComfySegments[i].code);
    }
  }
}

TEST_CASE("Codes and probabilities of a value under noise are those of many draws", "[judge]") {
  constexpr int kDraws = 4096;
  for (const float v : {0.0f, 0.1f, 0.4f, 0.74f, -0.99f, 1.0f, 1.7f, -1.76f, 2.0f, 2.4f, 3.4f,
                        3.99f, 4.0f, -4.6f, 5.0f, 6.0f, 6.3f}) {
    CAPTURE(v);
    const NoisyCodes codes = ComfyCodes(v);
    std::array<int, 8> counts = {};
    for (int i = 0; i < kDraws; ++i) {
      const float u = (static_cast<float>(i) + 0.5f) / kDraws;
      const std::uint8_t code = ComfyStochasticCode(v, u);
      CHECK((code >> 3 != 0) == std::signbit(v));
      ++counts[code & 7u];
    }
    double sum = 0;
    for (std::size_t code = 0; code < 8; ++code) {
      CAPTURE(code);
      const double share = static_cast<double>(counts[code]) / kDraws;
      CHECK(codes.probability[code] == Catch::Approx(share).margin(2.0 / kDraws));
      if (counts[code] > 0) CHECK(codes.reached[code]);
      if (codes.probability[code] > 2.0 / kDraws) CHECK(counts[code] > 0);
      sum += codes.probability[code];
    }
    CHECK(sum == Catch::Approx(1.0));
  }
}

constexpr std::string_view kRow = "nvfp4.comfyui.stochastic-centre";

// A kernel's bytes: scales of the row, elements by `code` of the scaled element and its index.
template <class Code>
StoredMatrix Run(const Matrix<float>& x, Code code) {
  const Dialect& d = *FindDialect(kRow);
  Quantized q = QuantizeAs(d, x.View());
  const float tensor = q.amax[0] / 2688.0f;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const float v = x.values[i] / (tensor * Decode(FormatId::kE4M3, q.scales[i / 16]));
    q.codes[i] = code(v, i);
  }
  return Store(d, q, {.tensor_scale = TensorScaleConvention::kMultiplier});
}

TEST_CASE("ComfyUI's stochastic rounding is accepted, and wrong ones are refused", "[judge]") {
  const Matrix<float> x = NormalMatrix(3, 128, 256);
  const Dialect& d = *FindDialect(kRow);
  const RandomStream stream{.seed = 5};
  const auto right = [&](float v, std::size_t i) {
    return ComfyStochasticCode(v, Uniform(stream, i));
  };
  const auto judge = [&](std::vector<StoredMatrix> runs) {
    return VerifyStatistically(d, x.View(), runs, "runs");
  };
  const StatisticalVerdict accepted = judge({Run(x, right)});
  CAPTURE(accepted.rounding.reason);
  CHECK(accepted.Accepted());
  CHECK_THAT(StatisticalText(d, accepted),
             ContainsSubstring("ComfyUI's stochastic rounding") && !ContainsSubstring("power"));
  CHECK(StatisticalJson(d, accepted)["accepted"] == true);

  const auto refused = [&](std::vector<StoredMatrix> runs, const char* statistic) {
    const StatisticalVerdict v = judge(std::move(runs));
    CHECK(v.rounding.answer == StochasticAnswer::kRefused);
    CHECK_THAT(v.rounding.reason, ContainsSubstring(statistic));
  };
  refused({Run(x, [&](float v,
                      std::size_t i) { return ComfyStochasticCode(v, Uniform(stream, i), 1.0f); })},
          "rates: ");
  refused({Run(x, [&](float v,
                      std::size_t i) { return ComfyStochasticCode(v, Uniform(stream, i), 1.5f); })},
          "codes: ");
  refused({Run(x, [&](float v, std::size_t) { return ComfyStochasticCode(v, 0.5f); })}, "rates: ");
  refused({Run(x, [&](float v,
                      std::size_t i) { return ComfyStochasticCode(v, Uniform(stream, i / 2)); })},
          "neighbours: ");
  refused({Run(x, right), Run(x, right)}, "repetitions: ");
  StoredMatrix one = Run(x, right);
  one.codes[77] ^= 0x08;  // another sign
  refused({one}, "codes: 1 of 32768 codes cannot be reached");

  const Matrix<float> small = NormalMatrix(3, 4, 16);
  const StatisticalVerdict open =
      VerifyStatistically(d, small.View(), std::vector{Run(small, right)}, "runs");
  CHECK(open.rounding.answer == StochasticAnswer::kUndecided);
}

TEST_CASE("explain names ComfyUI's stochastic rounding, and only where it fits", "[judge]") {
  const Matrix<float> x = NormalMatrix(4, 128, 256);
  const RandomStream stream{.seed = 6};
  const Kernel asked{.dialect = *FindDialect("nvfp4.comfyui"),
                     .layout = {.tensor_scale = TensorScaleConvention::kMultiplier}};
  const auto explain = [&](float width) {
    return Explain(
        asked, x.View(),
        Run(x, [&](float v,
                   std::size_t i) { return ComfyStochasticCode(v, Uniform(stream, i), width); }),
        {.search = {.pairs = false}});
  };
  const Explanation right = explain(1.25f);
  CHECK(right.causes.IsStochastic());
  CHECK_THAT(Text(asked, right),
             ContainsSubstring("Cause: consistent with ComfyUI's stochastic rounding "
                               "(nvfp4.comfyui.stochastic-centre):"));
  CHECK(ToJson(asked, right)["verdict"] == "consistent with");
  CHECK(ToJson(asked, right)["stochastic"]["accepted"] == true);
  CHECK(ToJson(asked, right)["stochastic"]["noise"] != "");
  CHECK_FALSE(explain(1.0f).causes.IsStochastic());
  CHECK_FALSE(explain(2.0f).causes.IsStochastic());
}

}  // namespace
}  // namespace fp4lab
