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

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// fl(a * b + c), rounded once (IEEE 754 fusedMultiplyAdd), lane by lane. hn::MulAdd alone does not
// say so: it rounds twice on targets that lack the instruction (SSE2 to SSE4, scalar).
#if HWY_NATIVE_FMA
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Fma(D /*d*/, V a, V b, V c) {
  return hwy::HWY_NAMESPACE::MulAdd(a, b, c);
}
#else
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Fma(D d, V a, V b, V c) {
  namespace hn = hwy::HWY_NAMESPACE;
  using T = hn::TFromD<D>;
  HWY_ALIGN T lanes_a[hn::MaxLanes(d)];
  HWY_ALIGN T lanes_b[hn::MaxLanes(d)];
  HWY_ALIGN T lanes_c[hn::MaxLanes(d)];
  hn::Store(a, d, lanes_a);
  hn::Store(b, d, lanes_b);
  hn::Store(c, d, lanes_c);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    lanes_c[i] = std::fma(lanes_a[i], lanes_b[i], lanes_c[i]);
  }
  return hn::Load(d, lanes_c);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BASE_FMA_INL_H_
