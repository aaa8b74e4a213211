// E8M0 scales: the byte of a power of two next to a number, by exact or rounded logarithms, and the
// reciprocal of a byte's value.
//
// A block's amax b has exponent field E and fraction field M; emax = floor(log2(largest element)),
// m = fraction bits of the element. OCP's rules (OCP MX v1.0 section 6.3; torchao mx_formats; PTX
// cvt.rp.satfinite.ue8m0):
//   rule    byte                                               b = Inf
//   FLOOR   max(E - emax, 0)                                   0xFF = NaN
//   CEIL    max(E + (M != 0) - emax, 0)                        0xFF
//   EVEN    FLOOR of b with 2^(22 - m) added to its bits       0xFF
//   RCEIL   fl(b * fl(1/q)) rounded up to a power of two       0xFE = 2^127 (satfinite)
// A block whose scale is NaN decodes to NaN and all its codes are the element format's NaN code.
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/dialect/tensor_scale.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

inline constexpr float kTiny = 0x1p-63f;                // the square root of FLT_MIN
inline constexpr std::uint8_t kNotFiniteWrapped = 128;  // WrappedByte of NaN and Inf

// floor(log2) of the largest element: 2 for E2M1 and E2M3, 4 for E3M2, 8 for E4M3, 15 for E5M2.
constexpr int MaxExponent(FormatId element) {
  return static_cast<int>(std::bit_cast<std::uint32_t>(MaxFinite(element)) >> 23) - 127;
}

constexpr std::uint8_t FloorByte(std::uint32_t amax_bits, int max_exponent) {
  if (amax_bits >= 0x7F800000u) return 0xFF;
  const int e = static_cast<int>(amax_bits >> 23) - max_exponent;
  return static_cast<std::uint8_t>(e < 0 ? 0 : e);
}
constexpr std::uint8_t CeilByte(std::uint32_t amax_bits, int max_exponent) {
  if (amax_bits >= 0x7F800000u) return 0xFF;
  const int up = (amax_bits & 0x7FFFFFu) != 0 ? 1 : 0;
  const int e = static_cast<int>(amax_bits >> 23) + up - max_exponent;
  return static_cast<std::uint8_t>(e < 0 ? 0 : e);
}
// EVEN's addend of E2M1, which compressed-tensors takes for E4M3 as well: the exponent steps up
// from 1.75 * 2^e.
inline constexpr std::uint32_t kQuarterBinade = 1u << 21;
// torchao's EVEN: half a unit of the element's last fraction bit is added to amax's fraction, so
// the exponent steps up where amax would round to the next power of two. Then amax rounds to the
// largest element at most, but for E4M3, whose top code is NaN: 480 saturates to 448.
constexpr std::uint32_t EvenAddend(int mantissa_bits) { return 1u << (22 - mantissa_bits); }
constexpr std::uint8_t EvenByte(std::uint32_t amax_bits, int max_exponent, int mantissa_bits) {
  if (amax_bits >= 0x7F800000u) return 0xFF;
  const std::uint32_t rounded = amax_bits + EvenAddend(mantissa_bits);
  const int e = static_cast<int>(rounded >> 23) - max_exponent;
  return static_cast<std::uint8_t>(e < 0 ? 0 : e);
}
// TE and cuBLAS: the product with the rounded reciprocal, then cvt.rp.satfinite.ue8m0x2.
constexpr std::uint8_t RceilByte(float amax, float reciprocal_of_max) {
  return static_cast<std::uint8_t>(
      Encode(FormatId::kE8M0, amax * reciprocal_of_max, Rounding::kTowardPositive));
}

// 2^(127 - byte), the exact reciprocal of an E8M0 scale (TE exp2f_rcp; torchao): 254 gives the
// subnormal 2^-127, 255 NaN.
constexpr float E8m0Reciprocal(std::uint8_t byte) {
  if (byte == 255) return std::bit_cast<float>(0x7FC00000u);
  if (byte == 254) return 0x1p-127f;
  return std::bit_cast<float>((254u - byte) << 23);
}

// The number of floats on one side of 2^k whose binary32 logarithm is exactly k: floats whose
// distance |log2(1 +- j ulp)| is below half a unit in the last place of k. ulp_bits: 24 below 2^k
// (j * 2^-24 / ln 2), 23 above it. toward_zero: the side where |log2| < |k|, on which a unit of a
// power of two k is half as large. No such logarithm is a tie.
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

// The exponent e of a positive finite a in [2^e, 2^(e + 1)), and the floats from 2^e on and below
// 2^(e + 1), in units in the last place: 2^(e - bits). Subnormals have fewer bits.
struct PlaceInBinade {
  int e, bits;
  std::uint32_t above, below_next;
};
constexpr PlaceInBinade PlaceOf(float a) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(a);
  const bool subnormal = u < 0x800000u;
  const int bits = subnormal ? std::bit_width(u) - 1 : 23;
  const std::uint32_t above = subnormal ? u - (1u << bits) : u & 0x7FFFFFu;
  return {subnormal ? bits - 149 : static_cast<int>(u >> 23) - 127, bits, above,
          (1u << bits) - above};
}

