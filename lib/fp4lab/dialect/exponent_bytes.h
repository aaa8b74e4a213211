// E8M0 bytes of powers of two next to a number, by exact and by rounded logarithms.
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/block/scale_rules.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

inline constexpr float kTiny = 0x1p-63f;  // the square root of FLT_MIN

// How many floats on either side of 2^k have a binary32 logarithm of exactly k: those whose
// distance |log2(1 +- j ulp)| is below half a unit in the last place of k. ulp_bits: 24 below 2^k
// (j * 2^-24 / ln 2), 23 above it. No such logarithm is a tie.
constexpr std::uint32_t FloatsWithLogarithm(int k, int ulp_bits, bool toward_zero) {
  if (k == 0) return 0;  // near 0 the logarithm is as fine as its argument
  const int n = k < 0 ? -k : k;
  int half = std::bit_width(static_cast<unsigned>(n)) - 1 - 24;  // exponent of half an ulp of k
  if (toward_zero && std::has_single_bit(static_cast<unsigned>(n))) --half;
  double limit = 0.69314718055994531;
  for (int i = half + ulp_bits; i > 0; --i) limit *= 2;
  for (int i = half + ulp_bits; i < 0; ++i) limit /= 2;
  return static_cast<std::uint32_t>(limit);
}

// floor and ceil of fl(log2 a) for a positive finite a: the exact ones, moved to k for the floats
// next to 2^k whose logarithm rounds to k. (log2 correctly rounded; libraries may differ by an
// ulp.)
constexpr int FloorLog2(float a) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(a);
  if (u < 0x800000u) return std::bit_width(u) - 150;  // subnormals: no float is that close
  const int e = static_cast<int>(u >> 23) - 127;
  const std::uint32_t below_next = 0x800000u - (u & 0x7FFFFFu);
  return e + (below_next <= FloatsWithLogarithm(e + 1, 24, e + 1 > 0) ? 1 : 0);
}
constexpr int CeilLog2(float a) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(a);
  if (u < 0x800000u) {
    const int e = std::bit_width(u) - 150;
    return std::has_single_bit(u) ? e : e + 1;
  }
  const int e = static_cast<int>(u >> 23) - 127;
  const std::uint32_t above = u & 0x7FFFFFu;
  return above <= FloatsWithLogarithm(e, 23, e < 0) ? e : e + 1;
}
constexpr std::uint8_t ExponentByte(int exponent) {
  return static_cast<std::uint8_t>(exponent > 127 ? 255 : exponent < -127 ? 0 : exponent + 127);
}
constexpr std::uint8_t FloorLog2Byte(float b, int max_exponent) {
  if (!(b <= kFloatMax)) return 0xFF;
  return b == 0.0f ? 0 : ExponentByte(FloorLog2(b) - max_exponent);
}
// The exponent field of bf16(t); NaN and Inf have that of the NaN byte.
constexpr std::uint8_t Bf16ExponentByte(float t) {
  return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(RoundToBf16(t)) >> 23 & 0xFFu);
}
// A scale of 0 becomes 1.
constexpr std::uint8_t CeilLog2Byte(float t) {
  if (!(t <= kFloatMax)) return 0xFF;
  return t == 0.0f ? 127 : ExponentByte(CeilLog2(t));
}

}  // namespace fp4lab
