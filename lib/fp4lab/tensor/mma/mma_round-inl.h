// The final rounding of a fused step, in vectors of binary64: from a sum in units of 2^q to the
// accumulator.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_MMA_ROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_TENSOR_MMA_ROUND_INL_H_
#undef FP4LAB_TENSOR_MMA_ROUND_INL_H_
#else
#define FP4LAB_TENSOR_MMA_ROUND_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <limits>

#include "fp4lab/tensor/tensor_core.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Double = hn::CappedTag<double, 8>;
using DoubleVec = hn::Vec<Double>;
using FloatOfDouble = hn::Rebind<float, Double>;  // as many lanes as Double
using FloatOfDoubleVec = hn::Vec<FloatOfDouble>;
inline constexpr std::size_t kDoubles = hn::MaxLanes(Double());

// Brings the accumulator's value r into the range of binary32: magnitudes from 2^128 on become
// infinity, and magnitudes below 2^-126 are truncated to the subnormal grid `grid` (2^-149, or
// 2^-139 for a cut to 13 bits), where a zero loses its sign. r is finite in binary64 unless a term
// or the accumulator was a special value.
HWY_NOINLINE DoubleVec FixRange32(DoubleVec r, double grid) {
  const Double d;
  const DoubleVec magnitude = hn::Abs(r);
  const DoubleVec cut = hn::Mul(hn::Trunc(hn::Mul(r, hn::Set(d, 1.0 / grid))), hn::Set(d, grid));
  const auto tiny = hn::Lt(magnitude, hn::Set(d, 0x1p-126));
  const auto huge = hn::Ge(magnitude, hn::Set(d, 0x1p128));
  const DoubleVec infinity = hn::CopySign(hn::Inf(d), r);
  return hn::IfThenElse(huge, infinity, hn::IfThenElse(tiny, hn::Add(cut, hn::Zero(d)), r));
}

// Converts r, which is a binary32 number, infinite or NaN, to binary32.
HWY_INLINE FloatOfDoubleVec ToFloat(DoubleVec r) {
  const FloatOfDouble df;
#if HWY_TARGET == HWY_SCALAR  // DemoteTo of the scalar target makes an infinity finite
  return hn::Set(df, static_cast<float>(hn::GetLane(r)));
#else
  return hn::DemoteTo(df, r);
#endif
}

// Rounds t * unit, the result of a step, as kOutput says: the new accumulator.
template <MmaOutput kOutput>
HWY_INLINE FloatOfDoubleVec RoundStep(DoubleVec t, DoubleVec unit) {
  const Double d;
  const FloatOfDouble df;
  if constexpr (kOutput == MmaOutput::kNearest16) {
    const DoubleVec v = hn::Mul(t, unit);
    const DoubleVec exponent =
        hn::And(v, hn::Set(d, std::bit_cast<double>(std::uint64_t{0x7FF} << 52)));
    const DoubleVec ulp = hn::Max(hn::Mul(exponent, hn::Set(d, 0x1p-10)), hn::Set(d, 0x1p-24));
    const DoubleVec magic = hn::Mul(ulp, hn::Set(d, 0x1.8p52));
    DoubleVec r = hn::Sub(hn::Add(v, magic), magic);  // a zero is +0
    // Keeps Inf and NaN of v: the arithmetic above turns an infinity into NaN.
    r = hn::IfThenElse(hn::Lt(hn::Abs(v), hn::Set(d, 0x1p500)), r, v);
    const auto huge = hn::Gt(hn::Abs(r), hn::Set(d, 65504.0));
    r = hn::IfThenElse(huge, hn::CopySign(hn::Inf(d), r), r);
    const FloatOfDoubleVec f = ToFloat(r);
    return hn::IfThenElse(hn::IsNaN(f), hn::Set(df, std::bit_cast<float>(0x7FFFFFFFu)), f);
  }
  constexpr int kFractionBits = kOutput == MmaOutput::kTruncate32 ? 23 : 13;
  constexpr std::uint64_t kKept = ~std::uint64_t{0} << (52 - kFractionBits);
  DoubleVec r = hn::Mul(hn::And(t, hn::Set(d, std::bit_cast<double>(kKept))), unit);
  const DoubleVec magnitude = hn::Abs(r);
  const auto normal =
      hn::And(hn::Ge(magnitude, hn::Set(d, 0x1p-126)), hn::Lt(magnitude, hn::Set(d, 0x1p128)));
  if (HWY_LIKELY(hn::AllTrue(d, hn::Or(normal, hn::Eq(r, hn::Zero(d)))))) return ToFloat(r);
  // NaN is detected from t, not from r: the cut may have cleared the payload.
  r = hn::IfThenElse(hn::IsNaN(t), t, FixRange32(r, kFractionBits == 23 ? 0x1p-149 : 0x1p-139));
  const FloatOfDoubleVec f = ToFloat(r);
  return hn::IfThenElse(hn::IsNaN(f), hn::Set(df, std::bit_cast<float>(0x7FFFFFFFu)), f);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_MMA_ROUND_INL_H_
