// A tensor's numbers, and the clamps of the formulas that make and use them.
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/block/scale_rules.h"

namespace fp4lab {

// S and D of dialect.h, and the amax that they were made of.
struct Level {
  float encode = 1.0f, decode = 1.0f;
  float amax = 0.0f;
};

// fminf(a, FLT_MAX): a NaN is dropped. And the minimum that keeps it.
constexpr float ClampToMax(float a) { return a < kFloatMax ? a : kFloatMax; }
constexpr float ClampToMaxOrNan(float a) { return a > kFloatMax ? kFloatMax : a; }
constexpr float Magnitude(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}

}  // namespace fp4lab
