// The parameters of a format as the plain 32-bit constants that the kernels of encode.cc use.
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/formats/format.h"

namespace fp4lab {

struct EncodeRules {
  Rounding rounding;
  bool is_exponent_only;                // E8M0
  int mantissa_bits;                    // m
  std::uint32_t least_exponent;         // binary32's biased exponent of the least normal
  std::uint32_t normal_shift;           // bits that a normal value loses
  std::uint32_t max_finite, nan, sign;  // codes; sign = 0: the format ignores the sign of x
  std::uint32_t infinite;               // the code of Inf
  std::uint32_t too_big_positive, too_big_negative;  // codes of finite values beyond the largest
};

constexpr EncodeRules RulesOf(FormatId id, Rounding rounding, Overflow overflow) {
  const Format& f = FormatOf(id);
  const bool exponent_only = f.specials == Specials::kOnlyOnesNan;
  const float huge = std::bit_cast<float>(0x7F7FFFFFu), inf = std::bit_cast<float>(0x7F800000u);
  const auto magnitude = [&](float x) {
    // With the largest random field, `huge` overflows every format, except under a rounding toward
    // zero, which maps `huge` and all other values beyond the largest finite value to that value.
    return Encode(f, x, rounding, 0xFFFF, overflow) & MagnitudeMask(f);
  };
  return {.rounding = rounding,
          .is_exponent_only = exponent_only,
          .mantissa_bits = f.mantissa_bits,
          .least_exponent = exponent_only ? 0u : static_cast<std::uint32_t>(128 - f.bias),
          .normal_shift = static_cast<std::uint32_t>(23 - f.mantissa_bits),
          .max_finite = MaxFiniteCode(f),
          .nan = NanCode(f),
          .sign = SignBit(f),
          .infinite = magnitude(inf),
          .too_big_positive = magnitude(huge),
          .too_big_negative = magnitude(-huge)};
}

struct DecodeRules {
  bool is_exponent_only;
  int mantissa_shift;                      // code to binary32 fraction
  std::uint32_t exponent_offset;           // (127 - bias) << 23
  std::uint32_t magnitude_mask, sign;      // of a code
  std::uint32_t least_normal, max_finite;  // codes
  std::uint32_t infinite;                  // code; ~0, which no code has, if there is no Inf
  float subnormal_unit;                    // 2^(1 - bias - m)
};

constexpr DecodeRules RulesOf(FormatId id) {
  const Format& f = FormatOf(id);
  const bool has_inf = f.specials == Specials::kInfAndNan;
  const int unit_exponent = 1 - f.bias - f.mantissa_bits;
  return {.is_exponent_only = f.specials == Specials::kOnlyOnesNan,
          .mantissa_shift = 23 - f.mantissa_bits,
          .exponent_offset = static_cast<std::uint32_t>(127 - f.bias) << 23,
          .magnitude_mask = MagnitudeMask(f),
          .sign = SignBit(f),
          .least_normal = 1u << f.mantissa_bits,
          .max_finite = MaxFiniteCode(f),
          .infinite = has_inf ? InfCode(f) : ~0u,
          .subnormal_unit =
              unit_exponent > -127
                  ? std::bit_cast<float>(static_cast<std::uint32_t>(127 + unit_exponent) << 23)
                  : 0.0f};  // not used by BF16 and TF32, whose patterns are binary32's
}

}  // namespace fp4lab
