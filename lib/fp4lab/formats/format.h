// The narrow number formats as data, and one conversion routine for all of them.
//
// A code is an unsigned integer of Format::bits bits: sign, exponent field e, fraction f.
//   e > 0: (-1)^s * 2^(e - bias) * (1 + f / 2^m)        e = 0: (-1)^s * 2^(1 - bias) * f / 2^m
// (E8M0 has neither sign nor fraction nor zero: its value is 2^(code - 127).)
// Bits of a code above Format::bits are ignored: UE4M3 is a byte whose bit 7 means nothing.
// Sources: OCP MX v1.0 section 5, OCP OFP8, PTX ISA "cvt" and its scale formats, IEEE 754.
// constexpr and free of macros: host, device and tests share it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fp4lab {

// The codes of a format that are not finite numbers.
enum class Specials : std::uint8_t {
  kNone,        // every code is finite (E2M1, E2M3, E3M2)
  kNan,         // only all-ones exponent and fraction is NaN, no Inf (E4M3 "fn", UE4M3, UE5M3)
  kInfAndNan,   // IEEE 754: all-ones exponent (E5M2, FP16, BF16, TF32)
  kOnlyOnesNan  // the all-ones code is NaN, no sign (E8M0)
};

struct Format {
  int bits, exponent_bits, mantissa_bits, bias;
  Specials specials;
  bool is_signed;
  friend constexpr bool operator==(const Format&, const Format&) = default;
};

enum class FormatId : std::uint8_t {
  kE2M1,
  kE2M3,
  kE3M2,
  kE4M3,
  kE5M2,
  kE8M0,
  kUE4M3,
  kUE5M3,
  kFP16,
  kBF16,
  kTF32,  // a code is the upper 19 bits of the 32-bit container: see formats/tf32.h
  kE0M3,  // the uniform grid 0, 1/8 .. 7/8: four-bit integers of sign and magnitude, in eighths
  kE3M4
};

struct NamedFormat {
  FormatId id;
  std::string_view name;        // printed by fp4lab: the name in ml_dtypes, or one in its style
  std::string_view short_name;  // accepted as well
  Format format;
};

inline constexpr std::array kFormats = {
    NamedFormat{FormatId::kE2M1, "float4_e2m1fn", "e2m1", {4, 2, 1, 1, Specials::kNone, true}},
    NamedFormat{FormatId::kE2M3, "float6_e2m3fn", "e2m3", {6, 2, 3, 1, Specials::kNone, true}},
    NamedFormat{FormatId::kE3M2, "float6_e3m2fn", "e3m2", {6, 3, 2, 3, Specials::kNone, true}},
    NamedFormat{FormatId::kE4M3, "float8_e4m3fn", "e4m3", {8, 4, 3, 7, Specials::kNan, true}},
    NamedFormat{FormatId::kE5M2, "float8_e5m2", "e5m2", {8, 5, 2, 15, Specials::kInfAndNan, true}},
    NamedFormat{
        FormatId::kE8M0, "float8_e8m0fnu", "e8m0", {8, 8, 0, 127, Specials::kOnlyOnesNan, false}},
    NamedFormat{FormatId::kUE4M3, "float8_ue4m3fn", "ue4m3", {7, 4, 3, 7, Specials::kNan, false}},
    NamedFormat{FormatId::kUE5M3, "float8_ue5m3fn", "ue5m3", {8, 5, 3, 15, Specials::kNan, false}},
    NamedFormat{FormatId::kFP16, "float16", "fp16", {16, 5, 10, 15, Specials::kInfAndNan, true}},
    NamedFormat{FormatId::kBF16, "bfloat16", "bf16", {16, 8, 7, 127, Specials::kInfAndNan, true}},
    NamedFormat{FormatId::kTF32, "tfloat32", "tf32", {19, 8, 10, 127, Specials::kInfAndNan, true}},
    NamedFormat{FormatId::kE0M3, "float4_e0m3fn", "e0m3", {4, 0, 3, 1, Specials::kNone, true}},
    NamedFormat{FormatId::kE3M4, "float8_e3m4", "e3m4", {8, 3, 4, 3, Specials::kInfAndNan, true}},
};

constexpr const NamedFormat& Named(FormatId id) { return kFormats[static_cast<std::size_t>(id)]; }

