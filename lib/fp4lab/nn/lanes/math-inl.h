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

#include "fp4lab/base/simd/fma-inl.h"
#include "fp4lab/tensor/repeat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// kCount independent vectors that go through a function together, step by step, because one chain
// of dependent operations leaves the multipliers idle and the processor looks ahead only so far.
template <class V, std::size_t kCount>
struct Vectors {
  HWY_INLINE Vectors() {}  // on Arm an implicit constructor has no target
  HWY_INLINE explicit Vectors(V only) requires(kCount == 1) : at{only} {}

  V at[kCount];

  template <class F>
  HWY_INLINE void Each(F f) {
    Repeat<kCount>([&](auto i) HWY_ATTR { f(i); });
  }
};

// The parts of e^x, x = n ln 2 + r: `power` is e^r, and `shifted` is the float shifter + n, with n
// in its low bits.
template <class V, std::size_t kCount>
struct ExpParts {
  HWY_INLINE ExpParts() {}

  Vectors<V, kCount> power, shifted;
};

//   n = nearest integer to x log2(e)
//   r = (x - n h) - n l, |r| <= 0.347; h + l = ln 2, and h has 15 bits, so that x - n h is exact
//   e^r = 1 + (r + r^2 P(r)), P of degree 4 fitted to the smallest relative error, 3.1e-9
// `shifter` is 1.5 * 2^23 plus a small integer: adding it rounds to an integer, to nearest even.
template <class D, class V, std::size_t kCount>
HWY_INLINE ExpParts<V, kCount> ReduceExp(D d, const Vectors<V, kCount>& x, V shifter) {
  namespace hn = hwy::HWY_NAMESPACE;
  ExpParts<V, kCount> e;
  Vectors<V, kCount> n, r, p;
  n.Each([&](auto i)
             HWY_ATTR { e.shifted.at[i] = Fma(d, x.at[i], hn::Set(d, 0x1.715476p0f), shifter); });
  n.Each([&](auto i) HWY_ATTR { n.at[i] = hn::Sub(e.shifted.at[i], shifter); });
  r.Each([&](auto i) HWY_ATTR { r.at[i] = Fma(d, n.at[i], hn::Set(d, -0x1.62e4p-1f), x.at[i]); });
  r.Each([&](auto i)
             HWY_ATTR { r.at[i] = Fma(d, n.at[i], hn::Set(d, -0x1.7f7d1cp-20f), r.at[i]); });
  p.Each([&](auto i) HWY_ATTR { p.at[i] = hn::Set(d, 0x1.6a23cep-10f); });
  Repeat<4>([&](auto degree) HWY_ATTR {
    constexpr float kCoefficients[] = {0x1.123a2p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f,
                                       0x1.fffffcp-2f};
    p.Each([&](auto i)
               HWY_ATTR { p.at[i] = Fma(d, p.at[i], r.at[i], hn::Set(d, kCoefficients[degree])); });
  });
  p.Each([&](auto i) HWY_ATTR { p.at[i] = Fma(d, hn::Mul(r.at[i], r.at[i]), p.at[i], r.at[i]); });
  p.Each([&](auto i) HWY_ATTR { e.power.at[i] = hn::Add(p.at[i], hn::Set(d, 1.0f)); });
  return e;
}

// e^x, at most 1.01 units in the last place from the true value (tests/nn/math_test.cc), for every
// float: subnormal results, 0 and infinity where they are due, NaN for NaN.
//   e^x = (e^r 2^(n/2)) 2^(n - n/2), rounded once in the last product
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // Beyond these bounds the result is infinity or zero; within them, 2^n is the product of two
  // normal powers of two.
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const V shifter = hn::Set(d, 0x1.8p23f);
  const ExpParts<V, 1> e = ReduceExp(d, Vectors<V, 1>(bounded), shifter);
  const auto exponent = hn::Sub(hn::BitCast(di, e.shifted.at[0]), hn::BitCast(di, shifter));
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(di, 127);
  const V scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  const V result = hn::Mul(hn::Mul(e.power.at[0], scale1), scale2);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// e^x for x <= 0 (a score minus the row's maximum), with a third fewer operations than Exp: Exp's
// value, but 0 if that is below 2^-126. NaN gives NaN; the result for x > 0 has no meaning.
template <class D, class V, std::size_t kCount>
HWY_INLINE Vectors<V, kCount> ExpNonPositive(D d, Vectors<V, kCount> x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // With the exponent's bias in the shifter, the low bits are the exponent field of 2^n.
  ExpParts<V, kCount> e = ReduceExp(d, x, hn::Set(d, 0x1.8p23f + 127.0f));
  x.Each([&](auto i) HWY_ATTR {
    const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, e.shifted.at[i])));
    e.power.at[i] = hn::Mul(e.power.at[i], scale);
  });
  x.Each([&](auto i) HWY_ATTR {
    const auto tiny = hn::Lt(x.at[i], hn::Set(d, -0x1.5d589ep6f));  // ln 2^-126, rounded up
    x.at[i] = hn::IfThenZeroElse(tiny, e.power.at[i]);
  });
  return x;
}
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ExpNonPositive(D d, V x) {
  return ExpNonPositive(d, Vectors<V, 1>(x)).at[0];
}

// 1 / (1 + e^-x), with each operation rounded once; 0 for x below -88.7.
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
