// Shared parts of the Hadamard kernels: when binary32 sums are exact, and the rounding to BF16.
//
// A term is a BF16 value: a multiple of 2^(E - 7), where E is its exponent. If the exponents of the
// terms span at most s binades, every partial sum of 2^k terms is a multiple of the least term's
// unit and below 2^(s + 8 + k) units: exact in 24 bits if s <= 16 - k (ExactSpan). The terms of a
// wider group are divided into "high" terms, at most 16 - k binades below the largest, and "low"
// terms. If the low terms span no more than that, both partial sums are exact, and adding the two
// rounds once, as the exact sum would round. Still wider groups, and groups with Inf, NaN or sums
// that might overflow, go to HadamardWideGroup.
//
// For most groups down the columns, exactness is proved after the transform. Every sum is a
// multiple of the least term's unit u. If a sum were 2^24 u or more, then one of the two sums of
// the next stage that it enters (its sum and its difference with another sum), and in the end an
// output, would be 2^23 u or more. All sums were therefore exact if all outputs are below 2^23 u.
#if defined(FP4LAB_TRANSFORM_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_TRANSFORM_LANES_INL_H_
#undef FP4LAB_TRANSFORM_LANES_INL_H_
#else
#define FP4LAB_TRANSFORM_LANES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/kernels.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;
using MF = hn::Mask<DF>;

// The least exponent field with which `size` terms might overflow: a sum is below size times the
// power of two above its largest term.
constexpr int LeastOverflow(int size) { return std::min(249, 254 - HadamardStages(size)); }

// The range of magnitudes seen so far, as binary32 bits; zeros do not count for the smallest.
struct Range {
  VI largest, smallest;
};
HWY_INLINE Range EmptyRange() { return {hn::Zero(DI()), hn::Set(DI(), 0x7FFFFFFF)}; }
HWY_INLINE Range Widen(const Range& range, VF x) {
  const DI d;
  const VI magnitude = hn::And(hn::BitCast(d, x), hn::Set(d, 0x7FFFFFFF));
  const VI nonzero = hn::IfThenElse(hn::Eq(magnitude, hn::Zero(d)), range.smallest, magnitude);
  return {hn::Max(range.largest, magnitude), hn::Min(range.smallest, nonzero)};
}

// The sums that a range of terms needs, lane by lane.
struct Split {
  VI high;      // the least binary32 bits of a high term
  MF one, two;  // one (two) sums are enough; neither: HadamardWideGroup
};
HWY_INLINE Split SplitOf(const Range& range, int size) {
  const DI d;
  const DF df;
  const VI span = hn::Set(d, ExactSpan(24, size) << 23);
  const VI exponent = hn::Set(d, 0x7F800000);
  const VI one_unit = hn::Set(d, 0x00800000);  // subnormals share the least normal's unit
  const VI top = hn::Max(hn::And(range.largest, exponent), one_unit);
  const VI bottom = hn::Max(hn::And(range.smallest, exponent), one_unit);
  const VI high = hn::Sub(top, span);  // the exponent of the lowest high term; may be negative
  const VI low = hn::Sub(hn::Sub(high, one_unit), span);
  const auto no_overflow = hn::Lt(top, hn::Set(d, LeastOverflow(size) << 23));
  const auto one = hn::And(no_overflow, hn::Not(hn::Lt(bottom, high)));
  const auto two = hn::And(no_overflow, hn::Not(hn::Lt(bottom, low)));
  return {high, hn::RebindMask(df, one), hn::RebindMask(df, two)};
}

HWY_INLINE MF IsHigh(const Split& split, VF x) {
  const DI d;
  const VI magnitude = hn::And(hn::BitCast(d, x), hn::Set(d, 0x7FFFFFFF));
  return hn::RebindMask(DF(), hn::Not(hn::Lt(magnitude, split.high)));
}

// Rounds finite y, except -0, to BF16, RNE: the upper half of a lane is the result.
HWY_INLINE VI UpperHalfRounded(VF y) {
  const DI d;
  const VI bits = hn::BitCast(d, y);
#if HWY_TARGET <= HWY_AVX3
  const VI least = hn::Add(bits, hn::Set(d, 0x7FFF));
  const __mmask16 odd = _mm512_test_epi32_mask(bits.raw, _mm512_set1_epi32(0x10000));
  return VI{_mm512_mask_add_epi32(least.raw, odd, least.raw, _mm512_set1_epi32(1))};
#else
  const VI odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  return hn::Add(hn::Add(bits, hn::Set(d, 0x7FFF)), odd);
#endif
}
HWY_INLINE VF RoundPositiveZeroToBf16(VF y) {
  return hn::BitCast(DF(), hn::And(UpperHalfRounded(y), hn::Set(DI(), -0x10000)));
}

// Rounds finite y to BF16, RNE; zero becomes +0.
HWY_INLINE VF RoundLanesToBf16(VF y) { return RoundPositiveZeroToBf16(hn::Add(y, hn::Zero(DF()))); }

// The larger of |a| and |b|; a and b must not be NaN.
HWY_INLINE VF LargerMagnitude(VF a, VF b) {
#if HWY_TARGET <= HWY_AVX3
  return VF{_mm512_range_ps(a.raw, b.raw, 0b1011)};
#else
  return hn::Max(hn::Abs(a), hn::Abs(b));
#endif
}

// The four elements of a Hadamard transform of size 4.
struct Four {
  HWY_INLINE Four() {}  // on Arm an implicit constructor has no target
  HWY_INLINE Four(VF a, VF b, VF c, VF e) : a(a), b(b), c(c), e(e) {}

  VF a, b, c, e;
};
HWY_INLINE Four Hadamard4(const Four& x) {
  const VF p = hn::Add(x.a, x.b), q = hn::Sub(x.a, x.b);
  const VF r = hn::Add(x.c, x.e), s = hn::Sub(x.c, x.e);
  return {hn::Add(p, r), hn::Add(q, s), hn::Sub(p, r), hn::Sub(q, s)};
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TRANSFORM_LANES_INL_H_
