// Fused multiply-add for kernels: one rounding on every SIMD target.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_BASE_FMA_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BASE_FMA_INL_H_
#undef FP4LAB_BASE_FMA_INL_H_
#else
#define FP4LAB_BASE_FMA_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// fl(a * b + c), rounded once (IEEE 754 fusedMultiplyAdd), lane by lane. hn::MulAdd does not
// guarantee that: it rounds twice on targets that lack the instruction (SSE2 to SSE4, scalar).
#if HWY_NATIVE_FMA
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Fma(D /*d*/, V a, V b, V c) {
  return hwy::HWY_NAMESPACE::MulAdd(a, b, c);
}
#elif HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Fma(D d, V a, V b, V c) {
  namespace hn = hwy::HWY_NAMESPACE;
  HWY_ALIGN float lanes_a[hn::MaxLanes(d)], lanes_b[hn::MaxLanes(d)], lanes_c[hn::MaxLanes(d)];
  hn::Store(a, d, lanes_a);
  hn::Store(b, d, lanes_b);
  hn::Store(c, d, lanes_c);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    lanes_c[i] = std::fma(lanes_a[i], lanes_b[i], lanes_c[i]);
  }
  return hn::Load(d, lanes_c);
}
#else
// The product p of two binary32 numbers is exact in binary64. Rounding s = fl64(p + c) once more to
// binary32 can give a wrong result in two cases only: s lies halfway between two binary32 numbers
// and p + c does not, or the result is subnormal in binary32. In both cases the sum is rounded to
// odd first (Boldo and Melquiond, IEEE Transactions on Computers 57(4), 2008): of the two binary64
// numbers around p + c it becomes the one whose last bit is 1, which is never a halfway point.

// a * b + c rounded to odd; infinities and NaN are those of the plain sum.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V SumToOdd(D d, V a, V b, V c) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> bits;
  const V p = hn::Mul(a, b), s = hn::Add(p, c), q = hn::Sub(s, p);
  const V lost = hn::Add(hn::Sub(p, hn::Sub(s, q)), hn::Sub(c, q));  // p + c - s, exactly
  const auto inexact = hn::BitCast(bits, hn::VecFromMask(d, hn::Gt(hn::Abs(lost), hn::Zero(d))));
  const auto sum = hn::BitCast(bits, s);
  // 1 in lanes where p + c lies between zero and s, else 0.
  const auto beyond = hn::ShiftRight<63>(hn::Xor(sum, hn::BitCast(bits, lost)));
  const auto towards_zero = hn::Sub(sum, hn::And(beyond, inexact));
  return hn::BitCast(d, hn::Or(towards_zero, hn::And(inexact, hn::Set(bits, 1))));
}

// Promotes each half of the lanes to binary64 and applies sum(wide, a, b, c) to it.
template <class D, class V, class Sum>
HWY_INLINE auto OfHalves(D /*d*/, V a, V b, V c, const Sum& sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Half<D> half;
  const hn::Rebind<double, hn::Half<D>> wide;
  const auto lower = [&](V x) HWY_ATTR { return hn::PromoteTo(wide, hn::LowerHalf(half, x)); };
  const auto upper = [&](V x) HWY_ATTR { return hn::PromoteTo(wide, hn::UpperHalf(half, x)); };
  struct Halves {
    hn::Vec<decltype(wide)> low, high;
  };
  return Halves{sum(wide, lower(a), lower(b), lower(c)), sum(wide, upper(a), upper(b), upper(c))};
}

template <class D, class Halves>
HWY_INLINE auto Narrowed(D d, const Halves& x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Half<D> half;
  return hn::Combine(d, hn::DemoteTo(half, x.high), hn::DemoteTo(half, x.low));
}

// Fma for all inputs, by rounding to odd: the rare slow path of FmaOfHalves.
template <class D, class V>
HWY_NOINLINE V FmaToOdd(D d, V a, V b, V c) {
  const auto sum = [](auto wide, auto x, auto y, auto z)
                       HWY_ATTR { return SumToOdd(wide, x, y, z); };
  return Narrowed(d, OfHalves(d, a, b, c, sum));
}

// Fma for vectors of two or more lanes.
template <class D, class V>
HWY_INLINE V FmaOfHalves(D d, V a, V b, V c) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto sum = [](auto /*wide*/, auto x, auto y, auto z)
                       HWY_ATTR { return hn::Add(hn::Mul(x, y), z); };
  const auto s = OfHalves(d, a, b, c, sum);
  const V nearest = Narrowed(d, s);
  // A binary64 number is a halfway point if the 29 bits that binary32 drops are 1 followed by
  // zeros. The comparison covers all 32-bit words; the upper words never match, because `halfway`
  // has a bit there that `dropped` masks out.
  const hn::Rebind<double, hn::Half<D>> wide;
  const hn::RebindToUnsigned<decltype(wide)> bits;
  const hn::Repartition<std::uint32_t, decltype(wide)> words;
  const auto dropped = hn::BitCast(words, hn::Set(bits, 0x1FFFFFFF));
  const auto halfway = hn::BitCast(words, hn::Set(bits, 0x110000000));
  const auto is_halfway = [&](auto x) HWY_ATTR {
    return hn::Eq(hn::And(hn::BitCast(words, x), dropped), halfway);
  };
  const auto tiny = hn::Le(hn::Abs(nearest), hn::Set(d, 0x1p-125f));
  const bool good =
      hn::AllFalse(words, hn::Or(is_halfway(s.low), is_halfway(s.high))) && hn::AllFalse(d, tiny);
  return HWY_LIKELY(good) ? nearest : FmaToOdd(d, a, b, c);
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Fma(D d, V a, V b, V c) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::Set(d, std::fma(hn::GetLane(a), hn::GetLane(b), hn::GetLane(c)));
  } else {
    return FmaOfHalves(d, a, b, c);
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BASE_FMA_INL_H_
