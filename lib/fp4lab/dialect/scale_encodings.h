// The encoding of block scales: the stored byte from t, the scale before rounding.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "fp4lab/dialect/exponent_bytes.h"
#include "fp4lab/dialect/formula.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

enum class ScaleEncoding : std::uint8_t {
  kNearest,
  kClamp2m6,
  kClamp2m9,
  kOneClamp2m9,
  kOneOrNan,
  kZeroToOne,
  kZeroToLeast,
  kZeroToEpsilon,
  kOneWhereTiny,
  kHalfUpGgml,
  kExponent,
  kBinary32,
  kUp,
  kDown
};
constexpr ScaleEncoding LastOf(ScaleEncoding) { return ScaleEncoding::kDown; }

// The byte of t by a saturating cast, and by torch's cast, which gives NaN beyond 464. Both give
// the NaN byte for NaN.
constexpr std::uint8_t SaturatingByte(FormatId scale, float t) {
  return static_cast<std::uint8_t>(Encode(scale, t));
}
constexpr std::uint8_t TorchByte(FormatId scale, float t) {
  return static_cast<std::uint8_t>(Encode(scale, t, Rounding::kNearestEven, 0, Overflow::kSpecial));
}

// ggml_fp32_to_ue4m3. Normal numbers: the fraction cut to 3 bits, plus the next bit. Below 2^-6:
// floor(fl(512 t + 1/2)) units of 2^-9, at most 7.
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

// Members of the structs: kText, and the byte of t in three steps, so that kernels can take the
// middle step for many blocks at once.
//   Encoded   the number that is encoded for t
//   Byte      the byte of that number; kSaturates: by the saturating cast
//   ForZero   the byte stored in place of a byte of 0; depends only on whether t is positive
struct EncodesT {
  static constexpr float Encoded(float t) { return t; }
};
struct CastSaturating {
  static constexpr bool kSaturates = true;
  static constexpr std::uint8_t Byte(FormatId scale, float encoded) {
    return SaturatingByte(scale, encoded);
  }
};
struct KeepsZero {
  static constexpr std::uint8_t ForZero(FormatId, float) { return 0; }
};
// For encodings whose byte is not derived from t alone, or that store no byte.
struct NoByteOfT : EncodesT, KeepsZero {
  static constexpr bool kSaturates = false;
  static constexpr std::uint8_t Byte(FormatId, float) { return 0; }
};

template <>
struct Formula<ScaleEncoding::kNearest> : EncodesT, CastSaturating, KeepsZero {
  static constexpr std::string_view kLabel = "nearest";
  static constexpr std::string_view kText = "t to nearest even, saturating";
};

template <>
struct Formula<ScaleEncoding::kClamp2m6> : CastSaturating, KeepsZero {
  static constexpr std::string_view kLabel = "clamp_2m6";
  static constexpr std::string_view kText = "t clamped to [2^-6, 448], to nearest even";
  static constexpr float Encoded(float t) { return ClampedBelow(t, 0x1p-6f); }
};

template <>
struct Formula<ScaleEncoding::kClamp2m9> : CastSaturating, KeepsZero {
  static constexpr std::string_view kLabel = "clamp_2m9";
  static constexpr std::string_view kText = "t clamped to [2^-9, 448], to nearest even";
  static constexpr float Encoded(float t) { return ClampedBelow(t, 0x1p-9f); }
};

template <>
struct Formula<ScaleEncoding::kOneClamp2m9> : CastSaturating, KeepsZero {
  static constexpr std::string_view kLabel = "one_clamp_2m9";
  static constexpr std::string_view kText =
      "t = 0 becomes 1, then clamped to [2^-9, 448], to nearest even";
  static constexpr float Encoded(float t) { return ClampedBelow(t == 0.0f ? 1.0f : t, 0x1p-9f); }
};

template <>
struct Formula<ScaleEncoding::kOneOrNan> : KeepsZero {
  // torch's cast before its release 2.13, which saturates.
  static constexpr std::string_view kLabel = "one_or_nan";
  static constexpr std::string_view kText = "t = 0 becomes 1; to nearest even, beyond 464 NaN";
  static constexpr float Encoded(float t) { return t == 0.0f ? 1.0f : t; }
  static constexpr bool kSaturates = false;
  static constexpr std::uint8_t Byte(FormatId scale, float encoded) {
    return TorchByte(scale, encoded);
  }
};

