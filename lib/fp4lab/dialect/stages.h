// The formulas of the dialects, one function an enumerator, in their exact operation order.
//
// binary32, round to nearest even, subnormals kept, nothing contracted; fl(.) is one rounding.
// amax and b are maxima of |x|; q is the largest element (6 for E2M1). constexpr and free of
// macros. Where each formula comes from is said in the rows of dialect.cc.
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/block/scale_rules.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/formats/te_stochastic.h"

namespace fp4lab {

inline constexpr float kBf16Max = 0x1.fep127f;
inline constexpr float kFloatMin = 0x1p-126f;  // the least normal

// fminf(a, FLT_MAX): a NaN is dropped. And the minimum that keeps it.
constexpr float ClampToMax(float a) { return a < kFloatMax ? a : kFloatMax; }
constexpr float ClampToMaxOrNan(float a) { return a > kFloatMax ? kFloatMax : a; }
constexpr float Magnitude(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}

// rcp.approx.ftz.f32 as if its approximation were the rounded reciprocal: subnormal arguments count
// as 0, subnormal results become 0. (dialect/approximate.h has what a device may return.)
constexpr float RcpFtz(float a) {
  if (Magnitude(a) < kFloatMin) return std::bit_cast<float>(0x7F800000u);
  const float reciprocal = 1.0f / a;
  return Magnitude(reciprocal) < kFloatMin ? 0.0f : reciprocal;
}

// ---- Level 2 -----------------------------------------------------------------------------------

struct Level {
  float encode = 1.0f, decode = 1.0f;  // S, D
  float amax = 0.0f;
};

constexpr Level EncodeScaleLevel(float c, float amax) {
  const float encode = Nvfp4EncodeScale(amax, c);
  return {encode, 1.0f / encode};
}
constexpr Level EncodeFusedLevel(float c, float amax) {
  // S = amax > 0 ? min(C / amax, FLT_MAX) : 1, so a NaN amax gives 1 and Inf gives 0.
  const float encode = amax > 0.0f ? ClampToMax(c / amax) : 1.0f;
  return {encode, 1.0f / encode};
}
constexpr Level EncodePartialLevel(float c, float amax) {
  if (!(amax > 0.0f)) return {};
  const float encode = ClampToMax(c / (amax > kFloatMin ? amax : kFloatMin));
  if (encode == 0.0f) return {0.0f, 1.0f};
  return {encode, 1.0f / encode};
}
constexpr Level EncodeJaxLevel(float c, float amax) {
  const float quotient = ClampToMaxOrNan(c / amax);
  const float encode = amax == 0.0f ? kFloatMax : quotient == 0.0f ? 1.0f : quotient;
  return {encode, 1.0f / encode};
}
constexpr Level EncodePlainLevel(float c, float amax) {
  const float encode = amax == 0.0f ? 0.0f : c / amax;
  return {encode, 1.0f / encode};
}
constexpr Level MultiplierLevel(float c, float amax) {
  const float decode = amax / c;
  return {1.0f / decode, decode};
}
constexpr Level TwoDivisionsLevel(float scale_max, float q, float amax) {
  const float decode = amax == 0.0f ? 1.0f : amax / scale_max / q;
  return {1.0f / decode, decode};
}
constexpr Level DivisorLevel(float c, float amax) {
  const float encode = c / (amax < kFloatMin ? kFloatMin : amax);
  return {encode, 1.0f / encode};
}
constexpr Level TensorFp8Level(FormatId element, float amax) {
  const float encode = Fp8TensorScale(element, amax);
  return {encode, 1.0f / encode};
}

constexpr Level LevelWithoutAmax(const Dialect& d, float amax) {
  const float c = LevelTwoConstant(d);
  switch (d.level_two) {
    case LevelTwo::kNone:
      return {};
    case LevelTwo::kEncodeScale:
      return EncodeScaleLevel(c, amax);
    case LevelTwo::kEncodeFused:
      return EncodeFusedLevel(c, amax);
    case LevelTwo::kEncodePartial:
      return EncodePartialLevel(c, amax);
    case LevelTwo::kEncodeJax:
      return EncodeJaxLevel(c, amax);
    case LevelTwo::kEncodePlain:
      return EncodePlainLevel(c, amax);
    case LevelTwo::kMultiplier:
      return MultiplierLevel(c, amax);
    case LevelTwo::kTwoDivisions:
      return TwoDivisionsLevel(d.scale_max, MaxFinite(d.element), amax);
    case LevelTwo::kDivisor:
      return DivisorLevel(c, amax);
    case LevelTwo::kTensorFp8:
      return TensorFp8Level(d.element, amax);
  }
  return {};
}
constexpr Level LevelOf(const Dialect& d, float amax) {
  Level l = LevelWithoutAmax(d, amax);
  l.amax = amax;
  return l;
}

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
  const float q = MaxFinite(d.element);
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

constexpr std::uint8_t EncodedScale(const Dialect& d, float t) {
  const std::uint8_t nearest = SaturatingByte(d.scale, t);
  switch (d.scale_encoding) {
    case ScaleEncoding::kNearest:
      return nearest;
    case ScaleEncoding::kClamp2m6:
      return SaturatingByte(d.scale, ClampedBelow(t, 0x1p-6f));
    case ScaleEncoding::kClamp2m9:
      return TorchByte(d.scale, ClampedBelow(t == 0.0f ? 1.0f : t, 0x1p-9f));
    case ScaleEncoding::kZeroToOne:
      return nearest == 0 ? SaturatingByte(d.scale, 1.0f) : nearest;
    case ScaleEncoding::kZeroToLeast:
      return nearest == 0 && t > 0.0f ? std::uint8_t{1} : nearest;
    case ScaleEncoding::kZeroToEpsilon:
      return nearest == 0 ? SaturatingByte(d.scale, 0x1p-3f) : nearest;
    case ScaleEncoding::kOneWhereZero:
      return SaturatingByte(d.scale, t == 0.0f ? 1.0f : t);
    case ScaleEncoding::kHalfUpGgml:
      return GgmlScaleByte(t);
    case ScaleEncoding::kExponent:
      return 0;  // EncodedExponent's
  }
  return 0;
}

constexpr std::uint8_t EncodedExponent(const Dialect& d, float b, float t) {
  if (d.block_scale == BlockScale::kFloorLog2) return FloorLog2Byte(b, MaxExponent(d.element));
  if (d.block_scale == BlockScale::kCeilLog2) return CeilLog2Byte(t);
  if (d.block_scale == BlockScale::kOverflowAware) return t == 0.0f ? 127 : FloorLog2Byte(t, 0);
  if (b != b) return 0xFF;  // only where the dialect's maximum keeps NaN
  if (d.inf_scale_is_nan) {
    const int added = d.mx_rule == ScaleRule::kEven ? 22 - FormatOf(d.element).mantissa_bits : 0;
    const std::uint32_t rounded = std::bit_cast<std::uint32_t>(b) + (added > 0 ? 1u << added : 0u);
    if (rounded >= 0x7F800000u) return 0xFF;
  }
  return ScaleByte({d.element, d.scale, d.block_rows, d.block_cols, d.mx_rule}, b, {});
}

// The byte of a block with maximum b and scale t = ScaleBefore(d, b, level).
constexpr std::uint8_t ScaleByteOf(const Dialect& d, float b, float t) {
  const std::uint8_t byte =
      d.scale_encoding == ScaleEncoding::kExponent ? EncodedExponent(d, b, t) : EncodedScale(d, t);
  const bool replaced = d.nan_scale >= 0 && IsNan(FormatOf(d.scale), byte);
  return replaced ? static_cast<std::uint8_t>(d.nan_scale) : byte;
}

// The value that the quantizer (and a reader) takes the byte for. ggml reads NaN as 0.
constexpr float ScaleValueOf(const Dialect& d, std::uint8_t byte) {
  if (d.block_scale == BlockScale::kOneBlock) return 1.0f;
  if (d.scale_encoding == ScaleEncoding::kHalfUpGgml && byte == 0x7F) return 0.0f;
  return Decode(d.scale, byte);
}

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
constexpr float ApproximateFactor(float b, float s, const Level& l) {
  return b == 0.0f ? 0.0f : RcpFtz(s * RcpFtz(l.encode));
}
constexpr float EncodeTimesApproximateFactor(float s, const Level& l) {
  return ClampToMaxOrNan(l.encode * RcpFtz(s));
}

// e, or what the dialect divides by (Divides).
constexpr float FactorOf(const Dialect& d, float b, float s, std::uint8_t byte, const Level& l) {
  switch (d.factor) {
    case Factor::kReciprocal:
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
         factor == Factor::kDivideByScale || factor == Factor::kSearch;
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

// random: 16 bits for kStochastic16, 8 for kStochastic8.
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
      return Encode(d.element, v, Rounding::kStochastic, random);
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

// ---- The whole of a block and of a reader
// --------------------------------------------------------

// Everything of a block that its elements share.
struct BlockNumbers {
  float amax = 0;          // b
  float scale_before = 0;  // t
  std::uint8_t byte = 0;
  float scale = 0;   // s
  float factor = 0;  // e, or the divisor
};

// From t on; four over six asks for it with 1.5 t.
constexpr BlockNumbers NumbersFrom(const Dialect& d, float b, float t, const Level& l) {
  BlockNumbers n{.amax = b, .scale_before = t};
  n.byte = ScaleByteOf(d, b, t);
  n.scale = ScaleValueOf(d, n.byte);
  n.factor = FactorOf(d, b, n.scale, n.byte, l);
  return n;
}

constexpr std::uint8_t QuantizedElement(const Dialect& d, const BlockNumbers& n, const Level& l,
                                        float x, std::uint32_t random) {
  return CodeOf(d, x, n.scale, Scaled(d, x, n.factor, l), random);
}

// The value of a code: fl(value * fl(fl(s*amax) * fl(1/C))) where level 2 is Transformer Engine's
// (dequantize_nvfp4.cuh), fl(value * fl(s*D)) elsewhere.
constexpr float Dequantized(const Dialect& d, std::uint8_t code, float s, float amax) {
  const float value = Decode(d.element, code);
  switch (d.level_two) {
    case LevelTwo::kEncodeScale:
    case LevelTwo::kEncodeFused:
    case LevelTwo::kEncodePartial:
    case LevelTwo::kEncodeJax:
      return value * (s * amax * (1.0f / LevelTwoConstant(d)));
    case LevelTwo::kEncodePlain:
    case LevelTwo::kMultiplier:
    case LevelTwo::kTwoDivisions:
    case LevelTwo::kDivisor:
    case LevelTwo::kTensorFp8:
    case LevelTwo::kNone:
      break;
  }
  return value * (s * LevelOf(d, amax).decode);
}

}  // namespace fp4lab
