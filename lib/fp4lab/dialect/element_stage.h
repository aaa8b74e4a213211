// The elements of the dialects: the factor of a block, the scaled element and the code, one
// function an enumerator, in the exact operation order (dialect/level_two.h says what is meant by
// it).
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/block/scale_rules.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/level_two.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/formats/stochastic32.h"
#include "fp4lab/formats/te_stochastic.h"

namespace fp4lab {

// ---- The factor of a block ----------------------------------------------------------------------

constexpr float ReciprocalFactor(float s, const Level& l) {
  const float product = s * l.decode;
  return product == 0.0f ? kFloatMax : ClampToMax(1.0f / product);
}
constexpr float ReciprocalNanFactor(float s, const Level& l) {
  return ClampToMaxOrNan(1.0f / (s * l.decode));
}
constexpr float ReciprocalOpenFactor(float s, const Level& l) {
  return s == 0.0f ? 0.0f : 1.0f / (l.decode * s);
}
constexpr float GuardedReciprocal(float x) { return x == 0.0f ? 0.0f : 1.0f / x; }
constexpr float ReciprocalGuardedFactor(float s, const Level& l) {
  return GuardedReciprocal(s * GuardedReciprocal(l.encode));
}
constexpr float EncodeOverScaleFactor(float s, const Level& l) {
  return s == 0.0f ? 0.0f : ClampToMax(l.encode / s);
}
constexpr float EncodeTimesRcpFactor(float s, const Level& l) {
  return ClampToMaxOrNan(l.encode * (1.0f / s));
}
constexpr float Bf16Factor(float s, const Level& l) {
  const float quotient = l.encode / s;
  return RoundToBf16(quotient < kBf16Max ? quotient : kBf16Max);
}
constexpr float RcpLevelOverScaleFactor(float s, const Level& l) { return 1.0f / l.decode / s; }
// The exponent field of an E8M0 byte as that of a number, at least 1.
constexpr float NormalScale(float s) {
  return s != s ? std::bit_cast<float>(0x7F800000u) : s < kFloatMin ? kFloatMin : s;
}
constexpr float ApproximateFactor(float b, float s, const Level& l) {
  return b == 0.0f ? 0.0f : RcpFtz(s * RcpFtz(l.encode));
}
constexpr float EncodeTimesApproximateFactor(float s, const Level& l) {
  return ClampToMaxOrNan(l.encode * RcpFtz(s));
}

// FactorOf without Dialect::prescale.
constexpr float PlainFactorOf(const Dialect& d, float b, float s, std::uint8_t byte,
                              const Level& l) {
  switch (d.factor) {
    case Factor::kReciprocal:
    case Factor::kReciprocalApproximate:  // a member of the set
      return ReciprocalFactor(s, l);
    case Factor::kReciprocalNan:
      return ReciprocalNanFactor(s, l);
    case Factor::kReciprocalOrZero:
      return s == 0.0f ? 0.0f : ReciprocalFactor(s, l);
    case Factor::kReciprocalOpen:
      return ReciprocalOpenFactor(s, l);
    case Factor::kReciprocalInfinite:
      return b == 0.0f ? 0.0f : 1.0f / (s * l.decode);
    case Factor::kReciprocalGuarded:
      return ReciprocalGuardedFactor(s, l);
    case Factor::kEncodeOverScale:
      return EncodeOverScaleFactor(s, l);
    case Factor::kEncodeOverScaleOpen:
      return s == 0.0f ? 0.0f : l.encode / s;
    case Factor::kEncodeTimesRcp:
      return EncodeTimesRcpFactor(s, l);
    case Factor::kBf16:
      return Bf16Factor(s, l);
    case Factor::kRcpLevelOverScale:
      return RcpLevelOverScaleFactor(s, l);
    case Factor::kDivideByProduct:
      return s * l.decode;
    case Factor::kDivideByQuotient:
      return s / l.encode;
    case Factor::kDivideByScale:
    case Factor::kSearch:
      return s;
    case Factor::kTwoSteps:
      return GuardedReciprocal(s);
    case Factor::kPowerOfTwo:
      return E8m0Reciprocal(byte);
    case Factor::kDivideByNormal:
      return NormalScale(s);
    case Factor::kTensorScale:
      return l.encode;
    case Factor::kApproximate:
      return ApproximateFactor(b, s, l);
    case Factor::kEncodeTimesApproximate:
      return EncodeTimesApproximateFactor(s, l);
  }
  return 0.0f;
}

constexpr bool Divides(Factor factor) {
  return factor == Factor::kDivideByProduct || factor == Factor::kDivideByQuotient ||
         factor == Factor::kDivideByScale || factor == Factor::kDivideByNormal ||
         factor == Factor::kSearch;
}

// e, or what the dialect divides by (Divides).
constexpr float FactorOf(const Dialect& d, float b, float s, std::uint8_t byte, const Level& l) {
  const float e = PlainFactorOf(d, b, s, byte, l);
  if (d.prescale == 1.0f) return e;
  return Divides(d.factor) ? e / d.prescale : e * d.prescale;
}

// ---- v, the scaled element ----------------------------------------------------------------------

// fma(x, e, +0) for a BF16 e: the product is exact in binary64, and -0 becomes +0.
constexpr float FusedProduct(float x, float e) {
  return static_cast<float>(static_cast<double>(x) * static_cast<double>(e) + 0.0);
}
constexpr float TwoStepsScaled(float x, float reciprocal, const Level& l) {
  return (l.decode == 0.0f ? 0.0f : x / l.decode) * reciprocal;
}

constexpr float ScaledBefore(const Dialect& d, float x, float e, const Level& l) {
  if (Divides(d.factor)) return x / e;
  if (d.factor == Factor::kBf16) return FusedProduct(x, e);
  if (e == 0.0f && (d.factor == Factor::kReciprocalOpen || d.factor == Factor::kTwoSteps)) {
    return 0.0f;
  }
  if (d.factor == Factor::kTwoSteps) return TwoStepsScaled(x, e, l);
  return x * e;
}
constexpr float Scaled(const Dialect& d, float x, float e, const Level& l) {
  const float v = ScaledBefore(d, x, e, l);
  return v == 0.0f && !d.keeps_negative_zero ? 0.0f : v;
}

// ---- The code -----------------------------------------------------------------------------------

// To nearest, ties away from zero, saturating.
constexpr std::uint32_t EncodeTiesAway(FormatId element, float v) {
  const Format& f = FormatOf(element);
  const std::uint32_t lower = Encode(f, v, Rounding::kTowardZero);
  const std::uint32_t magnitude = lower & MagnitudeMask(f);
  if (v != v || magnitude >= MaxFiniteCode(f)) return lower;
  const float middle = 0.5f * (Decode(f, magnitude) + Decode(f, magnitude + 1));
  return Magnitude(v) >= middle ? lower + 1 : lower;
}

// sign * floor(fl(|v| / step + 0.5)) * step (microxcaling's Python).
constexpr std::uint32_t EncodeHalfAdded(FormatId element, float v) {
  const Format& f = FormatOf(element);
  const std::uint32_t lower = Encode(f, v, Rounding::kTowardZero);
  const std::uint32_t magnitude = lower & MagnitudeMask(f);
  if (v != v || magnitude >= MaxFiniteCode(f)) return lower;
  const float floor_value = Decode(f, magnitude);
  const float step = Decode(f, magnitude + 1) - floor_value;
  const float steps = floor_value / step;  // a small integer
  return Magnitude(v) / step + 0.5f >= steps + 1.0f ? lower + 1 : lower;
}

// The first code whose fl(|value * s - x|) is least (ggml best_index_mxfp4): NaN and Inf give 0.
constexpr std::uint32_t EncodeBySearch(FormatId element, float x, float s) {
  const Format& f = FormatOf(element);
  std::uint32_t best = 0;
  float least = Magnitude(Decode(f, 0) * s - x);
  for (std::uint32_t code = 1; code < 1u << f.bits; ++code) {
    const float error = Magnitude(Decode(f, code) * s - x);
    if (error < least) {
      best = code;
      least = error;
    }
  }
  return best;
}

// random: as many bits as RandomBitsOf(d.rounding) says; higher ones count for nothing.
constexpr std::uint32_t EncodedElement(const Dialect& d, float x, float s, float v,
                                       std::uint32_t random) {
  switch (d.rounding) {
    case ElementRounding::kNearestEven:
      return Encode(d.element, v);
    case ElementRounding::kTiesUp:
      return EncodeTiesAway(d.element, v);
    case ElementRounding::kHalfAdded:
      return EncodeHalfAdded(d.element, v);
    case ElementRounding::kBf16First:
      return Encode(d.element, RoundToBf16(v));
    case ElementRounding::kTiesToLower:
      return EncodeBySearch(d.element, x, s);
    case ElementRounding::kTowardZero:
      return Encode(d.element, v, Rounding::kTowardZero);
    case ElementRounding::kStochastic16:
      return Encode(d.element, v, Rounding::kStochastic, random & 0xFFFFu);
    case ElementRounding::kStochastic4:
      return Encode(d.element, v, Rounding::kStochastic, (random & 0xFu) << 12);
    case ElementRounding::kStochastic32:
      return EncodeStochastic32(FormatOf(d.element), v, random);
    case ElementRounding::kStochastic8:
      return d.element == FormatId::kE2M1
                 ? EncodeTransformerEngineStochastic(v, random & 0xFFu)
                 : Encode(d.element, v, Rounding::kStochastic, (random & 0xFFu) << 8);
  }
  return 0;
}
constexpr std::uint8_t CodeOf(const Dialect& d, float x, float s, float v, std::uint32_t random) {
  if (v != v && d.nan_code >= 0) return static_cast<std::uint8_t>(d.nan_code);
  const std::uint32_t code = EncodedElement(d, x, s, v, random);
  const bool zero = (code & MagnitudeMask(FormatOf(d.element))) == 0;
  return static_cast<std::uint8_t>(zero && d.never_negative_zero ? 0u : code);
}

}  // namespace fp4lab