namespace internal {
// A Format packed into one word.
constexpr std::uint32_t PackedFormat(const Format& f) {
  return static_cast<std::uint32_t>(f.bits | f.exponent_bits << 5 | f.mantissa_bits << 10 |
                                    f.bias << 15 | static_cast<int>(f.specials) << 25 |
                                    (f.is_signed ? 1 : 0) << 28);
}
constexpr Format UnpackedFormat(std::uint32_t word) {
  const auto field = [word](int at, int bits) {
    return static_cast<int>(word >> at & ((1u << bits) - 1));
  };
  return {field(0, 5),
          field(5, 5),
          field(10, 5),
          field(15, 10),
          static_cast<Specials>(field(25, 3)),
          field(28, 1) != 0};
}
constexpr std::array<std::uint32_t, kFormats.size()> PackedFormats() {
  std::array<std::uint32_t, kFormats.size()> words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = PackedFormat(kFormats[i].format);
  return words;
}
}  // namespace internal

// The format of a row of kFormats. The function has its own constexpr copy of the table, because
// device code can call constexpr host functions but cannot read host variables.
constexpr Format FormatOf(FormatId id) {
  constexpr std::array<std::uint32_t, kFormats.size()> kWords = internal::PackedFormats();
  return internal::UnpackedFormat(kWords[static_cast<std::size_t>(id)]);
}

constexpr std::optional<FormatId> FindFormat(std::string_view name) {
  for (const NamedFormat& f : kFormats) {
    if (f.name == name || f.short_name == name) return f.id;
  }
  return std::nullopt;
}

// Derived constants. The codes that these functions return have no sign bit.
constexpr std::uint32_t SignBit(const Format& f) { return f.is_signed ? 1u << (f.bits - 1) : 0u; }
constexpr std::uint32_t MagnitudeMask(const Format& f) {
  return (f.is_signed ? 1u << (f.bits - 1) : 1u << f.bits) - 1;
}
// The code of the largest finite magnitude.
constexpr std::uint32_t MaxFiniteCode(const Format& f) {
  switch (f.specials) {
    case Specials::kNone:
      return MagnitudeMask(f);
    case Specials::kNan:
      return MagnitudeMask(f) - 1;
    case Specials::kOnlyOnesNan:
      return MagnitudeMask(f) - 1;
    case Specials::kInfAndNan:
      return (MagnitudeMask(f) >> f.mantissa_bits << f.mantissa_bits) - 1;
  }
  return 0;
}
// The canonical NaN that a conversion returns, as in PTX: 0x7F (FP8, UE4M3), 0x7FFF (FP16, BF16),
// 0xFF (E8M0, UE5M3), 0x3FFFF (TF32: 0x7FFFE000 in its container). A format without NaN returns the
// largest finite magnitude without the sign, as cvt.*.satfinite does.
constexpr std::uint32_t NanCode(const Format& f) { return MagnitudeMask(f); }
// For Specials::kInfAndNan only.
constexpr std::uint32_t InfCode(const Format& f) { return MaxFiniteCode(f) + 1; }

constexpr bool IsNan(const Format& f, std::uint32_t code) {
  const std::uint32_t magnitude = code & MagnitudeMask(f);
  switch (f.specials) {
    case Specials::kNone:
      return false;
    case Specials::kNan:
    case Specials::kOnlyOnesNan:
      return magnitude == MagnitudeMask(f);
    case Specials::kInfAndNan:
      return magnitude > InfCode(f);
  }
  return false;
}
constexpr bool IsInf(const Format& f, std::uint32_t code) {
  return f.specials == Specials::kInfAndNan && (code & MagnitudeMask(f)) == InfCode(f);
}

// The exact value of a code as binary32 (every format here embeds in binary32). NaN decodes to the
// quiet NaN 0x7FC00000 with the code's sign.
constexpr float Decode(const Format& f, std::uint32_t code) {
  const std::uint32_t sign = (code & SignBit(f)) ? 0x80000000u : 0u;
  const std::uint32_t magnitude = code & MagnitudeMask(f);
  if (IsNan(f, code)) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (IsInf(f, code)) return std::bit_cast<float>(sign | 0x7F800000u);
  const int m = f.mantissa_bits;
  int exponent = static_cast<int>(magnitude >> m);
  std::uint32_t significand = magnitude & ((1u << m) - 1);
  if (f.specials == Specials::kOnlyOnesNan || exponent > 0) {
    significand |= 1u << m;
  } else {
    exponent = 1;
  }
  if (significand == 0) return std::bit_cast<float>(sign);
  // value = significand * 2^(exponent - bias - m); normalise into binary32.
  const int top = std::bit_width(significand) - 1;
  const int biased = exponent - f.bias - m + top + 127;
  if (biased > 0) {
    const std::uint32_t fraction = (significand << (23 - top)) & 0x7FFFFFu;
    return std::bit_cast<float>(sign | static_cast<std::uint32_t>(biased) << 23 | fraction);
  }
  // A binary32 subnormal (BF16 and TF32 subnormals, E8M0's 2^-127): unit 2^-149.
  return std::bit_cast<float>(sign | significand << (exponent - f.bias - m + 149));
}
constexpr float Decode(FormatId id, std::uint32_t code) { return Decode(FormatOf(id), code); }

