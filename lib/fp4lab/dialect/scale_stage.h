// The block scale of the dialects: t from b, S and D, and the stored byte from t, one function an
// enumerator, in the exact operation order (dialect/level_two.h says what is meant by it).
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/block/scale_rules.h"
#include "fp4lab/dialect/block_scale_rules.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/level_two.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

// t, the block scale before rounding.
constexpr float ScaleBefore(const Dialect& d, float b, const Level& l) {
  return BlockScaleBefore(d.block_scale, {b, TargetOf(d), d.scale_max, l});
}

// ---- The scale byte -----------------------------------------------------------------------------

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
  if (d.block_scale != BlockScale::kMicroscaling) {
    return BlockScaleExponent(d.block_scale, {b, t, TargetOf(d), MaxExponent(d.element)});
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
