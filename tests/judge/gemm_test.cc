#include "fp4lab/judge/products/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/base/random.h"
#include "tests/support/catch.h"
#include "tests/tensor/operands.h"

namespace fp4lab {
namespace {

const Format& kE2m1 = FormatOf(FormatId::kE2M1);
const Format& kE4m3 = FormatOf(FormatId::kE4M3);
const Format& kE8m0 = FormatOf(FormatId::kE8M0);
const Format& kBf16 = FormatOf(FormatId::kBF16);

MmaOperand Nvfp4(std::size_t rows, std::size_t cols, std::uint32_t seed) {
  return RandomOperand(kE2m1, rows, cols, Inputs::kTypical, seed, 16, kE4m3);
}

Matrix<float> ProductUnder(const char* name, const MmaOperand& a, const MmaOperand& b,
                           const ProductOptions& options = {}) {
  Matrix<float> c(a.rows, b.rows);
  GemmAs(*FindAccumulation(name), a, b, options, c.View());
  return c;
}

GemmJudgement JudgeUnder(const char* name, const MmaOperand& a, const MmaOperand& b,
                         const Matrix<float>& d, float alpha = 1.0f,
                         GemmOutput output = GemmOutput::kFp32) {
  return JudgeGemm({.a = a, .b = b, .d = d.View(), .alpha = alpha, .output = output},
                   *FindAccumulation(name));
}

TEST_CASE("A result under a model is equal, one unit beside it is inside, a wrong one outside",
          "[judge]") {
  const MmaOperand a = Nvfp4(6, 512, 1), b = Nvfp4(9, 512, 2);
  for (const char* name : {"blackwell.mxf4.f32", "fp32-blocks", "hopper.f16.f32", "exact"}) {
    INFO(name);
    Matrix<float> d = ProductUnder(name, a, b);
    GemmJudgement j = JudgeUnder(name, a, b, d);
    CHECK(j.verdict == GemmVerdict::kEqual);
    CHECK(j.different == 0);
    CHECK(j.worst.error <= j.worst.bound);
    d(4, 7) = std::nextafter(d(4, 7), 1e30f);
    j = JudgeUnder(name, a, b, d);
    CHECK(j.verdict == GemmVerdict::kInside);
    CHECK(j.different == 1);
    CHECK(j.first_different.row == 4);
    CHECK(j.first_different.col == 7);
    CHECK(j.first_different.got == d(4, 7));
    d(2, 3) += 1.0f;  // far less than the sum of magnitudes, far more than the bound
    j = JudgeUnder(name, a, b, d);
    CHECK(j.verdict == GemmVerdict::kOutside);
    CHECK(j.outside == 1);
    CHECK(j.worst.row == 2);
    CHECK(j.worst.col == 3);
    CHECK(j.worst.error == Catch::Approx(1.0).epsilon(0.01));
    CHECK(j.worst.bound < 1.0);
  }
}

// An operand with scales of all sizes, so that sums round.
MmaOperand WideNvfp4(std::size_t rows, std::size_t cols, std::uint32_t seed) {
  return RandomOperand(kE2m1, rows, cols, Inputs::kWide, seed, 16, kE4m3);
}

// Sums of the products in a random order, in binary32, each addition toward zero or to nearest.
Matrix<float> Shuffled(const MmaOperand& a, const MmaOperand& b, bool toward_zero) {
  const Matrix<double> va = ExactValues(a), vb = ExactValues(b);
  Matrix<float> d(a.rows, b.rows);
  for (std::size_t m = 0; m < a.rows; ++m) {
    for (std::size_t n = 0; n < b.rows; ++n) {
      const RandomStream stream{.seed = 3, .tensor = static_cast<std::uint32_t>(m * 100 + n)};
      std::vector<std::size_t> order(a.cols);
      for (std::size_t k = 0; k < a.cols; ++k) order[k] = k;
      for (std::size_t k = a.cols; k > 1; --k) {
        std::swap(order[k - 1], order[stream.Bits32(k) % k]);
      }
      float y = 0;
      for (const std::size_t k : order) {
        const double sum = double(y) + va(m, k) * vb(n, k);  // exact in binary64 for these
        y = static_cast<float>(sum);
        if (toward_zero && std::abs(double(y)) > std::abs(sum)) y = std::nextafter(y, 0.0f);
      }
      d(m, n) = y;
    }
  }
  return d;
}

TEST_CASE("Any order of summation lies within the any-order bound", "[judge]") {
  for (const Inputs inputs : {Inputs::kTypical, Inputs::kCancelling, Inputs::kWide}) {
    const MmaOperand a = RandomOperand(kE2m1, 5, 320, inputs, 7, 16, kE4m3);
    const MmaOperand b = RandomOperand(kE2m1, 6, 320, inputs, 8, 16, kE4m3);
    for (const bool toward_zero : {false, true}) {
      const GemmJudgement j = JudgeUnder("fp32-blocks", a, b, Shuffled(a, b, toward_zero));
      CHECK(j.bound == "any-order");
      CHECK(j.outside == 0);
      if (inputs == Inputs::kWide) CHECK(j.worst.error > 0);  // others happen to sum exactly
      CHECK((j.verdict == GemmVerdict::kInside || j.verdict == GemmVerdict::kEqual));
    }
  }
}

TEST_CASE("Every model's answer lies within its own bound, whatever the input", "[judge]") {
  struct Case {
    Format format;
    int group;
    Format scale;
  };
  for (const Case& c :
       {Case{kE2m1, 16, kE4m3}, Case{kE2m1, 32, kE8m0}, Case{kE4m3, 32, kE8m0}, Case{kE4m3, 0, {}},
        Case{FormatOf(FormatId::kE5M2), 0, {}}, Case{kBf16, 0, {}},
        Case{FormatOf(FormatId::kFP16), 0, {}}, Case{FormatOf(FormatId::kTF32), 0, {}}}) {
    for (const Inputs inputs : kAllInputs) {
      const MmaOperand a = RandomOperand(c.format, 2, 110, inputs, 21, c.group, c.scale);
      const MmaOperand b = RandomOperand(c.format, 3, 110, inputs, 22, c.group, c.scale);
      for (const Accumulation& accumulation : Accumulations()) {
        if (!WhyNot(accumulation, a, b).empty()) continue;
        INFO(accumulation.name << ", inputs " << static_cast<int>(inputs) << ", bits "
                               << c.format.bits << ", group " << c.group);
        const std::string name(accumulation.name);
        for (const GemmOutput output : {GemmOutput::kFp32, GemmOutput::kBf16}) {
          const float alpha = output == GemmOutput::kFp32 ? 1.0f : 0.37f;
          const Matrix<float> d =
              ProductUnder(name.c_str(), a, b, {.alpha = alpha, .output = output});
          const GemmJudgement j = JudgeUnder(name.c_str(), a, b, d, alpha, output);
          CHECK(j.different == 0);
          CHECK(j.outside == 0);
        }
      }
    }
  }
}

TEST_CASE("The bounds are not wider than the errors that exist", "[judge]") {
  // The bounds of 4096 products of magnitude at most 1 are those of the formulas.
  const Matrix<float> ones(1, 4096, 1.0f);
  Matrix<float> x(1, 4096, 0x1.fcp-1f);
  const MmaOperand a = MakeMmaOperand(kBf16, ones.View()), b = MakeMmaOperand(kBf16, x.View());
  const SumFacts facts{.terms = 4096, .magnitudes = 4096, .largest_power = 1};
  CHECK(AnyOrderBound(facts) == Catch::Approx(4096 * 4096 * 0x1p-23).epsilon(0.01));
  CHECK(TensorCoreBound(*FindTensorCoreModel("hopper.f16.f32"), facts) ==
        Catch::Approx(4097 * 256 * (0x1p-23 + 17 * 0x1p-25)).epsilon(0.01));
  CHECK(TensorCoreBound(*FindTensorCoreModel("blackwell.mxf4.f32"), facts) <
        AnyOrderBound(facts) / 10);
  // Hopper's FP8 products keep 13 bits: outside binary32's bound, inside their own.
  const MmaOperand fa = RandomOperand(kE4m3, 3, 4096, Inputs::kTypical, 31);
  const MmaOperand fb = RandomOperand(kE4m3, 3, 4096, Inputs::kTypical, 32);
  MmaOperand pa = fa, pb = fb;
  for (std::uint32_t& code : pa.codes) code &= 0x7F;
  for (std::uint32_t& code : pb.codes) code &= 0x7F;
  const Matrix<float> d = ProductUnder("hopper.wgmma.f8.f32", pa, pb);
  CHECK(JudgeUnder("hopper.wgmma.f8.f32", pa, pb, d).verdict == GemmVerdict::kEqual);
  CHECK(JudgeUnder("exact", pa, pb, d).verdict == GemmVerdict::kOutside);
}

TEST_CASE("If the open readings of mxf4 differ on the input, the verdict is undetermined",
          "[judge]") {
  MmaOperand a{.rows = 1, .cols = 64, .format = kE2m1, .group = 16, .scale_format = kE8m0};
  a.codes.assign(64, 0);
  a.scales.assign(4, 0x7F);
  MmaOperand b = a;
  a.codes[0] = a.codes[1] = a.codes[16] = b.codes[0] = b.codes[16] = 2;  // 1
  b.codes[1] = 0xA;                                                      // -1: group 0 cancels
  a.scales[0] = 0xA7;                                                    // under a scale of 2^40
  const Matrix<float> zero(1, 1, 0.0f), one(1, 1, 1.0f), three(1, 1, 3.0f);
  GemmJudgement j = JudgeUnder("blackwell.mxf4.f32", a, b, zero);
  CHECK(j.readings_differ);
  CHECK(j.verdict == GemmVerdict::kUndetermined);
  REQUIRE(j.readings.size() == 2);
  CHECK(j.readings[0].cancelled_group_counts);
  j = JudgeUnder("blackwell.mxf4.f32", a, b, one);
  CHECK(j.verdict == GemmVerdict::kUndetermined);
  CHECK(!j.readings[0].cancelled_group_counts);
  CHECK(j.different == 1);
  CHECK(JudgeUnder("blackwell.mxf4.f32", a, b, three).readings.empty());
  // Ordinary NVFP4 operands leave nothing open.
  const MmaOperand x = Nvfp4(4, 128, 5), y = Nvfp4(4, 128, 6);
  j = JudgeUnder("blackwell.mxf4.f32", x, y, ProductUnder("blackwell.mxf4.f32", x, y));
  CHECK(!j.readings_differ);
  CHECK(j.readings.size() == 4);
}

TEST_CASE("Identification lists the accumulations that give the result", "[judge]") {
  const MmaOperand a = WideNvfp4(8, 1024, 11), b = WideNvfp4(8, 1024, 12);
  const Matrix<float> d = ProductUnder("hopper.f16.f32", a, b);
  std::vector<std::string> equal;
  std::size_t tried = 0;
  for (const AccumulationMatch& match : IdentifyAccumulation({.a = a, .b = b, .d = d.View()})) {
    ++tried;
    if (match.different == 0) equal.emplace_back(match.accumulation->name);
  }
  CHECK(tried >= 10);
  CHECK(std::count(equal.begin(), equal.end(), "hopper.f16.f32") == 1);
  for (const char* other : {"blackwell.mxf4.f32", "fp32-blocks", "ampere.f16.f32", "exact"}) {
    CHECK(std::count(equal.begin(), equal.end(), other) == 0);
  }
}

TEST_CASE("The exact value stands beside a NaN that the device made", "[judge]") {
  const MmaOperand a = Nvfp4(4, 128, 21), b = Nvfp4(5, 128, 22);
  Matrix<float> d = ProductUnder("exact", a, b);
  const float exact = d(2, 3);
  REQUIRE(exact != 0.0f);
  for (const float special : {NAN, -std::numeric_limits<float>::infinity()}) {
    d(2, 3) = special;
    const GemmElement worst = JudgeUnder("exact", a, b, d).worst;
    CHECK((worst.row == 2 && worst.col == 3));
    CHECK(worst.exact == exact);
    CHECK(worst.special_in == ' ');
  }
  Matrix<float> ones(3, 2, 1.0f), x(3, 2, 1.0f);
  x(1, 1) = NAN;
  const MmaOperand finite = MakeMmaOperand(kBf16, ones.View());
  const MmaOperand with_nan = MakeMmaOperand(kBf16, x.View());
  const Matrix<float> twos(3, 3, 2.0f);
  GemmElement worst = JudgeUnder("exact", with_nan, finite, twos).worst;
  CHECK((worst.row == 1 && worst.special_in == 'A' && worst.special_k == 1));
  CHECK(std::isnan(worst.exact));
  worst = JudgeUnder("exact", finite, with_nan, twos).worst;
  CHECK((worst.col == 1 && worst.special_in == 'B' && worst.special_k == 1));
}

TEST_CASE("Special values have one answer, overflow has two", "[judge]") {
  const float inf = std::numeric_limits<float>::infinity();
  Matrix<float> ones(1, 2, 1.0f), x(3, 2, 1.0f);
  x(0, 0) = inf;
  x(1, 0) = NAN;
  x(2, 0) = x(2, 1) = 0x1p127f;
  const MmaOperand a = MakeMmaOperand(kBf16, x.View()), b = MakeMmaOperand(kBf16, ones.View());
  Matrix<float> d(3, 1);
  d.values = {inf, -NAN, inf};
  CHECK(JudgeUnder("hopper.f16.f32", a, b, d).verdict == GemmVerdict::kEqual);
  d.values = {inf, NAN, 0x1.fffffep127f};  // the largest number next to the overflow: inside
  CHECK(JudgeUnder("hopper.f16.f32", a, b, d).verdict == GemmVerdict::kInside);
  d.values = {1.0f, NAN, inf};
  CHECK(JudgeUnder("hopper.f16.f32", a, b, d).worst.row == 0);
  d.values = {inf, 0.0f, inf};
  CHECK(JudgeUnder("hopper.f16.f32", a, b, d).worst.row == 1);
}

}  // namespace
}  // namespace fp4lab
