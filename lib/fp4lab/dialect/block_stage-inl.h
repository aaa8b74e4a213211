// The block stage of any dialect for many blocks at once: from their maxima to scale bytes, scales
// and factors. Each loop calls one stage's constexpr function with its enumerator known to the
// compiler, so that a formula stands once and no loop branches on it.
#if defined(FP4LAB_DIALECT_BLOCK_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef FP4LAB_DIALECT_BLOCK_STAGE_INL_H_
#undef FP4LAB_DIALECT_BLOCK_STAGE_INL_H_
#else
#define FP4LAB_DIALECT_BLOCK_STAGE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "fp4lab/dialect/stages.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// b, t, s and e (dialect/dialect.h) and the stored byte, one entry a block.
struct BlockArrays {
  float *amax = nullptr, *scale_before = nullptr, *scale = nullptr, *factor = nullptr;
  std::uint8_t* byte = nullptr;
};

// loop(constant) with `value`, one of the enumerators up to kLast, as a compile-time constant;
// false where it is beyond.
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
// The same for a loop that takes any value: one beyond kLast costs time only.
template <auto kLast, class Loop>
HWY_INLINE void WithKnown(decltype(kLast) value, const Loop& loop) {
  if (!WithConstant<kLast>(value, loop)) loop(value);
}

// t from b.
HWY_INLINE void FindScalesBefore(const Dialect& dialect, const Level& level, std::size_t n,
                                 const BlockArrays& a) {
  WithKnown<BlockScale::kOneBlock>(dialect.block_scale, [&](auto formula) HWY_ATTR {
    Dialect d = dialect;
    d.block_scale = formula;
    const Level l = level;
    for (std::size_t i = 0; i < n; ++i) a.scale_before[i] = ScaleBefore(d, a.amax[i], l);
  });
}

// The bytes of E8M0 scales: the block scale's rule makes them from b or t.
HWY_INLINE void FindExponents(const Dialect& dialect, float raise, std::size_t n,
                              const BlockArrays& a) {
  WithKnown<ScaleRule::kTensor>(dialect.mx_rule, [&](auto rule) HWY_ATTR {
    Dialect d = dialect;
    d.scale_encoding = ScaleEncoding::kExponent;
    d.mx_rule = rule;
    for (std::size_t i = 0; i < n; ++i) {
      a.byte[i] = ScaleByteOf(d, a.amax[i], a.scale_before[i] * raise);
    }
  });
}

HWY_INLINE void FindBytes(const Dialect& dialect, float raise, std::size_t n,
                          const BlockArrays& a) {
  if (dialect.scale_encoding == ScaleEncoding::kExponent) {
    return FindExponents(dialect, raise, n, a);
  }
  WithKnown<ScaleEncoding::kHalfUpGgml>(dialect.scale_encoding, [&](auto encoding) HWY_ATTR {
    Dialect d = dialect;
    d.scale_encoding = encoding;
    if (dialect.scale == FormatId::kE4M3) {
      d.scale = FormatId::kE4M3;
      for (std::size_t i = 0; i < n; ++i) {
        a.byte[i] = ScaleByteOf(d, a.amax[i], a.scale_before[i] * raise);
      }
    } else {
      for (std::size_t i = 0; i < n; ++i) {
        a.byte[i] = ScaleByteOf(d, a.amax[i], a.scale_before[i] * raise);
      }
    }
  });
}

// e from b, s and the byte.
HWY_INLINE void FindFactors(const Dialect& dialect, const Level& level, std::size_t n,
                            const BlockArrays& a) {
  WithKnown<Factor::kApproximate>(dialect.factor, [&](auto formula) HWY_ATTR {
    Dialect d = dialect;
    d.factor = formula;
    const Level l = level;
    for (std::size_t i = 0; i < n; ++i) {
      a.factor[i] = FactorOf(d, a.amax[i], a.scale[i], a.byte[i], l);
    }
  });
}

// Byte, s and e from b and `raise` times t: NumbersFrom of each block. scale_values: the value of
// every byte, ScaleValueOf.
HWY_INLINE void FindNumbers(const Dialect& dialect, const Level& level, const float* scale_values,
                            float raise, std::size_t n, const BlockArrays& a) {
  FindBytes(dialect, raise, n, a);
  for (std::size_t i = 0; i < n; ++i) a.scale[i] = scale_values[a.byte[i]];
  FindFactors(dialect, level, n, a);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_DIALECT_BLOCK_STAGE_INL_H_
