#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/base/fma_test.cc"
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/base/simd/fma-inl.h"
#include "fp4lab/base/simd/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// All four arrays are padded to a whole last vector.
void FmaArray(const float* a, const float* b, const float* c, std::size_t n, float* out) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::StoreU(Fma(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i)), d, out + i);
  }
}

float SumArray(const float* x, std::size_t n) { return Sum(n, x); }
float MaxArray(const float* x, std::size_t n) { return Max(n, x); }
float SumOfProducts(const float* x, const float* y, std::size_t n) {
  return Sum(
      n, [](auto a, auto b) HWY_ATTR { return hn::Mul(a, b); }, x, y);
}
// Every element adds x + 1, so that a padding lane that is counted changes the sum.
float SumOfOnePlus(const float* x, std::size_t n) {
  return Sum(
      n, [](auto a) HWY_ATTR { return hn::Add(a, hn::Set(ReduceTag(), 1.0f)); }, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>

#include "fp4lab/base/random.h"
#include "fp4lab/base/simd/simd.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

HWY_EXPORT(FmaArray);
HWY_EXPORT(SumArray);
HWY_EXPORT(MaxArray);
HWY_EXPORT(SumOfProducts);
HWY_EXPORT(SumOfOnePlus);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class Check>
void OnEveryTarget(Check check) {
  for (const std::string& target : SimdTargets()) {
    INFO("target " << target);
    PinSimdTarget(target);
    check();
  }
  PinSimdTarget("best");
}

// Maps every NaN to one pattern: no contract states which NaN a sum of NaNs returns.
std::uint32_t Bits(float x) {
  return std::isnan(x) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(x);
}

// Normal floats of random sign and mantissa with exponents in [-20, 20].
std::vector<float> RandomFloats(std::size_t n, std::uint32_t tensor) {
  const RandomStream stream{.seed = 7, .tensor = tensor};
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t bits = stream.Bits32(i);
    const std::uint32_t exponent = 107 + (bits >> 23 & 0xFF) % 41;
    x[i] = std::bit_cast<float>((bits & 0x807FFFFFu) | exponent << 23);
  }
  return x;
}

TEST_CASE("Fma rounds once on every SIMD target", "[base][differential]") {
  constexpr std::size_t kCount = 4096;
  std::vector<float> a = RandomFloats(kCount, 1), b = RandomFloats(kCount, 2),
                     c = RandomFloats(kCount, 3);
  // (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24, which is lost if the product is rounded first.
  a[0] = b[0] = 1.0f + 0x1p-12f;
  c[0] = -(1.0f + 0x1p-11f);
  for (std::size_t i = 1; i < kCount; i += 2) c[i] = -(a[i] * b[i]);  // gives the product's error
  a[2] = kInfinity, a[4] = kNan, c[6] = -kInfinity, a[8] = 0x1p-126f, b[8] = 0.5f, c[8] = 0.0f;
  std::vector<float> out(kCount);
  OnEveryTarget([&] {
    HWY_DYNAMIC_DISPATCH(FmaArray)(a.data(), b.data(), c.data(), kCount, out.data());
    CHECK(out[0] == 0x1p-24f);
    CHECK(out[8] == 0x1p-127f);
    std::size_t wrong = 0, twice = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      wrong += Bits(out[i]) != Bits(std::fma(a[i], b[i], c[i]));
      const float product = a[i] * b[i];
      twice += Bits(out[i]) != Bits(product + c[i]);
    }
    CHECK(wrong == 0);
    CHECK(twice > kCount / 4);  // the data distinguish one rounding from two
  });
}

// Zeros, subnormals, powers of two and their neighbours, the largest finite numbers, Inf, NaN.
std::vector<float> Extremes() {
  std::vector<float> x = {0.0f, kInfinity, kNan};
  for (const std::uint32_t bits : {0x00000001u, 0x00000002u, 0x00000003u, 0x00400000u, 0x007FFFFFu,
                                   0x7F7FFFFFu, 0x7F7FFFFEu}) {
    x.push_back(std::bit_cast<float>(bits));
  }
  for (const int exponent :
       {-126, -125, -103, -102, -75, -25, -24, -23, -1, 0, 1, 12, 24, 64, 127}) {
    const std::uint32_t bits = static_cast<std::uint32_t>(exponent + 127) << 23;
    for (const std::uint32_t near :
         {bits - 1, bits, bits + 1, bits + 0x400000u, bits + 0x400001u}) {
      x.push_back(std::bit_cast<float>(near));
    }
  }
  const std::size_t positive = x.size();
  for (std::size_t i = 0; i < positive; ++i) x.push_back(-x[i]);
  return x;
}

std::size_t WrongOnes(const std::vector<float>& a, const std::vector<float>& b,
                      const std::vector<float>& c) {
  std::vector<float> out(a.size());
  HWY_DYNAMIC_DISPATCH(FmaArray)(a.data(), b.data(), c.data(), a.size(), out.data());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    wrong += Bits(out[i]) != Bits(std::fma(a[i], b[i], c[i]));
  }
  return wrong;
}

