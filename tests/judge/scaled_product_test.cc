// Products of FP8 operands with scales of tensors, rows and blocks: the definition, the bound, the
// types of the output, and the causes that wrong readings of scales are named by.
#include "fp4lab/judge/products/scaled_product.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/exchange/quantize_stored.h"
#include "fp4lab/judge/products/gemm_file.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

StoredMatrix Stored(const char* dialect, std::size_t rows, std::size_t cols, std::uint64_t seed) {
  const Dialect& d = *FindDialect(dialect);
  Matrix<float> x(rows, cols);
  FillNormalValues(seed, 1.0, x.values);
  for (std::size_t r = 0; r < rows; ++r) {  // blocks and rows of different sizes
    for (std::size_t c = 0; c < cols; ++c) {
      x(r, c) *= std::ldexp(1.0f + 0.37f * static_cast<float>(r % 5),
                            static_cast<int>(c / 128) * 2 + static_cast<int>(r / 128));
    }
  }
  return QuantizeStored(d, x.View(), {},
                        {.codes = CodeOrder::kBytes,
                         .tensor_scale = HasTensorScale(d) ? TensorScaleConvention::kMultiplier
                                                           : TensorScaleConvention::kNone});
}

// The product written here: binary64 dots, then the roundings of the definition.
Matrix<float> ByHand(const StoredMatrix& a, const StoredMatrix& b, std::size_t group) {
  const auto scale = [](const StoredMatrix& m, std::size_t r, std::size_t c) {
    if (m.block_rows == 0) return m.tensor_scale[m.tensor_scale.size() == 1 ? 0 : r];
    const auto height = static_cast<std::size_t>(m.block_rows);
    const std::size_t cols = (m.cols + 127) / 128;
    return ScaleValueOf(m.layout.scale_type, m.scale,
                        ScaleCodeAt(m.scales, r / height * cols + c / 128, m.layout.scale_type));
  };
  Matrix<float> d(a.rows, b.rows);
  for (std::size_t m = 0; m < a.rows; ++m) {
    for (std::size_t n = 0; n < b.rows; ++n) {
      float y = 0.0f;
      for (std::size_t first = 0; first < a.cols; first += group) {
        double dot = 0;
        for (std::size_t k = first; k < std::min(first + group, a.cols); ++k) {
          dot += static_cast<double>(Decode(a.element, a.codes[m * a.cols + k])) *
                 Decode(b.element, b.codes[n * b.cols + k]);
        }
        const float scaled = static_cast<float>(dot) * scale(a, m, first) * scale(b, n, first);
        y = group >= a.cols ? scaled : y + scaled;
      }
      d(m, n) = y;
    }
  }
  return d;
}

struct Kind {
  const char *a, *b;
  std::size_t group;
};
constexpr Kind kKinds[] = {{"fp8_e4m3.1x128.fp32", "fp8_e4m3.128x128.fp32", 128},
                           {"fp8_e4m3.1x128.fp32", "fp8_e4m3.128x128.bf16", 128},
                           {"fp8_e4m3.1x128.e8m0", "fp8_e4m3.128x128.e8m0", 128},
                           {"fp8_e4m3.row", "fp8_e4m3.row", 300},
                           {"fp8_e4m3", "fp8_e4m3.row", 300},
                           {"fp8_e4m3", "fp8_e4m3", 300}};

const Accumulation& Exact() { return *FindAccumulation("exact"); }

TEST_CASE("A product of scaled FP8 is its definition, bit for bit", "[judge][gemm]") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.a, kind.b);
    const StoredMatrix sa = Stored(kind.a, 20, 300, 1), sb = Stored(kind.b, 140, 300, 2);
    const ScaledOperand a = MakeScaledOperand(sa, "a"), b = MakeScaledOperand(sb, "b");
    Matrix<float> d = ByHand(sa, sb, kind.group);
    const ScaledClaim claim{.a = a, .b = b, .d = d.View()};
    CHECK(ScaledProduct(claim, Exact()).values == d.values);
    CHECK(JudgeScaled(claim, Exact()).verdict == GemmVerdict::kEqual);
    // Sums in another order stay inside; a wrong element is found where it is.
    for (float& v : d.values) v = std::nextafter(v, 0.0f);
    CHECK(JudgeScaled(claim, Exact()).verdict == GemmVerdict::kInside);
    d(7, 130) *= 1.01f;
    const ScaledJudgement j = JudgeScaled(claim, Exact());
    CHECK(j.verdict == GemmVerdict::kOutside);
    CHECK(j.outside == 1);
    CHECK(j.outside_in == Rectangle{7, 130, 1, 1});
    CHECK(j.causes.empty());
  }
}

