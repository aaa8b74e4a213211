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

#include "fp4lab/block/plan.h"
#include "fp4lab/dialect/block_tables.h"
#include "fp4lab/dialect/stages.h"

#include <hwy/highway.h>

#include "fp4lab/block/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
  WithKnown<BlockScale::kOneBlock>(dialect.block_scale, [&](auto formula) HWY_ATTR HWY_FLATTEN {
    Dialect d = dialect;
    d.block_scale = formula;
    const Level l = level;
    const float* HWY_RESTRICT amax = a.amax;
    float* HWY_RESTRICT t = a.scale_before;
    if (d.element == FormatId::kE2M1) {
      d.element = FormatId::kE2M1;
      for (std::size_t i = 0; i < n; ++i) t[i] = ScaleBefore(d, amax[i], l);
    } else {
      for (std::size_t i = 0; i < n; ++i) t[i] = ScaleBefore(d, amax[i], l);
    }
  });
}

// The bytes of E8M0 scales: the block scale's rule makes them from b or t.
HWY_INLINE void FindExponents(const Dialect& dialect, float raise, std::size_t n,
                              const BlockArrays& a) {
  WithKnown<ScaleRule::kTensor>(dialect.mx_rule, [&](auto rule) HWY_ATTR HWY_FLATTEN {
    Dialect d = dialect;
    d.scale_encoding = ScaleEncoding::kExponent;
    d.mx_rule = rule;
    std::uint8_t* HWY_RESTRICT byte = a.byte;
    for (std::size_t i = 0; i < n; ++i) {
      byte[i] = ScaleByteOf(d, a.amax[i], a.scale_before[i] * raise);
    }
  });
}

// SaturatingByte of what is encoded for `raise` times t; n whole vectors at least are written.
template <ScaleEncoding kEncoding>
HWY_INLINE void FindSaturatingBytes(const ElementConstants& constants, float raise, std::size_t n,
                                    const BlockArrays& a) {
  const DF d;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  const ElementConstants e = constants;
  HWY_ALIGN float encoded[hn::MaxLanes(d)];
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    for (std::size_t k = 0; k < hn::Lanes(d); ++k) {
      encoded[k] = ScaleToEncode(kEncoding, a.scale_before[i + k] * raise);
    }
    const VF t = hn::Load(d, encoded);
    const VF magnitude = RoundNearest(e, hn::Min(hn::Abs(t), hn::Set(d, e.max)));
    const VI sign =
        hn::And(hn::ShiftRight<31>(Bits(t)), hn::Set(di, static_cast<std::int32_t>(e.sign_code)));
    const VI code = hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(t)),
                                   hn::Set(di, static_cast<std::int32_t>(e.nan_code)),
                                   hn::Or(MagnitudeCode(e, magnitude), sign));
    hn::StoreU(hn::DemoteTo(d8, code), d8, a.byte + i);
  }
}

// The stored bytes for `raise` times t. scale: the constants of the scale's format.
HWY_INLINE void FindBytes(const Dialect& dialect, const ElementConstants& scale, float raise,
                          std::size_t n, const BlockArrays& a) {
  if (dialect.scale_encoding == ScaleEncoding::kExponent) {
    return FindExponents(dialect, raise, n, a);
  }
  WithConstant<ScaleEncoding::kHalfUpGgml>(
      dialect.scale_encoding, [&](auto encoding) HWY_ATTR HWY_FLATTEN {
        Dialect d = dialect;
        d.scale_encoding = encoding;
        constexpr bool kTorch = decltype(encoding)::value == ScaleEncoding::kClamp2m9;
        if ((!kTorch && !SaturatesScale(d.scale_encoding)) || scale.mantissa_bits == 0 ||
            (kTorch && d.scale != FormatId::kE4M3)) {
          for (std::size_t i = 0; i < n; ++i) {
            a.byte[i] = ScaleByteOf(d, a.amax[i], a.scale_before[i] * raise);
          }
          return;
        }
        FindSaturatingBytes<decltype(encoding)::value>(scale, raise, n, a);
        if (encoding == ScaleEncoding::kNearest && d.nan_scale < 0) return;
        if constexpr (kTorch) {  // TorchByte: NaN beyond 464, the middle of 448 and what would
                                 // follow
          for (std::size_t i = 0; i < n; ++i) {
            const float t = ScaleToEncode(ScaleEncoding::kClamp2m9, a.scale_before[i] * raise);
            const std::uint8_t byte = t <= 464.0f ? a.byte[i] : std::uint8_t{0x7F};
            a.byte[i] = ReplacedNan(d, byte);
          }
          return;
        }
        for (std::size_t i = 0; i < n; ++i) {
          a.byte[i] = ReplacedNan(d, StoredScale(d, a.scale_before[i] * raise, a.byte[i]));
        }
      });
}

// e from b, s and the byte.
HWY_INLINE void FindFactors(const Dialect& dialect, const Level& level, std::size_t n,
                            const BlockArrays& a) {
  WithKnown<Factor::kApproximate>(dialect.factor, [&](auto formula) HWY_ATTR HWY_FLATTEN {
    Dialect d = dialect;
    d.factor = formula;
    const Level l = level;
    float* HWY_RESTRICT factor = a.factor;
    for (std::size_t i = 0; i < n; ++i) {
      factor[i] = FactorOf(d, a.amax[i], a.scale[i], a.byte[i], l);
    }
  });
}

// Byte, s and e from b and `raise` times t: NumbersFrom of each block.
HWY_INLINE void FindNumbers(const Dialect& dialect, const Level& level, const ScaleTables& tables,
                            float raise, std::size_t n, const BlockArrays& a) {
  if (dialect.scale_encoding == ScaleEncoding::kBinary32) {
    for (std::size_t i = 0; i < n; ++i) {
      a.byte[i] = 0;
      a.scale[i] = a.scale_before[i] * raise;
    }
  } else {
    FindBytes(dialect, tables.constants, raise, n, a);
    for (std::size_t i = 0; i < n; ++i) a.scale[i] = tables.values[a.byte[i]];
  }
  FindFactors(dialect, level, n, a);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_DIALECT_BLOCK_STAGE_INL_H_
