// The block stage of any dialect for many blocks at once: from their maxima to scale bytes, scales
// and factors. Each loop calls one stage's constexpr function with its enumerator known to the
// compiler, so that no loop branches on it; the bytes are made in lanes, which repeat the functions
// of dialect/scale_stage.h that they name.
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
#include "fp4lab/dialect/element_stage-inl.h"

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

// ---- E8M0 bytes
// -----------------------------------------------------------------------------------

// EncodedExponent of BlockScale::kMicroscaling. b >= 0 or NaN.
template <ScaleRule kRule>
HWY_INLINE VI MicroscalingByte(const Dialect& d, const ScaleConstants& k, VF b) {
  const DI di;
  VI byte = kRule == ScaleRule::kRceil ? RceilByte(k, b) : ExponentByte(k, b);
  if (d.inf_scale != InfScale::kRule) {
    const std::int32_t added =
        kRule == ScaleRule::kEven ? static_cast<std::int32_t>(k.rounding) : 0;
    const auto reaches_inf = hn::Gt(Bits(b), hn::Set(di, kInfBits - 1 - added));
    const int number = d.inf_scale == InfScale::kNan ? 255 : 255 - k.max_exponent;
    byte = hn::IfThenElse(reaches_inf, hn::Set(di, number), byte);
  }
  return hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(b)), hn::Set(di, 255), byte);
}

// FloatsWithLogarithm of every exponent field: below 2^(e + 1), and above 2^e.
struct LogarithmTables {
  std::int32_t below_next[256] = {}, above[256] = {};
};
constexpr LogarithmTables TablesOfLogarithms() {
  LogarithmTables t;
  for (int field = 0; field < 256; ++field) {
    const int e = field - 127;
    t.below_next[field] = static_cast<std::int32_t>(FloatsWithLogarithm(e + 1, 24, e + 1 > 0));
    t.above[field] = static_cast<std::int32_t>(FloatsWithLogarithm(e, 23, e < 0));
  }
  return t;
}
inline constexpr LogarithmTables kLogarithms = TablesOfLogarithms();

// BlockScaleExponent for b and t that are zero or normal numbers.
template <BlockScale kScale>
HWY_INLINE VI NormalExponentByte(const ScaleConstants& k, float q, VF b, VF t) {
  const DF df;
  const DI di;
  const VI zero = hn::Zero(di), one = hn::Set(di, 1), fraction = hn::Set(di, 0x7FFFFF);
  if constexpr (kScale == BlockScale::kFloorLog2) {
    const VI field = hn::ShiftRight<23>(Bits(b));
    const VI left = hn::Sub(hn::Set(di, 0x800000), hn::And(Bits(b), fraction));  // to 2^(e + 1)
    const VI rounds_up = hn::GatherIndex(di, kLogarithms.below_next, field);
    const VI next = hn::Add(field, hn::IfThenZeroElse(hn::Gt(left, rounds_up), one));
    const VI byte = hn::Max(hn::Sub(next, hn::Set(di, k.max_exponent)), zero);
    return hn::IfThenZeroElse(hn::Eq(Bits(b), zero), hn::Min(byte, hn::Set(di, 255)));
  }
  if constexpr (kScale == BlockScale::kCeilLog2) {
    const VI field = hn::ShiftRight<23>(Bits(t));
    const VI rounds_down = hn::GatherIndex(di, kLogarithms.above, field);
    const auto higher = hn::Gt(hn::And(Bits(t), fraction), rounds_down);
    const VI byte = hn::Add(field, hn::IfThenElseZero(higher, one));
    return hn::IfThenElse(hn::Eq(Bits(t), zero), hn::Set(di, 127), byte);
  }
  if constexpr (kScale == BlockScale::kOverflowAware) {
    const auto tiny = hn::Lt(hn::Div(b, hn::Set(df, q)), hn::Set(df, kTiny));
    return hn::IfThenElse(hn::RebindMask(di, tiny), hn::Set(di, 127),
                          hn::ShiftRight<23>(Bits(Bf16Lanes(t))));
  }
  return hn::ShiftRight<23>(Bits(t));  // FloorByte(t, 0)
}
constexpr bool HasNormalExponentByte(BlockScale scale) {
  return scale == BlockScale::kFloorLog2 || scale == BlockScale::kCeilLog2 ||
         scale == BlockScale::kOverflowAware || scale == BlockScale::kFloorLog2Quotient ||
         scale == BlockScale::kNearestLog2;
}
HWY_INLINE hn::Mask<DI> IsZeroOrNormal(VF a) {
  const DI di;
  const auto normal =
      hn::And(hn::Gt(Bits(a), hn::Set(di, 0x007FFFFF)), hn::Lt(Bits(a), hn::Set(di, kInfBits)));
  return hn::Or(normal, hn::Eq(Bits(a), hn::Zero(di)));
}