TEST_CASE("Products of FP8 are judged in every type of output", "[judge][gemm]") {
  const StoredMatrix sa = Stored("fp8_e4m3.row", 16, 256, 3),
                     sb = Stored("fp8_e4m3.row", 24, 256, 4);
  const ScaledOperand a = MakeScaledOperand(sa, "a"), b = MakeScaledOperand(sb, "b");
  for (const FormatId output :
       {FormatId::kE4M3, FormatId::kE5M2, FormatId::kBF16, FormatId::kFP16}) {
    CAPTURE(Named(output).name);
    Matrix<float> d = ByHand(sa, sb, 256);
    for (float& v : d.values) v = Decode(output, Encode(output, v * 0.0625f));
    const ScaledClaim claim{
        .a = a, .b = b, .d = d.View(), .output = output, .output_scale = 0.0625f};
    CHECK(JudgeScaled(claim, Exact()).verdict == GemmVerdict::kEqual);
    float& first = d(0, 0);
    const std::uint32_t code = Encode(output, first);
    first = Decode(output, code + 1);  // the neighbour
    CHECK(JudgeScaled(claim, Exact()).outside == 1);
    // The kernel leaves the scale of its output out.
    Matrix<float> without = ByHand(sa, sb, 256);
    for (float& v : without.values) v = Decode(output, Encode(output, v));
    const ScaledJudgement j = JudgeScaled(
        {.a = a, .b = b, .d = without.View(), .output = output, .output_scale = 0.0625f}, Exact());
    REQUIRE(j.causes.size() == 1);
    CHECK(j.causes[0].name == "output-scale-missing");
    CHECK(j.causes[0].equal);
  }
}

TEST_CASE("A scale of the output that was not stated is found", "[judge][gemm]") {
  const StoredMatrix sa = Stored("fp8_e4m3.row", 16, 256, 13),
                     sb = Stored("fp8_e4m3.row", 24, 256, 14);
  const ScaledOperand a = MakeScaledOperand(sa, "a"), b = MakeScaledOperand(sb, "b");
  const struct {
    std::optional<FormatId> output;
    float scale;
  } rows[] = {{FormatId::kE4M3, 0.03125f}, {FormatId::kBF16, 8.0f}, {std::nullopt, 3.0f}};
  for (const auto& [output, scale] : rows) {
    CAPTURE(scale);
    const Matrix<float> none(16, 24);
    const Matrix<float> d = ScaledProduct(
        {.a = a, .b = b, .d = none.View(), .output = output, .output_scale = scale}, Exact());
    const ScaledJudgement j =
        JudgeScaled({.a = a, .b = b, .d = d.View(), .output = output}, Exact());
    CHECK(j.verdict == GemmVerdict::kOutside);
    REQUIRE(j.better.has_value());
    CHECK(std::abs(j.better->output_scale - scale) <= 0x1p-20f * scale);
    CHECK(j.better->outside == 0);
  }
  Matrix<float> garbage(16, 24);
  FillNormalValues(15, 1.0, garbage.values);
  CHECK_FALSE(JudgeScaled({.a = a, .b = b, .d = garbage.View()}, Exact()).better.has_value());
}