TEST_CASE("Fma rounds once at every extreme of its three arguments", "[base][differential]") {
  const std::vector<float> extremes = Extremes();
  std::vector<float> c = extremes;
  c.resize((c.size() + 63) / 64 * 64);  // room for a whole last vector
  std::vector<float> a(c.size()), b(c.size());
  OnEveryTarget([&] {
    std::size_t wrong = 0;
    for (const float x : extremes) {
      for (const float y : extremes) {
        std::fill(a.begin(), a.end(), x);
        std::fill(b.begin(), b.end(), y);
        wrong += WrongOnes(a, b, c);
      }
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("Fma rounds once next to the midpoint of two floats", "[base][differential]") {
  constexpr std::size_t kCount = 1 << 16;
  std::vector<float> a(kCount), b(kCount), c(kCount);
  // a * b is half an ulp of c times 1 or 1 +- 2^-j, j in [0, 31]; c takes any exponent down to the
  // subnormals.
  const RandomStream stream{.seed = 11, .tensor = 1};
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::uint32_t bits = stream.Bits32(2 * i), more = stream.Bits32(2 * i + 1);
    c[i] = std::bit_cast<float>(bits);
    if (!std::isfinite(c[i])) c[i] = 1.0f;
    const float next = std::bit_cast<float>(std::bit_cast<std::uint32_t>(std::abs(c[i])) + 1);
    const float place = next - std::abs(c[i]);
    const auto little = static_cast<float>(more % 3) - 1.0f;  // -1, 0, 1
    a[i] = 1.0f + little * std::ldexp(1.0f, -static_cast<int>(more >> 8 & 31));
    b[i] = ((more & 128) != 0 ? 0.5f : -0.5f) * place;
    // Half the smallest subnormal is no binary32 number: move 2^-60 from b to a.
    if (std::abs(b[i]) < 0x1p-126f) a[i] *= 0x1p-60f, b[i] = std::ldexp(place, 59);
  }
  OnEveryTarget([&] { CHECK(WrongOnes(a, b, c) == 0); });
}

TEST_CASE("Fma rounds once for random bits", "[base][differential]") {
  constexpr std::size_t kCount = 1 << 16;
  std::vector<float> x[3];
  for (std::uint32_t k = 0; k < 3; ++k) {
    const RandomStream stream{.seed = 12, .tensor = k};
    for (std::size_t i = 0; i < kCount; ++i) {
      x[k].push_back(std::bit_cast<float>(stream.Bits32(i)));
    }
  }
  OnEveryTarget([&] { CHECK(WrongOnes(x[0], x[1], x[2]) == 0); });
}

TEST_CASE("Sums and maxima in virtual lanes have the same bits on every SIMD target",
          "[base][differential]") {
  const std::size_t n = GENERATE(0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 100, 1000);
  const std::vector<float> x = RandomFloats(n, 4), y = RandomFloats(n, 5);
  std::vector<float> products(n), plus_one(n);
  for (std::size_t i = 0; i < n; ++i) {
    products[i] = x[i] * y[i];
    plus_one[i] = x[i] + 1.0f;
  }
  OnEveryTarget([&] {
    CHECK(Bits(HWY_DYNAMIC_DISPATCH(SumArray)(x.data(), n)) == Bits(SumInOrder(x)));
    CHECK(Bits(HWY_DYNAMIC_DISPATCH(MaxArray)(x.data(), n)) == Bits(MaxInOrder(x)));
    CHECK(Bits(HWY_DYNAMIC_DISPATCH(SumOfProducts)(x.data(), y.data(), n)) ==
          Bits(SumInOrder(products)));
    CHECK(Bits(HWY_DYNAMIC_DISPATCH(SumOfOnePlus)(x.data(), n)) == Bits(SumInOrder(plus_one)));
  });
}

TEST_CASE("Sums in virtual lanes follow the stated order", "[base]") {
  std::vector<float> x(32, 0.0f);
  x[0] = 1.0f, x[16] = 0x1p-24f, x[8] = 0x1p-24f;  // lane 0 rounds to 1 twice
  CHECK(SumInOrder(x) == 1.0f);
  x[16] = 0.0f, x[24] = 0x1p-24f;  // lane 8 adds up to 2^-23 first
  CHECK(SumInOrder(x) == 1.0f + 0x1p-23f);
}

TEST_CASE("Max ignores NaN, Sum propagates it", "[base][differential]") {
  const std::size_t n = GENERATE(3, 16, 21, 40);
  std::vector<float> x = RandomFloats(n, 6);
  for (std::size_t i = 0; i < n; i += 2) x[i] = kNan;
  float expected = -kInfinity;
  for (const float v : x) expected = v > expected ? v : expected;
  OnEveryTarget([&] {
    CHECK(HWY_DYNAMIC_DISPATCH(MaxArray)(x.data(), n) == expected);
    CHECK(std::isnan(HWY_DYNAMIC_DISPATCH(SumArray)(x.data(), n)));
  });
}

TEST_CASE("An empty sum is +0 and an empty maximum is -infinity", "[base]") {
  CHECK(Bits(SumInOrder({})) == 0u);
  CHECK(MaxInOrder({}) == -kInfinity);
}

}  // namespace
}  // namespace fp4lab
#endif  // HWY_ONCE