template <>
struct Formula<ScaleEncoding::kZeroToOne> : EncodesT, CastSaturating {
  static constexpr std::string_view kLabel = "zero_to_one";
  static constexpr std::string_view kText = "t to nearest even, saturating; 0 becomes 1";
  static constexpr std::uint8_t ForZero(FormatId scale, float) {
    return SaturatingByte(scale, 1.0f);
  }
};

template <>
struct Formula<ScaleEncoding::kZeroToLeast> : EncodesT, CastSaturating {
  static constexpr std::string_view kLabel = "zero_to_least";
  static constexpr std::string_view kText =
      "t to nearest even, saturating; 0 becomes the least positive where b > 0";
  static constexpr std::uint8_t ForZero(FormatId, float t) { return t > 0.0f ? 1 : 0; }
};

template <>
struct Formula<ScaleEncoding::kZeroToEpsilon> : EncodesT, CastSaturating {
  static constexpr std::string_view kLabel = "zero_to_epsilon";
  static constexpr std::string_view kText = "t to nearest even, saturating; 0 becomes 2^-3";
  static constexpr std::uint8_t ForZero(FormatId scale, float) {
    return SaturatingByte(scale, 0x1p-3f);
  }
};

template <>
struct Formula<ScaleEncoding::kOneWhereTiny> : CastSaturating, KeepsZero {
  static constexpr std::string_view kLabel = "one_where_tiny";
  static constexpr std::string_view kText = "t < 2^-63 becomes 1; to nearest even, saturating";
  static constexpr float Encoded(float t) { return t < kTiny ? 1.0f : t; }
};

template <>
struct Formula<ScaleEncoding::kHalfUpGgml> : EncodesT, KeepsZero {
  static constexpr std::string_view kLabel = "half_up_ggml";
  static constexpr std::string_view kText = "t half up on the bits; 256 and beyond become 448";
  static constexpr bool kSaturates = false;
  static constexpr std::uint8_t Byte(FormatId, float encoded) { return GgmlScaleByte(encoded); }
};

template <>
struct Formula<ScaleEncoding::kExponent> : NoByteOfT {
  // E8M0: the block scale rule makes the byte (BlockScaleExponent).
  static constexpr std::string_view kLabel = "exponent";
  static constexpr std::string_view kText = "the byte of the block scale's rule";
};

template <>
struct Formula<ScaleEncoding::kBinary32> : NoByteOfT {
  // The scale is stored in binary32 (Quantized::scale_values); there is no byte.
  static constexpr std::string_view kLabel = "binary32";
  static constexpr std::string_view kText = "none: s = t in binary32";
};

// Directed roundings: up leaves no element of a block beyond the largest, down leaves the scale at
// t or below.
template <>
struct Formula<ScaleEncoding::kUp> : EncodesT, KeepsZero {
  static constexpr std::string_view kLabel = "up";
  static constexpr std::string_view kText = "t rounded up, saturating";
  static constexpr bool kSaturates = false;
  static constexpr std::uint8_t Byte(FormatId scale, float encoded) {
    return static_cast<std::uint8_t>(Encode(scale, encoded, Rounding::kTowardPositive));
  }
};

template <>
struct Formula<ScaleEncoding::kDown> : EncodesT, KeepsZero {
  static constexpr std::string_view kLabel = "down";
  static constexpr std::string_view kText = "t rounded down, saturating";
  static constexpr bool kSaturates = false;
  static constexpr std::uint8_t Byte(FormatId scale, float encoded) {
    return static_cast<std::uint8_t>(Encode(scale, encoded, Rounding::kTowardZero));
  }
};

struct EncodedScaleOf {
  FormatId scale;
  float t;
  template <class F>
  constexpr std::uint8_t operator()(F) const {
    const std::uint8_t byte = F::Byte(scale, F::Encoded(t));
    return byte != 0 ? byte : F::ForZero(scale, t);
  }
};

}  // namespace fp4lab
