// Operands of matrix instructions that stress them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/tensor/mma/mma_number.h"
#include "fp4lab/tensor/mma/mma_operand.h"

namespace fp4lab {

enum class Inputs {
  kTypical,     // significands at random, exponents within a few of the middle
  kCancelling,  // pairs that nearly cancel, of any size
  kWide,        // all exponents
  kLow,         // subnormals and the lowest exponents
  kHigh,        // the highest exponents
  kFp4,         // products of an E2M1 and an E4M3 value: what FP4 emulation multiplies
  kAnyBits      // any codes, NaN and infinities included
};
inline constexpr Inputs kAllInputs[] = {Inputs::kTypical, Inputs::kCancelling, Inputs::kWide,
                                        Inputs::kLow,     Inputs::kHigh,       Inputs::kFp4,
                                        Inputs::kAnyBits};

// A code of the format with a chosen exponent field; never NaN or infinite.
inline std::uint32_t CodeWith(const Format& f, std::uint32_t random, std::uint32_t field) {
  const std::uint32_t fraction = random & ((1u << f.mantissa_bits) - 1);
  const std::uint32_t magnitude = std::min(field << f.mantissa_bits | fraction, MaxFiniteCode(f));
  return magnitude | (f.is_signed && (random >> 31) != 0 ? SignBit(f) : 0u);
}

inline std::uint32_t RandomCode(const Format& f, Inputs inputs, std::uint32_t random) {
  const std::uint32_t top = (1u << f.exponent_bits) - 1, choice = random >> 16 & 0xFF;
  const std::uint32_t middle = static_cast<std::uint32_t>(std::max(f.bias, 1));
  if ((random >> 24 & 0x1F) == 0) return 0;
  switch (inputs) {
    case Inputs::kTypical:
      return CodeWith(f, random, std::min(top, middle - std::min(middle, choice % 4)));
    case Inputs::kCancelling:
    case Inputs::kWide:
      return CodeWith(f, random, choice % (top + 1));
    case Inputs::kLow:
      return CodeWith(f, random, choice % 3 == 0 ? choice % 2 : std::min(top, middle / 4));
    case Inputs::kHigh:
      return CodeWith(f, random, top - choice % 2);
    case Inputs::kFp4: {
      const float value = Decode(FormatId::kE2M1, random & 0xF) *
                          Decode(FormatId::kE4M3, 0x30 + (random >> 4 & 0x1F));
      if (f.bits <= 16) return Encode(f, value);
      return std::bit_cast<std::uint32_t>(value) >> (32 - f.bits);
    }
    case Inputs::kAnyBits:
      return (random >> 8 & 7) != 0 ? CodeWith(f, random, std::min(top, middle))
                                    : random & ((f.bits == 32 ? 0u : 1u << f.bits) - 1);
  }
  return 0;
}

inline std::uint8_t RandomScale(const Format& f, Inputs inputs, std::uint32_t random) {
  const std::uint32_t least = f.specials == Specials::kOnlyOnesNan ? 0x7Fu : 0x38u;
  switch (inputs) {
    case Inputs::kTypical:
    case Inputs::kFp4:
    case Inputs::kCancelling:
      return static_cast<std::uint8_t>(least + random % 8);
    case Inputs::kWide:
      return static_cast<std::uint8_t>(random % MaxFiniteCode(f));
    case Inputs::kLow:
      return static_cast<std::uint8_t>(random % 64);
    case Inputs::kHigh:
      return static_cast<std::uint8_t>(MaxFiniteCode(f) - random % 4);
    case Inputs::kAnyBits:
      return static_cast<std::uint8_t>(random % 64 == 0 ? random >> 8 : least);
  }
  return 0;
}

// A random operand; with `group` > 0, each group of elements has a scale in `scale_format`.
inline MmaOperand RandomOperand(const Format& format, std::size_t rows, std::size_t cols,
                                Inputs inputs, std::uint32_t tensor, int group = 0,
                                const Format& scale_format = {}) {
  const RandomStream stream{.seed = 5, .tensor = tensor};
  MmaOperand x{
      .rows = rows, .cols = cols, .format = format, .group = group, .scale_format = scale_format};
  for (std::size_t i = 0; i < rows * cols; ++i) {
    std::uint32_t code = RandomCode(format, inputs, stream.Bits32(i));
    // Codes in pairs with opposite signs: with equal partners the two products nearly cancel.
    if (inputs == Inputs::kCancelling && i % 2 == 1 && format.is_signed) {
      code = (x.codes.back() ^ SignBit(format) ^ (stream.Bits32(i) >> 20 & 1u));
      if (IsNan(format, code) || IsInf(format, code)) code = 0;
    }
    x.codes.push_back(code);
  }
  const RandomStream scales{.seed = 6, .tensor = tensor};
  for (std::size_t i = 0; i < rows * x.ScaleCols(); ++i) {
    x.scales.push_back(RandomScale(scale_format, inputs, scales.Bits32(i)));
  }
  return x;
}

}  // namespace fp4lab
