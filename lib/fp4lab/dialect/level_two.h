// Level 2 of the dialects: S and D from amax, one function an enumerator, in the exact operation
// order; and what the other stages share.
//
// binary32, round to nearest even, subnormals kept, nothing contracted; fl(.) is one rounding.
// amax and b are maxima of |x|; q is the largest element (6 for E2M1). Where each formula comes
// from is said in the rows of the table (rows_*.cc).
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/block/scale_rules.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/level.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

inline constexpr float kBf16Max = 0x1.fep127f;
inline constexpr float kFloatMin = 0x1p-126f;  // the least normal

// rcp.approx.ftz.f32 as if its approximation were the rounded reciprocal: subnormal arguments count
// as 0, subnormal results become 0. (dialect/approximate.h has what a device may return.)
constexpr float RcpFtz(float a) {
  if (Magnitude(a) < kFloatMin) return std::bit_cast<float>(0x7F800000u);
  const float reciprocal = 1.0f / a;
  return Magnitude(reciprocal) < kFloatMin ? 0.0f : reciprocal;
}

constexpr Level EncodeScaleLevel(float c, float amax) {
  const float encode = Nvfp4EncodeScale(amax, c);
  return {encode, 1.0f / encode};
}
constexpr Level EncodeFusedLevel(float c, float amax) {
  // S = amax > 0 ? min(C / amax, FLT_MAX) : 1, so a NaN amax gives 1 and Inf gives 0.
  const float encode = amax > 0.0f ? ClampToMax(c / amax) : 1.0f;
  return {encode, 1.0f / encode};
}
constexpr Level EncodePartialLevel(float c, float amax) {
  if (!(amax > 0.0f)) return {};
  const float encode = ClampToMax(c / (amax > kFloatMin ? amax : kFloatMin));
  if (encode == 0.0f) return {0.0f, 1.0f};
  return {encode, 1.0f / encode};
}
constexpr Level EncodeJaxLevel(float c, float amax) {
  const float quotient = ClampToMaxOrNan(c / amax);
  const float encode = amax == 0.0f ? kFloatMax : quotient == 0.0f ? 1.0f : quotient;
  return {encode, 1.0f / encode};
}
constexpr Level EncodePlainLevel(float c, float amax) {
  const float encode = amax == 0.0f ? 0.0f : c / amax;
  return {encode, 1.0f / encode};
}
constexpr Level MultiplierLevel(float c, float amax) {
  const float decode = amax / c;
  return {1.0f / decode, decode};
}
constexpr Level TwoDivisionsLevel(float scale_max, float q, float amax) {
  const float decode = amax == 0.0f ? 1.0f : amax / scale_max / q;
  return {1.0f / decode, decode};
}
constexpr Level DivisorLevel(float c, float amax) {
  const float encode = c / (amax < kFloatMin ? kFloatMin : amax);
  return {encode, 1.0f / encode};
}
constexpr Level DivisorOrOneLevel(float c, float amax) {
  const Level open = DivisorLevel(c, amax);
  return open.encode <= kFloatMax ? open : Level{};  // false for NaN
}
constexpr Level TensorFp8Level(FormatId element, float amax) {
  const float encode = Fp8TensorScale(element, amax);
  return {encode, 1.0f / encode};
}

constexpr Level LevelWithoutAmax(const Dialect& d, float amax) {
  const float c = LevelTwoConstant(d);
  switch (d.level_two) {
    case LevelTwo::kNone:
      return {};
    case LevelTwo::kEncodeScale:
    case LevelTwo::kEncodeApproximate:  // a member of the set
      return EncodeScaleLevel(c, amax);
    case LevelTwo::kEncodeFused:
      return EncodeFusedLevel(c, amax);
    case LevelTwo::kEncodePartial:
      return EncodePartialLevel(c, amax);
    case LevelTwo::kEncodeJax:
      return EncodeJaxLevel(c, amax);
    case LevelTwo::kEncodePlain:
      return EncodePlainLevel(c, amax);
    case LevelTwo::kMultiplier:
      return MultiplierLevel(c, amax);
    case LevelTwo::kTwoDivisions:
      return TwoDivisionsLevel(d.scale_max, TargetOf(d), amax);
    case LevelTwo::kDivisor:
      return DivisorLevel(c, amax);
    case LevelTwo::kDivisorOrOne:
      return DivisorOrOneLevel(c, amax);
    case LevelTwo::kTensorFp8:
      return TensorFp8Level(d.element, amax);
  }
  return {};
}
constexpr Level LevelOf(const Dialect& d, float amax) {
  Level l = LevelWithoutAmax(d, amax);
  l.amax = amax;
  return l;
}

}  // namespace fp4lab
