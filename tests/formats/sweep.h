// Ranges of binary32 patterns, converted by the kernels, the scalar Encode and the oracle.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/formats/encode.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/oracle/formats.h"

namespace fp4lab {

// A conversion of the sweep: E8M0 under all three roundings, other formats to nearest and toward
// zero; overflow of both kinds where they differ.
struct Conversion {
  FormatId format;
  Rounding rounding;
  Overflow overflow;
};

inline std::vector<Conversion> SweptConversions() {
  std::vector<Conversion> conversions;
  for (const NamedFormat& f : kFormats) {
    for (const Rounding rounding :
         {Rounding::kNearestEven, Rounding::kTowardZero, Rounding::kTowardPositive}) {
      if (rounding == Rounding::kTowardPositive && f.id != FormatId::kE8M0) continue;
      conversions.push_back({f.id, rounding, Overflow::kSaturate});
      if (f.format.specials == Specials::kNone) continue;
      conversions.push_back({f.id, rounding, Overflow::kSpecial});
    }
  }
  return conversions;
}

inline constexpr std::uint32_t kPatternsAPart = 1u << 16;  // 65536 parts make all patterns

// The number of patterns of part `part` whose code is wrong, by the kernel of the active SIMD
// target or by the scalar routine. Code is an unsigned integer that holds the format.
template <class Code>
std::size_t WrongCodesOfPart(const Conversion& conversion, const oracle::Grid& grid,
                             std::uint32_t part) {
  const auto& [id, rounding, overflow] = conversion;
  std::vector<float> x(kPatternsAPart);
  std::vector<Code> codes(x.size());
  for (std::uint32_t i = 0; i < x.size(); ++i) {
    x[i] = std::bit_cast<float>(part * kPatternsAPart + i);
  }
  Encode(id, x, codes, {.rounding = rounding, .overflow = overflow});
  std::size_t wrong = 0, near = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t expected = grid.Round(x[i], rounding, 0, overflow, &near);
    wrong += codes[i] != expected || Encode(id, x[i], rounding, 0, overflow) != expected;
  }
  return wrong;
}

inline std::size_t WrongCodes(const Conversion& conversion, const oracle::Grid& grid,
                              std::uint32_t part) {
  const int bits = FormatOf(conversion.format).bits;
  if (bits <= 8) return WrongCodesOfPart<std::uint8_t>(conversion, grid, part);
  if (bits <= 16) return WrongCodesOfPart<std::uint16_t>(conversion, grid, part);
  return WrongCodesOfPart<std::uint32_t>(conversion, grid, part);
}

}  // namespace fp4lab
