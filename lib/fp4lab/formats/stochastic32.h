// Stochastic rounding with 32 random bits.
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/formats/format.h"

namespace fp4lab {

// Encode with kStochastic and saturation for a signed format, but with 32 random bits: the
// magnitude rounds up if and only if d + random / 2^32 >= 1, where d is the discarded part in units
// of the last place, cut to 32 bits.
constexpr std::uint32_t EncodeStochastic32(const Format& f, float x, std::uint32_t random) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x), a = u & 0x7FFFFFFFu;
  if (a > 0x7F800000u) return NanCode(f);
  const std::uint32_t sign = (u >> 31) != 0 ? SignBit(f) : 0u;
  if (a == 0x7F800000u) return sign | MaxFiniteCode(f);
  const int e = static_cast<int>(a >> 23);
  const std::uint64_t sig = (a & 0x7FFFFFu) | (e > 0 ? 0x800000u : 0u);
  int binade = (e > 0 ? e : 1) - 127 - (1 - f.bias), shift = 23 - f.mantissa_bits;
  if (binade < 0) {
    shift = shift - binade < 60 ? shift - binade : 60;  // sig << 32 < 2^56: 0 from 56 on
    binade = 0;
  }
  const std::uint64_t rounded = ((sig << 32 >> shift) + random) >> 32;
  const std::uint64_t code = rounded + (static_cast<std::uint64_t>(binade) << f.mantissa_bits);
  const std::uint32_t largest = MaxFiniteCode(f);
  return sign | (code < largest ? static_cast<std::uint32_t>(code) : largest);
}

}  // namespace fp4lab
