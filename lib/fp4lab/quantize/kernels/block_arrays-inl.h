// The arrays of the loops over blocks, and dispatch of an enumerator to a compile-time constant.
#if defined(FP4LAB_QUANTIZE_BLOCK_ARRAYS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_QUANTIZE_BLOCK_ARRAYS_INL_H_
#undef FP4LAB_QUANTIZE_BLOCK_ARRAYS_INL_H_
#else
#define FP4LAB_QUANTIZE_BLOCK_ARRAYS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// b, t, s and e (dialect/dialect.h) and the stored byte, one entry a block.
struct BlockArrays {
  float *amax = nullptr, *scale_before = nullptr, *scale = nullptr, *factor = nullptr;
  std::uint8_t* byte = nullptr;
};

// Calls loop(constant) with `value`, one of the enumerators up to kLast, as a compile-time
// constant. Returns false if `value` is beyond kLast.
template <class Enum, class Loop, std::size_t... kIndex>
HWY_INLINE bool WithConstant(Enum value, const Loop& loop, std::index_sequence<kIndex...>) {
  return ((static_cast<std::size_t>(value) == kIndex &&
           (loop(std::integral_constant<Enum, static_cast<Enum>(kIndex)>()), true)) ||
          ...);
}
template <auto kLast, class Loop>
HWY_INLINE bool WithConstant(decltype(kLast) value, const Loop& loop) {
  return WithConstant(value, loop, std::make_index_sequence<static_cast<std::size_t>(kLast) + 1>());
}
// The same for a loop that takes any value: a value beyond kLast is passed at run time, which is
// slower.
template <auto kLast, class Loop>
HWY_INLINE void WithKnown(decltype(kLast) value, const Loop& loop) {
  if (!WithConstant<kLast>(value, loop)) loop(value);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_BLOCK_ARRAYS_INL_H_