namespace internal {
constexpr std::array<float, kFormats.size()> LargestValues() {
  std::array<float, kFormats.size()> values = {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Format& f = kFormats[i].format;
    values[i] = Decode(f, MaxFiniteCode(f));
  }
  return values;
}
}  // namespace internal

// The largest finite value. Blocks ask for it one by one, so it is looked up; the table is the
// function's own for device code, as in FormatOf.
constexpr float MaxFinite(FormatId id) {
  constexpr std::array<float, kFormats.size()> kValues = internal::LargestValues();
  return kValues[static_cast<std::size_t>(id)];
}

enum class Rounding : std::uint8_t {
  kNearestEven,     // RNE: ties to the even code
  kTowardZero,      // truncation of the magnitude
  kTowardPositive,  // up; for E8M0, cvt.rp.ue8m0 (the last step of RCEIL)
  kStochastic       // carry of 16 random bits, see Encode
};

enum class Overflow : std::uint8_t {
  kSaturate,  // PTX satfinite: beyond the largest finite (Inf too) -> the largest finite, sign kept
  kSpecial    // ml_dtypes and torch casts: Inf where the format has one, else NaN (sign kept)
};

namespace internal {

// floor(sig / 2^shift), or one more, as the rounding says. sig < 2^24, 0 < shift <= 40.
constexpr std::uint32_t RoundedShift(std::uint64_t sig, int shift, Rounding rounding, bool negative,
                                     std::uint32_t random16) {
  const std::uint64_t kept = sig >> shift;
  const std::uint64_t lost = sig - (kept << shift);
  std::uint64_t rounded = kept;
  switch (rounding) {
    case Rounding::kNearestEven: {
      const std::uint64_t half = std::uint64_t{1} << (shift - 1);
      if (lost > half || (lost == half && (kept & 1) != 0)) ++rounded;
      break;
    }
    case Rounding::kTowardZero:
      break;
    case Rounding::kTowardPositive:
      if (lost != 0 && !negative) ++rounded;
      break;
    case Rounding::kStochastic:  // the random field is added to the top 16 discarded bits
      rounded = ((sig << 16 >> shift) + random16) >> 16;
      break;
  }
  return static_cast<std::uint32_t>(rounded);
}

// The code of |x| as if the format had no largest magnitude. a: binary32 bits of a finite |x|.
constexpr std::uint32_t RoundMagnitude(const Format& f, std::uint32_t a, bool negative,
                                       Rounding rounding, std::uint32_t random16) {
  const int e = static_cast<int>(a >> 23);
  const std::uint32_t sig = (a & 0x7FFFFFu) | (e > 0 ? 0x800000u : 0u);
  // |x| = sig * 2^(exponent - 23); binade 0 is that of the format's subnormals and least normals.
  const int exponent = (e > 0 ? e : 1) - 127;
  int binade = exponent - (1 - f.bias);
  int shift = 23 - f.mantissa_bits;
  if (binade < 0) {
    shift -= binade;
    if (shift > 40) shift = 40;  // the result is the same for all larger shifts
    binade = 0;
  }
  return RoundedShift(sig, shift, rounding, negative, random16) +
         (static_cast<std::uint32_t>(binade) << f.mantissa_bits);
}

// The E8M0 code of |x| (a: its binary32 bits, not NaN) before saturation; 255 means overflow.
constexpr std::uint32_t RoundExponent(std::uint32_t a, Rounding rounding, std::uint32_t random16) {
  const std::uint32_t e = a >> 23;
  const std::uint32_t fraction = a & 0x7FFFFFu;
  if (e == 255) return e;
  // The value of code 0, 2^-127, is the binary32 subnormal 0x400000.
  const bool above_least = e > 0 || fraction > 0x400000u;
  switch (rounding) {
    case Rounding::kNearestEven:
      return e + (above_least && (e == 0 || fraction >= 0x400000u) ? 1u : 0u);
    case Rounding::kTowardZero:
      return e;
    case Rounding::kTowardPositive:
      return e + (above_least && fraction != 0 ? 1u : 0u);
    case Rounding::kStochastic:
      if (!above_least) return e;
      return e + (((e > 0 ? fraction >> 7 : (fraction - 0x400000u) >> 6) + random16) >> 16);
  }
  return e;
}

}  // namespace internal