TEST_CASE("FP4 in blocks has outputs of FP8, and FP8 is multiplied by FP4", "[judge][gemm]") {
  for (const char* kind : {"nvfp4.te", "mxfp4.rceil"}) {
    CAPTURE(kind);
    const Dialect& dialect = *FindDialect(kind);
    Matrix<float> xa(12, 160), xb(20, 160);
    FillNormalValues(11, 1.0, xa.values);
    FillNormalValues(12, 3.0, xb.values);
    const ScaledOperand b = MakeScaledOperand(QuantizeStored(dialect, xb.View(), {}, {}), "b");
    const StoredMatrix fp8 = QuantizeStored(*FindDialect("fp8_e4m3.1x128.fp32"), xa.View(), {},
                                            {.codes = CodeOrder::kBytes});
    for (const ScaledOperand& a :
         {MakeScaledOperand(QuantizeStored(dialect, xa.View(), {}, {}), "a"),
          MakeScaledOperand(fp8, "a")}) {
      const Matrix<double> va = ExactValues(a.elements), vb = ExactValues(b.elements);
      Matrix<float> d(12, 20);
      for (std::size_t m = 0; m < 12; ++m) {
        for (std::size_t n = 0; n < 20; ++n) {
          float y = 0.0f;
          for (std::size_t first = 0; first < 160; first += b.group) {
            double dot = 0;
            for (std::size_t k = first; k < first + b.group; ++k) dot += va(m, k) * vb(n, k);
            y += static_cast<float>(dot) * a.scales(m, first / a.group) *
                 b.scales(n, first / b.group);
          }
          d(m, n) = Decode(FormatId::kE4M3, Encode(FormatId::kE4M3, 0.5f * y * 0.125f));
        }
      }
      const ScaledClaim claim{.a = a,
                              .b = b,
                              .d = d.View(),
                              .alpha = 0.5f,
                              .output = FormatId::kE4M3,
                              .output_scale = 0.125f};
      CHECK(JudgeScaled(claim, Exact()).verdict == GemmVerdict::kEqual);
      d(5, 7) = Decode(FormatId::kE4M3, Encode(FormatId::kE4M3, d(5, 7)) + 1);
      CHECK(JudgeScaled(claim, Exact()).outside_in == Rectangle{5, 7, 1, 1});
    }
  }
}

TEST_CASE("Every wrong reading of scales is caught and named", "[judge][gemm]") {
  const StoredMatrix sa = Stored("fp8_e4m3.1x128.fp32", 32, 512, 5);
  const StoredMatrix sb = Stored("fp8_e4m3.128x128.fp32", 300, 512, 6);
  const ScaledOperand a = MakeScaledOperand(sa, "a"), b = MakeScaledOperand(sb, "b");
  Matrix<float> none(32, 300);
  const ScaledClaim asked{
      .a = a, .b = b, .d = none.View(), .output = FormatId::kBF16, .output_scale = 0.5f};
  for (const std::string_view name : ScaledReadingNames()) {
    CAPTURE(name);
    const std::optional<ScaledReading> wrong = ReadScaled(asked, name);
    REQUIRE(wrong.has_value());
    const Matrix<float> d = ScaledProduct({.a = wrong->a,
                                           .b = wrong->b,
                                           .d = none.View(),
                                           .output = asked.output,
                                           .output_scale = wrong->output_scale},
                                          Exact());
    const ScaledJudgement j = JudgeScaled(
        {.a = a, .b = b, .d = d.View(), .output = asked.output, .output_scale = asked.output_scale},
        Exact());
    CHECK(j.verdict == GemmVerdict::kOutside);
    const auto named = [&](const ScaledJudgement::Cause& c) { return c.name == name; };
    CHECK(std::any_of(j.causes.begin(), j.causes.end(), named));
    CHECK(j.causes.size() <= 2);
  }
}

// Whether two readings multiply by the same numbers: 1 / (1 / s) is s, or its neighbour.
bool MultiplyAlike(const ScaledReading& x, const ScaledReading& y) {
  const auto alike = [](float a, float b) { return std::abs(a - b) <= 0x1p-21f * std::abs(a); };
  const auto all = [&](const Matrix<float>& a, const Matrix<float>& b) {
    return std::equal(a.values.begin(), a.values.end(), b.values.begin(), alike);
  };
  return all(x.a.scales, y.a.scales) && all(x.b.scales, y.b.scales) &&
         alike(x.output_scale, y.output_scale);
}

