// The tensor scales of a tensor or row, and the arithmetic that formulas share.
#pragma once

#include <bit>
#include <cstdint>

namespace fp4lab {

inline constexpr float kFloatMax = 0x1.fffffep127f;

// S (encode) and D (decode) of dialect.h, and the amax that they were computed from.
struct TensorScale {
  float encode = 1.0f, decode = 1.0f;
  float amax = 0.0f;
};

inline constexpr float kFloatMin = 0x1p-126f;     // the least normal
inline constexpr float kFloatEpsilon = 0x1p-23f;  // of 1

// min(a, FLT_MAX). ClampToMax turns NaN into FLT_MAX, as fminf(a, FLT_MAX) does; ClampToMaxOrNan
// keeps NaN.
constexpr float ClampToMax(float a) { return a < kFloatMax ? a : kFloatMax; }
constexpr float ClampToMaxOrNan(float a) { return a > kFloatMax ? kFloatMax : a; }
constexpr float Magnitude(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu);
}

// rcp.approx.ftz.f32 as if its result were the correctly rounded reciprocal: subnormal arguments
// count as 0, subnormal results become 0. (dialect/approximate.h has the results that a device may
// return.)
constexpr float RcpFtz(float a) {
  if (Magnitude(a) < kFloatMin) return std::bit_cast<float>(0x7F800000u);
  const float reciprocal = 1.0f / a;
  return Magnitude(reciprocal) < kFloatMin ? 0.0f : reciprocal;
}

}  // namespace fp4lab
