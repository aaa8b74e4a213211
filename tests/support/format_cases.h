// Inputs that stress a conversion to a narrow format.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp4lab/formats/format.h"
#include "fp4lab/oracle/formats.h"

namespace fp4lab {

// Every BF16 pattern as the binary32 value that it stands for, NaNs included.
inline std::vector<float> AllBf16() {
  std::vector<float> values;
  for (std::uint32_t u = 0; u < 0x10000; ++u) values.push_back(std::bit_cast<float>(u << 16));
  return values;
}

// Whether BoundaryInputs takes the values around a code: all codes of formats of up to 8 bits, of
// wider ones the ends of every 128 codes and every 11th between (TF32: every 37th).
inline bool IsBoundaryCode(const Format& format, std::uint32_t code) {
  const std::uint32_t place = code & 0x7Fu;
  if (format.bits <= 8 || place < 2 || place > 0x7Du) return true;
  return code % (format.bits <= 16 ? 11 : 37) == 0;
}

// Points: every value of the format (see IsBoundaryCode), every midpoint of two values, 2^-16 of a
// step above the lower and below the upper of two values, and 0.5, 1 and 1.5 steps above the
// largest value; each point with two binary32 neighbours on each side, with both signs. And the
// ends of binary32.
inline std::vector<float> BoundaryInputs(const Format& format) {
  std::vector<float> values;
  const auto add = [&](double point) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(point));
    for (int step = -2; step <= 2; ++step) {
      const std::uint32_t near = bits + static_cast<std::uint32_t>(step);
      values.push_back(std::bit_cast<float>(near));
      values.push_back(std::bit_cast<float>(near ^ 0x80000000u));
    }
  };
  const std::uint32_t codes = 1u << (format.exponent_bits + format.mantissa_bits);
  double last = 0.0;
  for (std::uint32_t code = 0; code < codes; ++code) {
    const double value = oracle::Value(format, code);
    if (!std::isfinite(value)) continue;
    if (IsBoundaryCode(format, code)) {
      add(value);
      add((last + value) / 2);
      add(last + (value - last) / 65536);
      add(value - (value - last) / 65536);
    }
    if (code + 1 == codes || !std::isfinite(oracle::Value(format, code + 1))) {
      for (const double steps : {0.5, 1.0, 1.5}) add(value + steps * (value - last));
    }
    last = value;
  }
  for (const std::uint32_t bits : {0x00000000u, 0x00800000u, 0x00400000u, 0x00600000u, 0x7F7FFFFEu,
                                   0x7F800000u, 0x7F800001u, 0x7FC00000u, 0x7FFFFFFDu}) {
    add(std::bit_cast<float>(bits));
  }
  return values;
}

}  // namespace fp4lab
