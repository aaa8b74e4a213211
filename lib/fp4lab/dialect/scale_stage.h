// The block scale of the dialects: t from b, S and D, and the stored byte from t, one function an
// enumerator, in the exact operation order (dialect/level_two.h says what is meant by it).
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/block/scale_rules.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/level_two.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

// ---- t, the block scale before rounding ---------------------------------------------------------

constexpr float FoldedScale(float b, float q, const Level& l) {
  return b * (l.encode * (1.0f / q));
}
constexpr float TimesSixthScale(float b, float q, const Level& l) {
  return l.encode * (b * (1.0f / q));
}
constexpr float DivideFirstScale(float b, float q, const Level& l) { return b / q * l.encode; }
constexpr float DivideByLevelScale(float b, float q, const Level& l) { return b / q / l.decode; }
constexpr float DivideByBothScale(float b, float q, const Level& l) { return b / (q * l.decode); }
constexpr float OverDecodeScale(float b, float q, const Level& l) {
  return l.decode == 0.0f ? 0.0f : b / l.decode / q;
}
constexpr float OverTensorScale(float b, float scale_max, float q, const Level& l) {
  const float block = b / q == 0.0f ? 1.0f : b / q;
  return block * scale_max / (l.amax / q);
}

constexpr float ScaleBefore(const Dialect& d, float b, const Level& l) {
  const float q = TargetOf(d);
  switch (d.block_scale) {
    case BlockScale::kFolded:
      return ClampToMax(FoldedScale(b, q, l));
    case BlockScale::kFoldedOpen:
      return FoldedScale(b, q, l);
    case BlockScale::kFoldedApproximate:  // the member whose reciprocals are the rounded ones
      return FoldedScale(b, q, l);
    case BlockScale::kTimesSixth:
    case BlockScale::kApproximate:
      return TimesSixthScale(b, q, l);
    case BlockScale::kDivideFirst:
      return DivideFirstScale(b, q, l);
    case BlockScale::kDivideByLevel:
      return DivideByLevelScale(b, q, l);
    case BlockScale::kDivideByBoth:
      return DivideByBothScale(b, q, l);
    case BlockScale::kOverDecode:
      return OverDecodeScale(b, q, l);
    case BlockScale::kOverTensor:
      return OverTensorScale(b, d.scale_max, q, l);
    case BlockScale::kNoLevel:
    case BlockScale::kCeilLog2:
    case BlockScale::kFloorLog2Quotient:
      return b / q;
    case BlockScale::kOverflowAware:
      return b / q * (12.0f / 7.0f);
    case BlockScale::kMicroscaling:
    case BlockScale::kFloorLog2:
    case BlockScale::kOneBlock:
      return b;
  }
  return b;
}

inline constexpr float kTiny = 0x1p-63f;  // the square root of FLT_MIN

// ---- The scale byte -----------------------------------------------------------------------------

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

// ggml_fp32_to_ue4m3: the fraction cut to 3 bits plus the next bit; below 2^-6 by adding 1/2.
constexpr std::uint8_t GgmlScaleByte(float t) {
  if (!(t > 0.0f)) return 0;
  const std::uint32_t u = std::bit_cast<std::uint32_t>(t > 448.0f ? 448.0f : t);
  const int exponent = static_cast<int>(u >> 23) - 127 + 7;
  if (exponent <= 0) {
    const int units = static_cast<int>(t * 512.0f + 0.5f);
    return static_cast<std::uint8_t>(units > 7 ? 7 : units);
  }
  const std::uint32_t code =
      (static_cast<std::uint32_t>(exponent) << 3 | (u >> 20 & 7u)) + (u >> 19 & 1u);
  return code >= 0x78u ? 0x7E : static_cast<std::uint8_t>(code);
}

constexpr float ClampedBelow(float t, float least) { return t < least ? least : t; }

// A cast that saturates, and torch's, which gives NaN beyond 464.
constexpr std::uint8_t SaturatingByte(FormatId scale, float t) {
  return static_cast<std::uint8_t>(Encode(scale, t));
}
constexpr std::uint8_t TorchByte(FormatId scale, float t) {
  return static_cast<std::uint8_t>(Encode(scale, t, Rounding::kNearestEven, 0, Overflow::kSpecial));
}