// floor(fl(log2 a)) and ceil(fl(log2 a)) for a positive finite a: the exact floor and ceil, except
// k for the floats next to 2^k whose logarithm rounds to k. (log2 is correctly rounded here;
// libraries may differ by an ulp.)
constexpr int FloorLog2(float a) {
  const PlaceInBinade p = PlaceOf(a);
  const int next = p.e + 1;
  return p.below_next <= FloatsWithLogarithm(next, p.bits + 1, next > 0) ? next : p.e;
}
constexpr int CeilLog2(float a) {
  const PlaceInBinade p = PlaceOf(a);
  return p.above <= FloatsWithLogarithm(p.e, p.bits, p.e < 0) ? p.e : p.e + 1;
}
// ceil(log2 a) itself, for a positive finite a.
constexpr int ExactCeilLog2(float a) {
  const PlaceInBinade p = PlaceOf(a);
  return p.above == 0 ? p.e : p.e + 1;
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

// ceil(fl(fl(ln a) * fl(1/ln 2))), the logarithm as JAX lowers it, for a normal number a; ln is
// correctly rounded. The product passes k for floats on either side of 2^k, and 2^k itself may have
// k + 1.
constexpr int CeilNaturalLog2(float a) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(a);
  const int e = static_cast<int>(u >> 23) - 127;
  const int above = static_cast<int>(u & 0x7FFFFFu);
  const int below_next = 0x800000 - above;
  constexpr int kNear = 512;  // floats whose product may lie on the other side
  if (above > kNear && below_next > kNear) return e + 1;
  const int k = above <= kNear ? e : e + 1;
  const double x = above <= kNear ? above * 0x1p-23 : below_next * -0x1p-24;  // a = 2^k (1 + x)
  const float logarithm = static_cast<float>(k * 0.69314718055994531 + (x - 0.5 * x * x));
  return logarithm * 0x1.715476p+0f <= static_cast<float>(k) ? k : k + 1;
}
// qwix on JAX: a scale below 2^-63 becomes 1.
constexpr std::uint8_t CeilLog2Byte(float t) {
  if (!(t <= kFloatMax)) return 0xFF;
  return t < kTiny ? 127 : ExponentByte(CeilNaturalLog2(t));
}

// AMD Quark's scale from its exponent: 2^k, 2^-23 where that underflows binary32.
constexpr float QuarkScale(int k) {
  if (k < -149) return 0x1p-23f;
  return k < -126 ? std::bit_cast<float>(1u << (k + 149))
                  : std::bit_cast<float>(static_cast<std::uint32_t>(k + 127) << 23);
}
// The byte that Quark's export stores for a scale: it raises scales below 2^-126.
constexpr std::uint8_t QuarkByte(float scale) {
  if (scale != scale || scale > kFloatMax) return 0xFF;
  return scale < kFloatMin ? 1
                           : static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(scale) >> 23);
}
// Quark's scales of a block with amax b. EVEN clamps its exponent to [-127, 127]; the others give
// Inf for Inf and 2^-23 for 0.
constexpr float QuarkEvenScale(float b, FormatId element) {
  if (b != b) return b;
  const std::uint32_t bits =
      std::bit_cast<std::uint32_t>(b) + EvenAddend(FormatOf(element).mantissa_bits);
  const int field = static_cast<int>(bits >> 23);
  const int k = (field < 1 ? 1 : field) - 127 - MaxExponent(element);
  return QuarkScale(field >= 255 ? 127 : k < -127 ? -127 : k);
}
constexpr float QuarkFloorScale(float b, FormatId element) {
  if (!(b <= kFloatMax)) return b;
  return b == 0.0f ? 0x1p-23f : QuarkScale(FloorLog2(b) - MaxExponent(element));
}
constexpr float QuarkCeilScale(float b, FormatId element) {
  if (!(b <= kFloatMax)) return b;
  return b == 0.0f ? 0x1p-23f : QuarkScale(CeilLog2(b) - MaxExponent(element));
}

// round(fl(log2 a)), ties to even, for a positive finite a. The logarithms of the floats next to
// 2^(e + 1/2) may round to e + 1/2, a tie.
constexpr int RoundLog2(float a) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(a);
  const int shift = u < 0x800000u ? 24 - std::bit_width(u) : 0;
  const std::uint32_t normal = u << shift;  // subnormals: the fraction of the normalised number
  const int e = (u < 0x800000u ? 1 : static_cast<int>(u >> 23)) - shift - 127;
  const std::uint32_t fraction = normal & 0x7FFFFFu;
  // sqrt 2 = 1 + (0x3504F3 + 0.20303) 2^-23. At a distance of d units of 2^-23, the logarithm is
  // e + 1/2 + d 2^-23 / (sqrt 2 ln 2).
  const double distance = static_cast<double>(fraction) - (0x3504F3 + 0.203031444111138);
  const double half = e < 0 ? -e - 0.5 : e + 0.5;
  double limit = 0.98025814346854723 * 0.5;  // half a unit in the last place of e + 1/2, in floats
  for (double power = 1; power * 2 <= half; power *= 2) limit *= 2;
  if (half < 1) limit *= 0.5;
  const bool toward_zero = e >= 0 ? distance < 0 : distance > 0;
  if (half == 0.5 && toward_zero) limit *= 0.5;
  const double magnitude = distance < 0 ? -distance : distance;
  if (magnitude <= limit) return e % 2 == 0 ? e : e + 1;
  return distance > 0 ? e + 1 : e;
}
// MLX's byte of t: 127 + log2 t as `rule` makes it an integer, cast to 8 bits, so that it wraps
// below 2^-127. The rounded logarithm of NaN and Inf becomes INT_MIN, whose binary32 sum with 127
// is -2147483520.
template <class Rule>
constexpr std::uint8_t WrappedByte(float t, const Rule& rule) {
  if (!(t <= kFloatMax)) return kNotFiniteWrapped;
  return static_cast<std::uint8_t>(t == 0.0f ? 127 : rule(t) + 127);
}

static_assert(MaxExponent(FormatId::kE2M1) == 2 && MaxExponent(FormatId::kE5M2) == 15);

}  // namespace fp4lab
