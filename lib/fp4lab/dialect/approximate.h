// Dialects with rcp.approx.ftz.f32 or div.approx.ftz.f32: the assumptions about the instructions,
// and intervals that contain every number that the assumptions allow.
//
// Assumption A (PTX ISA, "rcp"): for a normal argument the result is a binary32 number at most
// kRcpApproxUlps = 1 unit in the last place of the exact reciprocal away from it. `.ftz`: subnormal
// arguments count as 0 and subnormal results become 0. 0 gives Inf, Inf gives 0, NaN gives NaN.
// (An H200 keeps A on all 2^31 positive arguments: 279,347,544 of its results are the neighbour of
// the rounded reciprocal, none is further away. tests/cuda/rcp_approx_probe.cu)
// Assumption B: every other operation is IEEE binary32, RNE, subnormals kept, in the order of the
// dialect's formula, and the conversions are cvt.rn.satfinite.
//
// Assumption C (PTX ISA, "div"): div.approx.ftz.f32 of a normal quotient is at most
// kDivApproxUlps = 2 units in the last place off for divisors in [2^-126, 2^126], and 0 for
// greater ones (CUDA C++ Programming Guide, "Intrinsic Functions", __fdividef).
//
// Every step maps an interval to an interval that contains all of its results (each operation is
// monotone), so a kernel that keeps A and B is never refused. For a single reciprocal both ends of
// the interval are possible results; a chain of two may allow a number that no device returns.
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/dialect/stages.h"

namespace fp4lab {

inline constexpr std::uint32_t kRcpApproxUlps = 1, kDivApproxUlps = 2;

// 0 <= lower <= upper, Inf allowed; or both NaN.
struct FloatInterval {
  float lower = 0, upper = 0;
};

// All results of rcp.approx(a), without `.ftz`, for a >= 0 or NaN: A for subnormal arguments and
// results, too.
constexpr FloatInterval RcpApproxSubnormal(float a) {
  const float nearest = 1.0f / a;
  if (!(a > 0.0f && a <= kFloatMax && nearest <= kFloatMax)) return {nearest, nearest};
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  const std::uint32_t down =
      (bits & 0x7FFFFFu) == 0 && bits > 0x800000u ? 2 * kRcpApproxUlps : kRcpApproxUlps;
  return {std::bit_cast<float>(bits - down), std::bit_cast<float>(bits + kRcpApproxUlps)};
}
// All results of rcp.approx.ftz(a) for a >= 0 or NaN.
constexpr FloatInterval RcpApprox(float a) {
  const float nearest = RcpFtz(a);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(1.0f / a);
  if (!(a >= kFloatMin && a <= kFloatMax)) return {nearest, nearest};
  // The rounded reciprocal is at most half a unit from the exact one, so the numbers within one
  // unit of the exact reciprocal are the rounded one and its two neighbours, and one more below a
  // power of two, where numbers lie twice as close.
  const std::uint32_t down = (bits & 0x7FFFFFu) == 0 ? 2 * kRcpApproxUlps : kRcpApproxUlps;
  const float lower = std::bit_cast<float>(bits - down);
  const float upper = std::bit_cast<float>(bits + kRcpApproxUlps);
  return {lower < kFloatMin ? 0.0f : lower, upper < kFloatMin ? 0.0f : upper};
}
constexpr FloatInterval RcpApprox(FloatInterval a) {
  return {RcpApprox(a.upper).lower, RcpApprox(a.lower).upper};
}
// All results of div.approx.ftz(c, amax) for positive arguments. The rounded quotient is at most
// half a unit from the exact one; below a power of two the numbers lie twice as close.
constexpr FloatInterval DivApprox(float c, float amax) {
  const float nearest = c / amax;
  if (amax > 0x1p126f) return {0.0f, amax > kFloatMax ? 0.0f : nearest};
  if (amax < kFloatMin || nearest > kFloatMax) return {nearest, nearest};
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  const std::uint32_t down =
      (bits & 0x7FFFFFu) <= kDivApproxUlps ? 2 * kDivApproxUlps + 1 : kDivApproxUlps;
  return {std::bit_cast<float>(bits - down), std::bit_cast<float>(bits + kDivApproxUlps)};
}
// fl(k * a) for a k >= 0.
constexpr FloatInterval Times(float k, FloatInterval a) { return {k * a.lower, k * a.upper}; }

// All possible values of t for a block with amax b.
constexpr FloatInterval ScaleInterval(const Dialect& d, float b, const TensorScale& l) {
  const FloatInterval sixth = RcpApprox(MaxFinite(d.element));
  if (d.block_scale == BlockScale::kApproximate) return Times(l.encode, Times(b, sixth));
  if (d.block_scale == BlockScale::kFoldedApproximate) return Times(b, Times(l.encode, sixth));
  if (d.block_scale == BlockScale::kRceilApproximate) {
    const FloatInterval t = Times(b, sixth);
    return {t.lower < kFloatMin ? 0.0f : t.lower, t.upper};
  }
  const float t = ScaleBefore(d, b, l);
  return {t, t};
}
// All possible values of e for a block with amax b, stored scale s and its byte.
constexpr FloatInterval FactorInterval(const Dialect& d, float b, float s, std::uint8_t byte,
                                       const TensorScale& l) {
  if (d.factor == Factor::kApproximate) {
    if (b == 0.0f) return {};
    return RcpApprox(Times(s, RcpApprox(l.encode)));
  }
  if (d.factor == Factor::kReciprocalApproximate) {
    const FloatInterval e = RcpApprox(s * l.decode);
    return {ClampToMax(e.lower), ClampToMax(e.upper)};
  }
  if (d.factor == Factor::kReciprocalSubnormalApproximate) {
    const FloatInterval e = RcpApproxSubnormal(s * l.decode);
    return {ClampToMax(e.lower), ClampToMax(e.upper)};
  }
  if (d.factor == Factor::kPowerOfTwoApproximate && byte == 254) return {0.0f, 0x1p-127f};
  if (d.factor == Factor::kEncodeTimesApproximate) {
    const FloatInterval e = Times(l.encode, RcpApprox(s));
    return {ClampToMaxOrNan(e.lower), ClampToMaxOrNan(e.upper)};
  }
  const float e = FactorOf(d, b, s, byte, l);
  return {e, e};
}

}  // namespace fp4lab
