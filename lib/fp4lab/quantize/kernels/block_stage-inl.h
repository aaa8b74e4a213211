// The block stage of any dialect for many blocks at once: from block maxima to scale bytes, scales
// and factors. Each loop calls one stage's constexpr function with its enumerator as a compile-time
// constant, so that no loop branches on it. Bytes are computed in lanes, by functions that repeat
// those of dialect/scale_encodings.h.
#if defined(FP4LAB_QUANTIZE_BLOCK_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef FP4LAB_QUANTIZE_BLOCK_STAGE_INL_H_
#undef FP4LAB_QUANTIZE_BLOCK_STAGE_INL_H_
#else
#define FP4LAB_QUANTIZE_BLOCK_STAGE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "fp4lab/block/plan.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/kernels/block_tables.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/lanes-inl.h"
#include "fp4lab/quantize/kernels/block_arrays-inl.h"
#include "fp4lab/quantize/kernels/element_stage-inl.h"
#include "fp4lab/quantize/kernels/exponent_bytes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// t from b.
HWY_INLINE void FindScalesBefore(const Dialect& dialect, const TensorScale& tensor, std::size_t n,
                                 const BlockArrays& a) {
  WithKnown<BlockScale::kOneBlock>(dialect.block_scale, [&](auto formula) HWY_ATTR HWY_FLATTEN {
    Dialect d = dialect;
    d.block_scale = formula;
    const TensorScale l = tensor;
    const float* HWY_RESTRICT amax = a.amax;
    float* HWY_RESTRICT t = a.scale_before;
    if (d.element == FormatId::kE2M1) {
      d.element = FormatId::kE2M1;  // a compile-time constant in this loop
      for (std::size_t i = 0; i < n; ++i) t[i] = ScaleBefore(d, amax[i], l);
    } else {
      for (std::size_t i = 0; i < n; ++i) t[i] = ScaleBefore(d, amax[i], l);
    }
  });
}

// The numbers that a vector of scales encodes, as Formula<kEncoding>::Encoded has them for one.
template <ScaleEncoding kEncoding>
HWY_INLINE VF EncodedLanes(VF t) {
  const DF d;
  const auto at_least = [&](VF x, float least) HWY_ATTR {
    return hn::IfThenElse(hn::Lt(x, hn::Set(d, least)), hn::Set(d, least), x);
  };
  const VF one = hn::Set(d, 1.0f);
  if constexpr (kEncoding == ScaleEncoding::kClamp2m6) {
    return at_least(t, 0x1p-6f);
  } else if constexpr (kEncoding == ScaleEncoding::kClamp2m9) {
    return at_least(t, 0x1p-9f);
  } else if constexpr (kEncoding == ScaleEncoding::kOneClamp2m9) {
    return at_least(hn::IfThenElse(hn::Eq(t, hn::Zero(d)), one, t), 0x1p-9f);
  } else if constexpr (kEncoding == ScaleEncoding::kOneOrNan) {
    return hn::IfThenElse(hn::Eq(t, hn::Zero(d)), one, t);
  } else if constexpr (kEncoding == ScaleEncoding::kOneWhereTiny) {
    return hn::IfThenElse(hn::Lt(t, hn::Set(d, kTiny)), one, t);
  } else {
    static_assert(std::is_base_of_v<EncodesT, Formula<kEncoding>>, "what lanes encode");
    return t;
  }
}

