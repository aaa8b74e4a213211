// Causes of wrong products, from wrong products that are computed here in binary64.
#include "fp4lab/judge/products/gemm_cause.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensor/operands.h"

namespace fp4lab {
namespace {

const Format& kE2m1 = FormatOf(FormatId::kE2M1);
const Format& kE4m3 = FormatOf(FormatId::kE4M3);
const Format& kE8m0 = FormatOf(FormatId::kE8M0);

using Factor = std::function<double(std::size_t row, std::size_t k, double value)>;

// alpha times the sum over k of fa(a) fb(b), rounded once.
Matrix<float> Product(const MmaOperand& a, const MmaOperand& b, double alpha, const Factor& fa,
                      const Factor& fb) {
  const Matrix<double> va = ExactValues(a), vb = ExactValues(b);
  Matrix<float> d(a.rows, b.rows);
  for (std::size_t m = 0; m < a.rows; ++m) {
    for (std::size_t n = 0; n < b.rows; ++n) {
      double sum = 0.0;
      for (std::size_t k = 0; k < a.cols; ++k) sum += fa(m, k, va(m, k)) * fb(n, k, vb(n, k));
      d(m, n) = static_cast<float>(alpha * sum);
    }
  }
  return d;
}

double Same(std::size_t, std::size_t, double value) { return value; }

std::set<std::string> Causes(const MmaOperand& a, const MmaOperand& b, const Matrix<float>& d,
                             float alpha = 1.0f) {
  const GemmClaim claim{.a = a, .b = b, .d = d.View(), .alpha = alpha};
  REQUIRE(JudgeGemm(claim, *FindAccumulation("exact")).outside > 0);
  std::set<std::string> names;
  for (const GemmCause& c : FindGemmCauses(claim, *FindAccumulation("exact"))) names.insert(c.name);
  return names;
}

using Names = std::set<std::string>;

TEST_CASE("Readings of a scale byte are causes of a wrong product", "[judge]") {
  MmaOperand a = RandomOperand(kE2m1, 16, 128, Inputs::kTypical, 1, 32, kE8m0);
  MmaOperand b = RandomOperand(kE2m1, 16, 128, Inputs::kTypical, 2, 32, kE8m0);
  for (std::size_t i = 0; i < a.scales.size(); ++i) a.scales[i] = i % 3 == 0 ? 0 : 1;
  for (std::uint8_t& byte : b.scales) byte = 0xF8;
  const auto zero = [&](std::size_t r, std::size_t k, double v) {
    return a.ScaleRow(r)[k / 32] == 0 ? 0.0 : v;
  };
  CHECK(Causes(a, b, Product(a, b, 1, zero, Same)) == Names{"e8m0-0x00-as-0"});

  MmaOperand c = RandomOperand(kE2m1, 16, 128, Inputs::kTypical, 3, 16, kE4m3);
  const MmaOperand e = RandomOperand(kE2m1, 16, 128, Inputs::kTypical, 4, 16, kE4m3);
  MmaOperand finite = c;
  c.scales[5] = 0x7F;
  finite.scales[5] = 0x7E;
  CHECK(Causes(c, e, Product(finite, e, 1, Same, Same)) == Names{"0x7f-as-448"});
}

TEST_CASE("Dropped ends of K, alphas and operands in another order are causes", "[judge]") {
  const MmaOperand a = RandomOperand(kE2m1, 16, 208, Inputs::kTypical, 5, 16, kE4m3);
  const MmaOperand b = RandomOperand(kE2m1, 24, 208, Inputs::kTypical, 6, 16, kE4m3);
  const auto until = [](std::size_t end) {
    return [=](std::size_t, std::size_t k, double v) { return k < end ? v : 0.0; };
  };
  CHECK(Causes(a, b, Product(a, b, 1, until(192), Same)).count("k-tail-of-64-dropped") == 1);
  CHECK(Causes(a, b, Product(a, b, 1, until(128), Same)) == Names{"k-tail-of-128-dropped"});
  const auto first = [](std::size_t, std::size_t k, double v) { return k < 16 ? 0.0 : v; };
  CHECK(Causes(a, b, Product(a, b, 1, Same, first)) == Names{"k-first-block-dropped"});
  CHECK(Causes(a, b, Product(a, b, 1, Same, Same), 0.3f) == Names{"alpha-missing"});
  CHECK(Causes(a, b, Product(a, b, 0.0625, Same, Same), 0.25f) == Names{"alpha-twice"});
  CHECK(Causes(a, b, Product(a, b, 4, Same, Same), 0.25f) == Names{"alpha-inverted"});
  const Matrix<double> va = ExactValues(a);
  const auto scale = [](const MmaOperand& x, std::size_t r, std::size_t block) {
    return double{Decode(x.scale_format, x.ScaleRow(r)[block])};
  };
  const auto unscaled = [&](const MmaOperand& x) {
    return [&](std::size_t r, std::size_t k, double v) { return v / scale(x, r, k / 16); };
  };
  CHECK(Causes(a, b, Product(a, b, 1, unscaled(a), Same)) == Names{"a-scales-missing"});
  CHECK(Causes(a, b, Product(a, b, 1, Same, unscaled(b))) == Names{"b-scales-missing"});
  CHECK(Causes(a, b, Product(a, b, 1, unscaled(a), unscaled(b))) == Names{"scales-ignored"});
  const auto before = [&](std::size_t r, std::size_t k, double v) {
    return k < 16 ? v : v / scale(a, r, k / 16) * scale(a, r, k / 16 - 1);
  };
  CHECK(Causes(a, b, Product(a, b, 1, before, Same)) == Names{"a-scales-of-block-before"});
  const auto nibbles = [&](std::size_t r, std::size_t k, double) { return va(r, k ^ 1); };
  CHECK(Causes(a, b, Product(a, b, 1, nibbles, Same)) == Names{"nibbles-swapped"});
}

TEST_CASE("A product that is wrong in one rectangle has no cause, and says where", "[judge]") {
  const MmaOperand a = RandomOperand(kE2m1, 32, 128, Inputs::kTypical, 7, 16, kE4m3);
  const MmaOperand b = RandomOperand(kE2m1, 128, 128, Inputs::kTypical, 8, 16, kE4m3);
  Matrix<float> d = Product(a, b, 1, Same, Same);
  for (std::size_t r = 0; r < 32; ++r) {
    for (std::size_t c = 64; c < 96; ++c) d(r, c) = 1e9f + static_cast<float>(r * c);
  }
  const GemmJudgement j = JudgeGemm({.a = a, .b = b, .d = d.View()}, *FindAccumulation("exact"));
  CHECK(j.outside == 32 * 32);
  CHECK(j.outside_in == Rectangle{0, 64, 32, 32});
  CHECK(Causes(a, b, d).empty());
}

}  // namespace
}  // namespace fp4lab
