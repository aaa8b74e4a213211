// The interval of numbers that round to a code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fp4lab/dialect/element_roundings.h"
#include "fp4lab/dialect/tensor_scale.h"  // kFloatMax
#include "fp4lab/formats/format.h"

namespace fp4lab {

struct Interval {
  float low, high;
};

// The magnitudes that a format rounds (RNE, saturating) to a code, whose sign is ignored. {NaN,
// NaN} for a NaN code and for E8M0-like formats without a fraction.
inline Interval RoundsTo(const Format& f, std::uint32_t code) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::uint32_t magnitude = code & MagnitudeMask(f);
  if (IsNan(f, magnitude) || f.specials == Specials::kOnlyOnesNan) return {kNaN, kNaN};
  const auto middle = [&](std::uint32_t lower) {
    return 0.5f * (Decode(f, lower) + Decode(f, lower + 1));
  };
  const bool even = magnitude % 2 == 0;
  Interval interval{0.0f, std::numeric_limits<float>::infinity()};
  if (magnitude > 0) {
    const float tie = middle(magnitude - 1);
    interval.low = even ? tie : std::nextafter(tie, kFloatMax);
  }
  if (magnitude < MaxFiniteCode(f)) {
    const float tie = middle(magnitude);
    interval.high = even ? tie : std::nextafter(tie, 0.0f);
  }
  return interval;
}

// The finite magnitudes that an element's rounding takes to the magnitude of `code`, under the
// random bits of `in`; its v gives the sign alone. {1, 0} if no number does.
inline Interval RoundsTo(ElementRounding rounding, ElementInput in, std::uint32_t code) {
  const std::uint32_t mask = MagnitudeMask(FormatOf(in.element));
  const float sign = in.v;
  // The least bits of a magnitude whose code is at least `least`; a code never falls as v grows.
  const auto first = [&](std::uint32_t least) {
    std::uint32_t low = 0, high = std::bit_cast<std::uint32_t>(kFloatMax) + 1;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      in.v = std::copysign(std::bit_cast<float>(middle), sign);
      const bool reaches =
          (WithFormula<std::uint32_t>(rounding, ElementCodeOf{in}) & mask) >= least;
      (reaches ? high : low) = reaches ? middle : middle + 1;
    }
    return low;
  };
  const std::uint32_t low = first(code & mask), end = first((code & mask) + 1);
  if (low >= end) return {1.0f, 0.0f};
  return {std::bit_cast<float>(low), (code & mask) == MaxFiniteCode(FormatOf(in.element))
                                         ? std::numeric_limits<float>::infinity()
                                         : std::bit_cast<float>(end - 1)};
}

}  // namespace fp4lab