// EncodedScale of `raise` times t, for encodings with a saturating cast or torch's cast to E4M3.
template <ScaleEncoding kEncoding>
HWY_INLINE void FindFractionBytes(const Dialect& d, const ElementConstants& constants, float raise,
                                  std::size_t n, const BlockArrays& a) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  const ElementConstants e = constants;
  const VI for_positive = hn::Set(di, Formula<kEncoding>::ForZero(d.scale, 1.0f));
  const VI for_zero = hn::Set(di, Formula<kEncoding>::ForZero(d.scale, 0.0f));
  for (std::size_t i = 0; i < n; i += hn::Lanes(df)) {
    const VF t = hn::Mul(hn::LoadU(df, a.scale_before + i), hn::Set(df, raise));
    const VF encoded = EncodedLanes<kEncoding>(t);
    const VI magnitude = NearestCode(e, hn::Min(hn::Abs(encoded), hn::Set(df, e.max)));
    const VI sign = hn::And(hn::ShiftRight<31>(Bits(encoded)),
                            hn::Set(di, static_cast<std::int32_t>(e.sign_code)));
    VI code =
        hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(encoded)),
                       hn::Set(di, static_cast<std::int32_t>(e.nan_code)), hn::Or(magnitude, sign));
    if constexpr (kEncoding == ScaleEncoding::kOneOrNan) {
      // Beyond 464, half a step above 448, torch's cast gives NaN.
      const auto number = hn::Le(encoded, hn::Set(df, 464.0f));
      code = hn::IfThenElse(hn::RebindMask(di, number), code, hn::Set(di, 0x7F));
    } else {
      const auto positive = hn::RebindMask(di, hn::Gt(t, hn::Zero(df)));
      code = hn::IfThenElse(hn::Eq(code, hn::Zero(di)),
                            hn::IfThenElse(positive, for_positive, for_zero), code);
    }
    hn::StoreU(hn::DemoteTo(d8, code), d8, a.byte + i);
  }
}

// The stored bytes for `raise` times t.
HWY_INLINE void FindBytes(const Dialect& dialect, const ScaleTables& tables, float raise,
                          std::size_t n, const BlockArrays& a) {
  if (dialect.scale_encoding == ScaleEncoding::kExponent) {
    FindExponents(dialect, tables.exponent, raise, n, a);
  } else {
    WithConstant<LastOf(ScaleEncoding{})>(
        dialect.scale_encoding, [&](auto encoding) HWY_ATTR HWY_FLATTEN {
          Dialect d = dialect;
          d.scale_encoding = encoding;
          constexpr bool kTorch = decltype(encoding)::value == ScaleEncoding::kOneOrNan;
          const bool in_lanes = kTorch ? d.scale == FormatId::kE4M3
                                       : Formula<decltype(encoding)::value>::kSaturates &&
                                             tables.constants.mantissa_bits != 0;
          if (in_lanes) {
            return FindFractionBytes<decltype(encoding)::value>(d, tables.constants, raise, n, a);
          }
          for (std::size_t i = 0; i < n; ++i) {
            a.byte[i] = EncodedScale(d, a.scale_before[i] * raise);
          }
        });
  }
  if (dialect.nan_scale < 0) return;
  for (std::size_t i = 0; i < n; ++i) a.byte[i] = tables.stored[a.byte[i]];
}

// e from b, s and the byte.
HWY_INLINE void FindFactors(const Dialect& dialect, const TensorScale& tensor, std::size_t n,
                            const BlockArrays& a) {
  WithKnown<LastOf(Factor{})>(dialect.factor, [&](auto formula) HWY_ATTR HWY_FLATTEN {
    Dialect d = dialect;
    d.factor = formula;
    const TensorScale l = tensor;
    float* HWY_RESTRICT factor = a.factor;
    for (std::size_t i = 0; i < n; ++i) {
      factor[i] = FactorOf(d, a.amax[i], a.scale[i], a.byte[i], l);
    }
  });
}

// Byte, s and e from b and `raise` times t: NumbersFrom of each block.
HWY_INLINE void FindNumbers(const Dialect& dialect, const TensorScale& tensor,
                            const ScaleTables& tables, float raise, std::size_t n,
                            const BlockArrays& a) {
  if (dialect.scale_encoding == ScaleEncoding::kBinary32) {
    for (std::size_t i = 0; i < n; ++i) {
      a.byte[i] = 0;
      a.scale[i] = a.scale_before[i] * raise;
    }
  } else {
    FindBytes(dialect, tables, raise, n, a);
    for (std::size_t i = 0; i < n; ++i) a.scale[i] = tables.values[a.byte[i]];
  }
  FindFactors(dialect, tensor, n, a);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_BLOCK_STAGE_INL_H_
