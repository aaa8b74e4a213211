// The interval of numbers that round to a code.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

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

}  // namespace fp4lab
