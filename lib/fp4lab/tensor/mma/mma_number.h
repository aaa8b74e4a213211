// The number that a matrix instruction reads from a code: significand and raw exponent, not
// normalised.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fp4lab/formats/format.h"

namespace fp4lab {

inline constexpr int kNoExponent = -(1 << 28);

// (-1)^s * |significand| * 2^(raw - fraction_bits). Subnormals keep raw = 1 - bias and have no
// implicit bit, so that |significand| < 2^fraction_bits.
struct MmaNumber {
  std::int64_t significand = 0;  // signed
  int raw = kNoExponent;         // encoded exponent - bias
  int fraction_bits = 0;
  bool is_nan = false;
  int infinity = 0;  // -1, 0, +1
};

constexpr MmaNumber ReadMmaNumber(const Format& f, std::uint32_t code) {
  MmaNumber n;
  n.fraction_bits = f.mantissa_bits;
  const std::uint32_t sign_bit = f.is_signed ? std::uint32_t{1} << (f.bits - 1) : 0u;
  const bool negative = (code & sign_bit) != 0;
  // The mask of binary32 is 2^31 - 1.
  const std::uint32_t magnitude = f.is_signed ? code & (sign_bit - 1) : code & ((1u << f.bits) - 1);
  if (IsNan(f, code)) n.is_nan = true;
  if (IsInf(f, code)) n.infinity = negative ? -1 : 1;
  const int field = static_cast<int>(magnitude >> f.mantissa_bits);
  std::int64_t significand = magnitude & ((1u << f.mantissa_bits) - 1);
  const bool has_implicit_bit = field > 0 || f.specials == Specials::kOnlyOnesNan;
  if (has_implicit_bit) significand += std::int64_t{1} << f.mantissa_bits;
  n.raw = (f.specials == Specials::kOnlyOnesNan ? field : std::max(field, 1)) - f.bias;
  n.significand = negative ? -significand : significand;
  return n;
}

// Reads a block scale; a sign bit is ignored.
constexpr MmaNumber ReadMmaScale(const Format& f, std::uint32_t code) {
  return ReadMmaNumber(f, code & MagnitudeMask(f));
}

}  // namespace fp4lab
