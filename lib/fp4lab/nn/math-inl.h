// Elementwise functions for kernels from IEEE operations alone: the same bits on every SIMD target.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_NN_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_NN_MATH_INL_H_
#undef FP4LAB_NN_MATH_INL_H_
#else
#define FP4LAB_NN_MATH_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "fp4lab/base/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// x = n ln 2 + r: e^r, and n in the low bits of the float shifter + n.
template <class V>
struct ExpParts {
  V power, shifted;
};

//   n = nearest integer to x log2(e);  r = (x - n h) - n l, |r| <= 0.347, h + l = ln 2 where h has
//   15 bits, so that the first difference is exact
//   e^r = 1 + (r + r^2 P(r)), P of degree 4 fitted to the smallest relative error, 3.1e-9
// `shifter` is 1.5 * 2^23 plus a small integer: adding it rounds to an integer, to nearest even.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE ExpParts<V> ReduceExp(D d, V x, V shifter) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V shifted = Fma(d, x, hn::Set(d, 0x1.715476p0f), shifter);
  const V n = hn::Sub(shifted, shifter);
  V r = Fma(d, n, hn::Set(d, -0x1.62e4p-1f), x);
  r = Fma(d, n, hn::Set(d, -0x1.7f7d1cp-20f), r);
  V p = hn::Set(d, 0x1.6a23cep-10f);
  p = Fma(d, p, r, hn::Set(d, 0x1.123a2p-7f));
  p = Fma(d, p, r, hn::Set(d, 0x1.5558f2p-5f));
  p = Fma(d, p, r, hn::Set(d, 0x1.555492p-3f));
  p = Fma(d, p, r, hn::Set(d, 0x1.fffffcp-2f));
  return {hn::Add(Fma(d, hn::Mul(r, r), p, r), hn::Set(d, 1.0f)), shifted};
}

// e^x, at most 1.01 units in the last place from the true value (tests/nn/math_test.cc), for every
// float: subnormal results, 0 and infinity where they are due, NaN for NaN.
//   e^x = (e^r 2^(n/2)) 2^(n - n/2), rounded once in the last product
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // Beyond these the result is infinity or zero; the bounds keep n within two exponents' reach.
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const V shifter = hn::Set(d, 0x1.8p23f);
  const ExpParts<V> e = ReduceExp(d, bounded, shifter);
  const auto exponent = hn::Sub(hn::BitCast(di, e.shifted), hn::BitCast(di, shifter));
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(di, 127);
  const V scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  const V result = hn::Mul(hn::Mul(e.power, scale1), scale2);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// e^x for x <= 0 (a score less the largest): Exp's value, but 0 where that is below 2^-126, and
// without meaning for x > 0. A third fewer operations. NaN for NaN.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ExpNonPositive(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // With the exponent's bias in the shifter, the low bits are the exponent field of 2^n.
  const ExpParts<V> e = ReduceExp(d, x, hn::Set(d, 0x1.8p23f + 127.0f));
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, e.shifted)));
  const auto tiny = hn::Lt(x, hn::Set(d, -0x1.5d589ep6f));  // ln 2^-126, rounded up
  return hn::IfThenZeroElse(tiny, hn::Mul(e.power, scale));
}

// 1 / (1 + e^-x): each operation rounds once. Below -88.7 it is 0.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(x))));
}

// Calls step(d, i) for vectors of elements [i, i + Lanes(d)) that cover [0, n): whole vectors, then
// single elements by the same formula.
template <class Step>
HWY_INLINE void ForElements(std::size_t n, Step step) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) step(d, i);
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) step(one, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_NN_MATH_INL_H_
