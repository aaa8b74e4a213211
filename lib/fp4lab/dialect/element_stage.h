// The elements under a dialect: the factor of a block, the scaled element and the code.
#pragma once

#include <cstdint>

#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// e, or the divisor if the dialect divides (HasDivisor).
constexpr float FactorOf(const Dialect& d, float b, float s, std::uint8_t byte,
                         const TensorScale& l) {
  const float e =
      WithFormula<float>(d.factor, FactorNumberOf{{b, s, byte, l, d.block_scale, d.element}});
  if (d.prescale == 1.0f) return e;
  return HasDivisor(d.factor) ? e / d.prescale : e * d.prescale;
}

// v, the scaled element. Where it is rounded to BF16 first, what rounds to -0 is -0.
constexpr float Scaled(const Dialect& d, float x, float e, const TensorScale& l) {
  const float v = ScaledBy(d.factor, x, e, l);
  if (d.keeps_negative_zero) return v;
  const bool bf16 = d.rounding == ElementRounding::kBf16First;
  return (bf16 ? RoundToBf16(v) : v) == 0.0f ? 0.0f : v;
}

// The code of v, the scaled element of x under scale s. `random`: the low RandomBitsOf(d.rounding)
// bits are used, higher bits are ignored.
constexpr std::uint8_t CodeOf(const Dialect& d, float x, float s, float v, std::uint32_t random) {
  if (v != v && d.nan_code >= 0) return static_cast<std::uint8_t>(d.nan_code);
  const std::uint32_t code =
      WithFormula<std::uint32_t>(d.rounding, ElementCodeOf{{d.element, x, s, v, random}});
  const bool zero = (code & MagnitudeMask(FormatOf(d.element))) == 0;
  return static_cast<std::uint8_t>(zero && d.never_negative_zero ? 0u : code);
}

}  // namespace fp4lab
