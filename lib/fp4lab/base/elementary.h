// exp, log, sin and cos in double from IEEE operations alone: the same bits on every machine.
//
// libm differs between systems, so code that feeds training must not call it (except sqrt, which
// IEEE 754 defines). The functions here have errors below 2 units in the last place (tests/base),
// are constexpr, and are meant for tables, schedules and one value a row, not for inner loops.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <numbers>

namespace fp4lab {

// 2^n, n in [-1022, 1023].
constexpr double PowerOfTwo(int n) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

// Nearest integer, halves away from zero; |x| < 2^30.
constexpr int NearestInteger(double x) { return static_cast<int>(x < 0 ? x - 0.5 : x + 0.5); }

// ln 2 = kLn2High + kLn2Low; the high part has 33 bits, so that n * kLn2High is exact.
inline constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;

// e^x: x = n ln 2 + r, |r| <= ln 2 / 2, Taylor series of e^r to r^13.
constexpr double Exp(double x) {
  if (x != x) return x;
  if (x > 709.8) return std::numeric_limits<double>::infinity();
  if (x < -745.2) return 0.0;
  const int n = NearestInteger(x / std::numbers::ln2);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1.0;
  for (int k = 13; k > 0; --k) sum = 1.0 + sum * r / k;
  const int half = n / 2;
  return sum * PowerOfTwo(half) * PowerOfTwo(n - half);
}

// Natural logarithm: x = 2^e m, m in (sqrt(1/2), sqrt(2)]; ln m = 2 artanh((m - 1) / (m + 1)).
constexpr double Log(double x) {
  if (!(x > 0)) {
    return x == 0 ? -std::numeric_limits<double>::infinity()
                  : std::numeric_limits<double>::quiet_NaN();
  }
  if (x == std::numeric_limits<double>::infinity()) return x;
  int e = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    e = -54;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  e += static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > std::numbers::sqrt2) {
    m *= 0.5;
    e += 1;
  }
  const double f = m - 1.0, z = f / (m + 1.0), z2 = z * z;
  double tail = 0.0;  // artanh(z) / z - 1
  for (int k = 21; k >= 3; k -= 2) tail = z2 * (1.0 / k + tail);
  // 2 z = f - f z exactly, and f is exact: the larger part of the result is not rounded twice.
  return e * kLn2High + (f - (f * z - (2.0 * z * tail + e * kLn2Low)));
}

struct SinCos {
  double sin, cos;
};

// sin x and cos x for |x| <= 1e6: x = n pi / 2 + r with pi / 2 in three parts of 33, 33 and 53 bits
// (Cody and Waite), |r| <= pi / 4; Taylor series to r^19 and r^18.
constexpr SinCos SineCosine(double x) {
  constexpr double kHigh = 0x1.921fb544p+0, kMiddle = 0x1.0b4611a6p-34,
                   kLow = 0x1.3198a2e037073p-69;
  const int n = NearestInteger(x / (std::numbers::pi / 2));
  const double r = ((x - n * kHigh) - n * kMiddle) - n * kLow, r2 = r * r;
  double s = 1.0, c = 1.0;
  for (int k = 18; k > 0; k -= 2) {
    s = 1.0 - s * r2 / (k * (k + 1));
    c = 1.0 - c * r2 / (k * (k - 1));
  }
  s *= r;
  switch (n & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

// x^n for n >= 0 by squaring; each product rounds.
constexpr double IntegerPower(double x, std::int64_t n) {
  double power = 1.0;
  for (; n > 0; n /= 2, x *= x) {
    if (n % 2 == 1) power *= x;
  }
  return power;
}

}  // namespace fp4lab