TEST_CASE("Two random wrong readings of scales never name a third", "[judge][gemm]") {
  const RandomStream random{.seed = 37};
  const std::vector<std::string_view> names = ScaledReadingNames();
  const StoredMatrix sa = Stored("fp8_e4m3.1x128.fp32", 6, 256, 9);
  const StoredMatrix sb = Stored("fp8_e4m3.128x128.fp32", 140, 256, 10);
  const ScaledOperand a = MakeScaledOperand(sa, "a"), b = MakeScaledOperand(sb, "b");
  const Matrix<float> none(6, 140);
  const ScaledClaim asked{.a = a, .b = b, .d = none.View(), .output_scale = 0.75f};
  std::size_t unnamed = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    const std::size_t first = random.Bits32(2 * i) % names.size();
    const std::size_t second =
        (first + 1 + random.Bits32(2 * i + 1) % (names.size() - 1)) % names.size();
    const std::optional<ScaledReading> one = ReadScaled(asked, names[first]);
    REQUIRE(one.has_value());
    const ScaledClaim of_one{
        .a = one->a, .b = one->b, .d = none.View(), .output_scale = one->output_scale};
    const std::optional<ScaledReading> two = ReadScaled(of_one, names[second]);
    const ScaledReading& wrong = two ? *two : *one;
    const Matrix<float> d = ScaledProduct(
        {.a = wrong.a, .b = wrong.b, .d = none.View(), .output_scale = wrong.output_scale},
        Exact());
    const ScaledJudgement j =
        JudgeScaled({.a = a, .b = b, .d = d.View(), .output_scale = asked.output_scale}, Exact());
    INFO(names[first] << ", then " << names[second]);
    for (const ScaledJudgement::Cause& c : j.causes) {
      if (c.name == names[first] || c.name == names[second]) continue;
      CHECK(MultiplyAlike(ReadScaled(asked, c.name).value(), wrong));  // two rows that are a third
    }
    unnamed += j.causes.empty() ? 1 : 0;
  }
  CHECK(unnamed > 120);  // few pairs are one reading: the second undoes or hides the first
}

TEST_CASE("Hopper's sums of FP8 have their own bound", "[judge][gemm]") {
  const StoredMatrix sa = Stored("fp8_e4m3.1x128.fp32", 16, 512, 7);
  const StoredMatrix sb = Stored("fp8_e4m3.128x128.fp32", 16, 512, 8);
  const ScaledOperand a = MakeScaledOperand(sa, "a"), b = MakeScaledOperand(sb, "b");
  const Accumulation* hopper = nullptr;
  for (const Accumulation& under : Accumulations()) {
    if (under.model != nullptr && WhyNot(under, a.elements, b.elements).empty()) hopper = &under;
  }
  REQUIRE(hopper != nullptr);
  Matrix<float> none(16, 16);
  const Matrix<float> d = ScaledProduct({.a = a, .b = b, .d = none.View()}, *hopper);
  const ScaledClaim claim{.a = a, .b = b, .d = d.View()};
  CHECK(JudgeScaled(claim, *hopper).verdict == GemmVerdict::kEqual);
}

TEST_CASE("Operands that are no scaled FP8 are refused with one line", "[judge][gemm]") {
  StoredMatrix four = Stored("fp8_e4m3", 16, 128, 1);
  four.element = FormatId::kE2M1;
  CHECK_THAT(ErrorOf([&] { MakeScaledOperand(four, "x"); }),
             ContainsSubstring("FP8, or of FP4 in blocks"));
  const StoredMatrix numbers = Stored("fp8_e4m3.1x128.fp32", 16, 128, 1);
  CHECK_THAT(ErrorOf([&] { MakeMmaOperand(numbers, "x"); }), ContainsSubstring("fp32"));
  CHECK(IsScaledFp8(numbers));
  CHECK_FALSE(IsScaledFp8(Stored("fp8_e4m3", 16, 128, 1)));
}

}  // namespace
}  // namespace fp4lab
