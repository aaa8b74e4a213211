#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/nn/math_test.cc"
#include <cstddef>

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/nn/lanes/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void ExpArray(const float* x, std::size_t n, float* y) {
  ForElements(n, [=](auto d, std::size_t i)
                     HWY_ATTR { hn::StoreU(Exp(d, hn::LoadU(d, x + i)), d, y + i); });
}
void ExpNonPositiveArray(const float* x, std::size_t n, float* y) {
  ForElements(n, [=](auto d, std::size_t i)
                     HWY_ATTR { hn::StoreU(ExpNonPositive(d, hn::LoadU(d, x + i)), d, y + i); });
}
void SigmoidArray(const float* x, std::size_t n, float* y) {
  ForElements(n, [=](auto d, std::size_t i)
                     HWY_ATTR { hn::StoreU(Sigmoid(d, hn::LoadU(d, x + i)), d, y + i); });
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/nn/support.h"

namespace fp4lab {
namespace {

HWY_EXPORT(ExpArray);
HWY_EXPORT(ExpNonPositiveArray);
HWY_EXPORT(SigmoidArray);

// Every `stride`-th float from 0 to Inf, with both signs.
Floats Sweep(std::uint32_t stride) {
  Floats x;
  for (std::uint64_t bits = 0; bits <= 0x7F800000u; bits += stride) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    x.push_back(-x.back());
  }
  return x;
}

// Distance of y from the exact value, in units in the last place of a float near it.
double Ulps(float y, double exact) {
  if (std::isinf(y)) return exact >= 0x1.ffffffp127 ? 0 : kInfinity;
  const int exponent = std::max(-126, exact > 0 ? std::ilogb(exact) : -126);
  return std::abs(double{y} - exact) / std::ldexp(1.0, exponent - 23);
}

double WorstExp(const Floats& x, const Floats& y) {
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, Ulps(y[i], std::exp(double{x[i]})));
  }
  return worst;
}

TEST_CASE("Exp errs by at most 1.01 units in the last place, subnormal results included", "[nn]") {
  const Floats x = Sweep(4093);
  Floats y(x.size());
  HWY_DYNAMIC_DISPATCH(ExpArray)(x.data(), x.size(), y.data());
  const double worst = WorstExp(x, y);
  CAPTURE(worst);
  CHECK(worst <= 1.01);
  CHECK(worst > 0.5);  // no binary32 function is better: a smaller error means a blind test
}

TEST_CASE("Exp errs by at most 1.01 units in the last place for every float of its range",
          "[.][nn][exhaustive]") {
  double worst = 0;
  for (std::uint32_t first = 0; first < 256; ++first) {
    Floats x;
    for (std::uint64_t bits = first; bits <= 0x42D00000u; bits += 256) {  // up to 104
      x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
      x.push_back(-x.back());
    }
    Floats y(x.size());
    HWY_DYNAMIC_DISPATCH(ExpArray)(x.data(), x.size(), y.data());
    worst = std::max(worst, WorstExp(x, y));
  }
  CAPTURE(worst);
  CHECK(worst <= 1.01);
}

TEST_CASE("Exp gives the limits and NaN", "[nn]") {
  const Floats x = {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 89.0f, -104.0f, -103.0f, 88.72283f};
  Floats y(x.size());
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    CAPTURE(target);
    HWY_DYNAMIC_DISPATCH(ExpArray)(x.data(), x.size(), y.data());
    CHECK(y[0] == 1.0f);
    CHECK(y[1] == 1.0f);
    CHECK(y[2] == kInfinity);
    CHECK(y[3] == 0.0f);
    CHECK(std::isnan(y[4]));
    CHECK(y[5] == kInfinity);
    CHECK(y[6] == 0.0f);
    CHECK(y[7] == 0x1p-149f);
    CHECK(y[8] == Catch::Approx(std::exp(88.72283)));
  }
  PinSimdTarget("best");
}

TEST_CASE("ExpNonPositive is Exp up to 0, with subnormal results flushed", "[nn]") {
  Floats x = {-0x1.5d589ep6f, -0x1.5d58ap6f, -87.7f, -88.5f, -kInfinity, kNaN, 0.0f, -0.0f};
  for (const float v : Sweep(4093)) {
    if (v <= 0) x.push_back(v);
  }
  Floats y(x.size()), exact(x.size());
  HWY_DYNAMIC_DISPATCH(ExpArray)(x.data(), x.size(), exact.data());
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    CAPTURE(target);
    HWY_DYNAMIC_DISPATCH(ExpNonPositiveArray)(x.data(), x.size(), y.data());
    std::size_t differences = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float expected = exact[i] < 0x1p-126f ? 0.0f : exact[i];
      differences += y[i] != expected && !(std::isnan(y[i]) && std::isnan(expected));
    }
    CHECK(differences == 0);
    CHECK(y[0] >= 0x1p-126f);
    CHECK(y[1] == 0.0f);
  }
  PinSimdTarget("best");
}

TEST_CASE("Exp and Sigmoid give the same bits on every SIMD target", "[nn]") {
  const Floats x = Sweep(65521);
  SameEverywhere([&] {
    Floats y(2 * x.size());
    HWY_DYNAMIC_DISPATCH(ExpArray)(x.data(), x.size(), y.data());
    HWY_DYNAMIC_DISPATCH(SigmoidArray)(x.data(), x.size(), y.data() + x.size());
    return y;
  });
}

TEST_CASE("Sigmoid errs by at most 2.5 units in the last place where e^-x is finite", "[nn]") {
  const Floats all = Sweep(65521);
  Floats x;
  std::copy_if(all.begin(), all.end(), std::back_inserter(x), [](float v) { return v > -87.0f; });
  Floats y(x.size());
  HWY_DYNAMIC_DISPATCH(SigmoidArray)(x.data(), x.size(), y.data());
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, Ulps(y[i], 1 / (1 + std::exp(-double{x[i]}))));
  }
  CAPTURE(worst);
  CHECK(worst <= 2.5);
}

}  // namespace
}  // namespace fp4lab
#endif  // HWY_ONCE
