// Loops whose indices are constants.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_REPEAT_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_TENSOR_REPEAT_INL_H_
#undef FP4LAB_TENSOR_REPEAT_INL_H_
#else
#define FP4LAB_TENSOR_REPEAT_INL_H_
#endif

#include <cstddef>
#include <type_traits>
#include <utility>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// Calls f(0), ..., f(kCount - 1) with indices that are constants: arrays indexed by them stay in
// registers.
template <class F, std::size_t... kIndices>
HWY_INLINE void RepeatOver([[maybe_unused]] F f, std::index_sequence<kIndices...>) {
  (f(std::integral_constant<std::size_t, kIndices>()), ...);
}
template <std::size_t kCount, class F>
HWY_INLINE void Repeat(F f) {
  RepeatOver(f, std::make_index_sequence<kCount>());
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_REPEAT_INL_H_