// binary32 -> code, total: every input has a stated result.
//   NaN           -> NanCode (sign dropped)
//   finite, Inf   -> rounded as asked; beyond the largest finite by `overflow`; the sign is kept,
//                    also on zero. Binary32 subnormals are honoured. With kSpecial a finite value
//                    that a directed rounding moves toward zero stays finite (IEEE 754, 7.4).
//   UE4M3, UE5M3  -> the code of |x|: formats without a sign ignore the sign of x. (No instruction
//                    converts to UE4M3: kernels convert values that are never negative to E4M3,
//                    which gives the same byte.)
//   kStochastic   -> magnitude floor + carry: with d the discarded bits as a fraction in [0, 1)
//                    of one unit in the last place, cut to 16 bits, the magnitude rounds up if and
//                    only if d + random16 / 2^16 >= 1. random16 = 0 truncates; grid values never
//                    move.
//                    (PTX cvt.rs with the field R of each element; the 13-bit fields of its f16x2
//                    form are random16 = R << 3. A magnitude below 2^-16 units gives 0.)
//   E8M0          -> the exponent of |x| (sign ignored): kTowardZero and kTowardPositive are
//                    cvt.{rz,rp}.ue8m0x2 (Inf: 0xFE with kSaturate, 0xFF with kSpecial; NaN 0xFF);
//                    kNearestEven is ml_dtypes' and torch's: a significand of 1.5 and above goes
//                    up, and so does all of (2^-127, 2^-126); 2^-127 and below is code 0.
// random16 < 2^16.
constexpr std::uint32_t Encode(const Format& f, float x, Rounding rounding = Rounding::kNearestEven,
                               std::uint32_t random16 = 0,
                               Overflow overflow = Overflow::kSaturate) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t a = u & 0x7FFFFFFFu;
  if (a > 0x7F800000u) return NanCode(f);
  if (f.specials == Specials::kOnlyOnesNan) {
    const std::uint32_t code = internal::RoundExponent(a, rounding, random16);
    return code == 255u && overflow == Overflow::kSaturate ? 254u : code;
  }
  const bool negative = f.is_signed && (u >> 31) != 0;
  const bool infinite = a == 0x7F800000u;
  const std::uint32_t sign = negative ? SignBit(f) : 0u;
  if (!infinite) {
    const std::uint32_t code = internal::RoundMagnitude(f, a, negative, rounding, random16);
    if (code <= MaxFiniteCode(f)) return sign | code;
  }
  const bool inward =
      rounding == Rounding::kTowardZero || (rounding == Rounding::kTowardPositive && negative);
  if (overflow == Overflow::kSaturate || (inward && !infinite)) return sign | MaxFiniteCode(f);
  return sign | (f.specials == Specials::kInfAndNan ? InfCode(f) : NanCode(f));
}
constexpr std::uint32_t Encode(FormatId id, float x, Rounding rounding = Rounding::kNearestEven,
                               std::uint32_t random16 = 0,
                               Overflow overflow = Overflow::kSaturate) {
  return Encode(FormatOf(id), x, rounding, random16, overflow);
}

// x rounded to BF16, RNE, as a binary32 value; overflow gives Inf, NaN gives 0x7FC00000. The result
// is that of Decode(Encode(x)) with kSpecial: BF16 is the upper half of binary32, and a carry out
// of the fraction increments the exponent.
constexpr float RoundToBf16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>((u + 0x7FFFu + ((u >> 16) & 1u)) & 0xFFFF0000u);
}

namespace internal {
constexpr bool FormatTableIsSound() {
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    const NamedFormat& f = kFormats[i];
    if (static_cast<std::size_t>(f.id) != i || !(FormatOf(f.id) == f.format)) return false;
    if (f.format.bits !=
        f.format.exponent_bits + f.format.mantissa_bits + (f.format.is_signed ? 1 : 0))
      return false;
    for (std::size_t j = 0; j < i; ++j) {
      if (kFormats[j].name == f.name || kFormats[j].short_name == f.short_name) return false;
    }
  }
  return true;
}
static_assert(FormatTableIsSound(), "ids in order, unique names, bit counts that add up");
static_assert(MaxFinite(FormatId::kE2M1) == 6.0f && MaxFinite(FormatId::kE4M3) == 448.0f);
static_assert(MaxFinite(FormatId::kE5M2) == 57344.0f && MaxFinite(FormatId::kFP16) == 65504.0f);
static_assert(MaxFinite(FormatId::kUE4M3) == 448.0f && MaxFinite(FormatId::kUE5M3) == 114688.0f);
}  // namespace internal

}  // namespace fp4lab