// The bytes of E8M0 scales: the block scale's rule makes them from b or t. Whole vectors are
// written, as everywhere below.
HWY_INLINE void FindExponents(const Dialect& dialect, const ScaleConstants& constants, float raise,
                              std::size_t n, const BlockArrays& a) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  const Dialect d = dialect;
  const ScaleConstants k = constants;
  const float q = TargetOf(d);
  const auto find = [&](const auto& bytes_of) HWY_ATTR {
    for (std::size_t i = 0; i < n; i += hn::Lanes(df)) {
      const VF b = hn::LoadU(df, a.amax + i);
      const VF t = hn::Mul(hn::LoadU(df, a.scale_before + i), hn::Set(df, raise));
      hn::StoreU(hn::DemoteTo(d8, bytes_of(i, b, t)), d8, a.byte + i);
    }
  };
  const auto by_definition = [&](std::size_t i, VF, VF) HWY_ATTR {
    HWY_ALIGN std::int32_t bytes[hn::MaxLanes(di)];
    for (std::size_t j = 0; j < hn::Lanes(di); ++j) {
      bytes[j] = EncodedExponent(d, a.amax[i + j], a.scale_before[i + j] * raise);
    }
    return hn::Load(di, bytes);
  };
  bool done = false;
  if (d.block_scale == BlockScale::kMicroscaling) {
    done = WithConstant<ScaleRule::kTensor>(d.mx_rule, [&](auto rule) HWY_ATTR HWY_FLATTEN {
      constexpr ScaleRule kRule = decltype(rule)::value;
      if constexpr (kRule == ScaleRule::kNvfp4 || kRule == ScaleRule::kTensor) {
        find(by_definition);
      } else {
        find([&](std::size_t, VF b, VF) HWY_ATTR { return MicroscalingByte<kRule>(d, k, b); });
      }
    });
  } else {
    done =
        WithConstant<BlockScale::kOneBlock>(d.block_scale, [&](auto formula) HWY_ATTR HWY_FLATTEN {
          constexpr BlockScale kScale = decltype(formula)::value;
          find([&](std::size_t i, VF b, VF t) HWY_ATTR {
            if constexpr (HasNormalExponentByte(kScale)) {
              if (HWY_LIKELY(hn::AllTrue(di, hn::And(IsZeroOrNormal(b), IsZeroOrNormal(t))))) {
                return NormalExponentByte<kScale>(k, q, b, t);
              }
            }
            return by_definition(i, b, t);
          });
        });
  }
  if (!done) find(by_definition);
}

// ---- Bytes of other scales
// ------------------------------------------------------------------------

// ScaleToEncode.
template <ScaleEncoding kEncoding>
HWY_INLINE VF ScaleToEncodeLanes(VF t) {
  const DF d;
  const auto at_least = [&](VF x, float least) HWY_ATTR {
    return hn::IfThenElse(hn::Lt(x, hn::Set(d, least)), hn::Set(d, least), x);
  };
  const VF one = hn::Set(d, 1.0f);
  if constexpr (kEncoding == ScaleEncoding::kClamp2m6) return at_least(t, 0x1p-6f);
  if constexpr (kEncoding == ScaleEncoding::kClamp2m9) {
    return at_least(hn::IfThenElse(hn::Eq(t, hn::Zero(d)), one, t), 0x1p-9f);
  }
  if constexpr (kEncoding == ScaleEncoding::kOneWhereTiny) {
    return hn::IfThenElse(hn::Lt(t, hn::Set(d, kTiny)), one, t);
  }
  return t;
}

// EncodedScale for `raise` times t, by a cast that saturates or is torch's to E4M3.
template <ScaleEncoding kEncoding>
HWY_INLINE void FindFractionBytes(const Dialect& d, const ElementConstants& constants, float raise,
                                  std::size_t n, const BlockArrays& a) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  const ElementConstants e = constants;
  // StoredScale asks of a byte of 0 only whether t is positive.
  const VI for_positive = hn::Set(di, StoredScale(d, 1.0f, 0));
  const VI for_zero = hn::Set(di, StoredScale(d, 0.0f, 0));
  for (std::size_t i = 0; i < n; i += hn::Lanes(df)) {
    const VF t = hn::Mul(hn::LoadU(df, a.scale_before + i), hn::Set(df, raise));
    const VF encoded = ScaleToEncodeLanes<kEncoding>(t);
    const VI magnitude = NearestCode(e, hn::Min(hn::Abs(encoded), hn::Set(df, e.max)));
    const VI sign = hn::And(hn::ShiftRight<31>(Bits(encoded)),
                            hn::Set(di, static_cast<std::int32_t>(e.sign_code)));
    VI code =
        hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(encoded)),
                       hn::Set(di, static_cast<std::int32_t>(e.nan_code)), hn::Or(magnitude, sign));
    if constexpr (kEncoding == ScaleEncoding::kClamp2m9) {
      // NaN beyond 464, the middle of 448 and what would follow.
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
    WithConstant<ScaleEncoding::kHalfUpGgml>(
        dialect.scale_encoding, [&](auto encoding) HWY_ATTR HWY_FLATTEN {
          Dialect d = dialect;
          d.scale_encoding = encoding;
          constexpr bool kTorch = decltype(encoding)::value == ScaleEncoding::kClamp2m9;
          const bool in_lanes =
              kTorch ? d.scale == FormatId::kE4M3
                     : SaturatesScale(d.scale_encoding) && tables.constants.mantissa_bits != 0;
          if (in_lanes) {
            return FindFractionBytes<decltype(encoding)::value>(d, tables.constants, raise, n, a);
          }
          for (std::size_t i = 0; i < n; ++i) {
            a.byte[i] = EncodedScale(d, a.scale_before[i] * raise);
          }
        });
  }
  if (dialect.nan_scale < 0) return;
  for (std::size_t i = 0; i < n; ++i) a.byte[i] = ReplacedNan(dialect, a.byte[i]);
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
    FindBytes(dialect, tables, raise, n, a);
    for (std::size_t i = 0; i < n; ++i) a.scale[i] = tables.values[a.byte[i]];
  }
  FindFactors(dialect, level, n, a);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_DIALECT_BLOCK_STAGE_INL_H_