// The byte of t in three steps, so that kernels can take the middle one for many blocks at once:
// what is encoded for t, its byte, what is stored for that byte.
constexpr float ScaleToEncode(ScaleEncoding encoding, float t) {
  switch (encoding) {
    case ScaleEncoding::kClamp2m6:
      return ClampedBelow(t, 0x1p-6f);
    case ScaleEncoding::kClamp2m9:
      return ClampedBelow(t == 0.0f ? 1.0f : t, 0x1p-9f);
    case ScaleEncoding::kOneWhereTiny:
      return t < kTiny ? 1.0f : t;
    case ScaleEncoding::kNearest:
    case ScaleEncoding::kZeroToOne:
    case ScaleEncoding::kZeroToLeast:
    case ScaleEncoding::kZeroToEpsilon:
    case ScaleEncoding::kHalfUpGgml:
    case ScaleEncoding::kExponent:
    case ScaleEncoding::kBinary32:
      break;
  }
  return t;
}
// Whether the byte is the saturating cast of what is encoded.
constexpr bool SaturatesScale(ScaleEncoding encoding) {
  return encoding != ScaleEncoding::kClamp2m9 && encoding != ScaleEncoding::kHalfUpGgml &&
         encoding != ScaleEncoding::kExponent && encoding != ScaleEncoding::kBinary32;
}
constexpr std::uint8_t StoredScale(const Dialect& d, float t, std::uint8_t byte) {
  if (byte != 0) return byte;
  switch (d.scale_encoding) {
    case ScaleEncoding::kZeroToOne:
      return SaturatingByte(d.scale, 1.0f);
    case ScaleEncoding::kZeroToLeast:
      return t > 0.0f ? std::uint8_t{1} : byte;
    case ScaleEncoding::kZeroToEpsilon:
      return SaturatingByte(d.scale, 0x1p-3f);
    case ScaleEncoding::kNearest:
    case ScaleEncoding::kClamp2m6:
    case ScaleEncoding::kClamp2m9:
    case ScaleEncoding::kOneWhereTiny:
    case ScaleEncoding::kHalfUpGgml:
    case ScaleEncoding::kExponent:
    case ScaleEncoding::kBinary32:
      break;
  }
  return byte;
}
constexpr std::uint8_t EncodedScale(const Dialect& d, float t) {
  if (d.scale_encoding == ScaleEncoding::kHalfUpGgml) return GgmlScaleByte(t);
  const float encoded = ScaleToEncode(d.scale_encoding, t);
  if (d.scale_encoding == ScaleEncoding::kClamp2m9) return TorchByte(d.scale, encoded);
  return StoredScale(d, t, SaturatingByte(d.scale, encoded));
}

// Inf; for EVEN, which adds half a unit of the element's last fraction bit, all from
// 0x7F800000 - 2^(22 - m) on: 0x7F600000 for E2M1.
constexpr bool ReachesInf(const Dialect& d, float b) {
  const int m = FormatOf(d.element).mantissa_bits;
  const std::uint32_t added = d.mx_rule == ScaleRule::kEven ? 1u << (22 - m) : 0u;
  return std::bit_cast<std::uint32_t>(b) + added >= 0x7F800000u;
}

constexpr std::uint8_t EncodedExponent(const Dialect& d, float b, float t) {
  if (d.block_scale == BlockScale::kFloorLog2) return FloorLog2Byte(b, MaxExponent(d.element));
  if (d.block_scale == BlockScale::kCeilLog2) return CeilLog2Byte(t);
  if (d.block_scale == BlockScale::kFloorLog2Quotient)
    return FloorByte(std::bit_cast<std::uint32_t>(t), 0);
  if (d.block_scale == BlockScale::kOverflowAware) {
    return b / TargetOf(d) < kTiny ? std::uint8_t{127} : Bf16ExponentByte(t);
  }
  if (b != b) return 0xFF;  // only where the dialect's maximum keeps NaN
  if (d.inf_scale != InfScale::kRule && ReachesInf(d, b)) {
    return d.inf_scale == InfScale::kNan ? 0xFF
                                         : static_cast<std::uint8_t>(255 - MaxExponent(d.element));
  }
  return ScaleByte({d.element, d.scale, d.block_rows, d.block_cols, d.mx_rule}, b, {});
}

// What is stored for a scale that is NaN.
constexpr std::uint8_t ReplacedNan(const Dialect& d, std::uint8_t byte) {
  const bool replaced = d.nan_scale >= 0 && IsNan(FormatOf(d.scale), byte);
  return replaced ? static_cast<std::uint8_t>(d.nan_scale) : byte;
}

// The byte of a block with maximum b and scale t = ScaleBefore(d, b, level).
constexpr std::uint8_t ScaleByteOf(const Dialect& d, float b, float t) {
  if (d.scale_encoding == ScaleEncoding::kBinary32) return 0;
  const std::uint8_t byte =
      d.scale_encoding == ScaleEncoding::kExponent ? EncodedExponent(d, b, t) : EncodedScale(d, t);
  return ReplacedNan(d, byte);
}

// The value that the quantizer (and a reader) takes the byte for. ggml reads NaN as 0.
constexpr float ScaleValueOf(const Dialect& d, std::uint8_t byte) {
  if (d.block_scale == BlockScale::kOneBlock) return 1.0f;
  if (d.scale_encoding == ScaleEncoding::kHalfUpGgml && byte == 0x7F) return 0.0f;
  return Decode(d.scale, byte);
}

}  // namespace fp4lab
