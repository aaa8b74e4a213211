// The E8M0 scale bytes of any dialect for many blocks at once, in lanes that repeat the formulas of
// dialect/block_scale_rules.h, the definition.
#if defined(FP4LAB_QUANTIZE_EXPONENT_BYTES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_QUANTIZE_EXPONENT_BYTES_INL_H_
#undef FP4LAB_QUANTIZE_EXPONENT_BYTES_INL_H_
#else
#define FP4LAB_QUANTIZE_EXPONENT_BYTES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fp4lab/block/plan.h"
#include "fp4lab/dialect/exponent_bytes.h"
#include "fp4lab/dialect/stages.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/lanes-inl.h"
#include "fp4lab/quantize/kernels/block_arrays-inl.h"
#include "fp4lab/quantize/kernels/element_stage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// EncodedExponent of OCP's rules. b >= 0 or NaN.
template <BlockScale kRule>
HWY_INLINE VI MicroscalingByte(const Dialect& d, const ScaleConstants& k, VF b) {
  const DI di;
  VI byte = kRule == BlockScale::kRceil ? RceilByte(k, b) : ExponentByte(k, b);
  if (d.inf_scale != InfScale::kRule) {
    const std::int32_t added =
        kRule == BlockScale::kEven ? static_cast<std::int32_t>(k.rounding) : 0;
    const auto reaches_inf = hn::Gt(Bits(b), hn::Set(di, kInfBits - 1 - added));
    const int number = d.inf_scale == InfScale::kNan ? 255 : 255 - k.max_exponent;
    byte = hn::IfThenElse(reaches_inf, hn::Set(di, number), byte);
  }
  return hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(b)), hn::Set(di, 255), byte);
}

// By exponent field, for the floats from 2^e to 2^(e + 1):
struct LogarithmTables {
  std::int32_t above[256] = {};       // how many floats above 2^e have the logarithm e
  std::int32_t below_next[256] = {};  // how many below 2^(e + 1) have the logarithm e + 1
  std::int32_t last_down[256] = {};   // the greatest fraction whose logarithm rounds to e
  // How many floats from 2^e on CeilNaturalLog2 takes to e, and how many below 2^(e + 1) to e + 2.
  std::int32_t at_most[256] = {}, over_next[256] = {};
};
constexpr LogarithmTables TablesOfLogarithms() {
  LogarithmTables t;
  for (int field = 1; field < 255; ++field) {
    const int e = field - 127;
    const auto number = [&](int m) {
      return std::bit_cast<float>(static_cast<std::uint32_t>((field << 23) + m));
    };
    t.above[field] = static_cast<std::int32_t>(FloatsWithLogarithm(e, 23, e < 0));
    t.below_next[field] = static_cast<std::int32_t>(FloatsWithLogarithm(e + 1, 24, e + 1 > 0));
    int down = 0x3504F3 - 64, up = down + 128;  // below and above sqrt 2
    while (up - down > 1) {
      const int m = (down + up) / 2;
      (RoundLog2(number(m)) == e ? down : up) = m;
    }
    t.last_down[field] = down;
    while (CeilNaturalLog2(number(t.at_most[field])) == e) ++t.at_most[field];
    while (CeilNaturalLog2(number(0x7FFFFF - t.over_next[field])) == e + 2) ++t.over_next[field];
  }
  return t;
}
inline constexpr LogarithmTables kLogarithms = TablesOfLogarithms();

// Exponent fields of numbers that are zero or normal; a zero has the field 0. `plus`: 1 where the
// mask is set.
HWY_INLINE VI FieldOf(VF a) { return hn::ShiftRight<23>(Bits(a)); }
HWY_INLINE VI FractionOf(VF a) { return hn::And(Bits(a), hn::Set(DI(), 0x7FFFFF)); }
HWY_INLINE VI Plus(VI field, hn::Mask<DI> plus) {
  return hn::Sub(field, hn::VecFromMask(DI(), plus));
}
// 127 + FloorLog2, CeilLog2, ExactCeilLog2, RoundLog2 and CeilNaturalLog2.
HWY_INLINE VI FloorLog2Field(VF a) {
  const DI di;
  const VI field = FieldOf(a);
  const VI left = hn::Sub(hn::Set(di, 0x800000), FractionOf(a));  // to 2^(e + 1)
  return Plus(field, hn::Not(hn::Gt(left, hn::GatherIndex(di, kLogarithms.below_next, field))));
}
HWY_INLINE VI CeilLog2Field(VF a) {
  const VI field = FieldOf(a);
  return Plus(field, hn::Gt(FractionOf(a), hn::GatherIndex(DI(), kLogarithms.above, field)));
}
HWY_INLINE VI ExactCeilLog2Field(VF a) {
  return Plus(FieldOf(a), hn::Gt(FractionOf(a), hn::Zero(DI())));
}
HWY_INLINE VI RoundLog2Field(VF a) {
  const VI field = FieldOf(a);
  return Plus(field, hn::Gt(FractionOf(a), hn::GatherIndex(DI(), kLogarithms.last_down, field)));
}
HWY_INLINE VI CeilNaturalLog2Field(VF a) {
  const DI di;
  const VI field = FieldOf(a), m = FractionOf(a);
  const VI over_next = hn::GatherIndex(di, kLogarithms.over_next, field);
  const VI next = Plus(field, hn::Not(hn::Lt(m, hn::GatherIndex(di, kLogarithms.at_most, field))));
  return Plus(next, hn::Gt(m, hn::Sub(hn::Set(di, 0x7FFFFF), over_next)));
}

struct NoLanes {};  // of a rule that is computed block by block, by its definition

// BlockScaleExponent for b and t that are zero or normal numbers, or NoLanes.
template <BlockScale kScale>
HWY_INLINE auto NormalExponentByte(const ScaleConstants& k, float q, VF b, VF t) {
  const DF df;
  const DI di;
  const auto is_zero = [&](VF a) HWY_ATTR { return hn::Eq(Bits(a), hn::Zero(di)); };
  const auto set = [&](int number) HWY_ATTR { return hn::Set(di, number); };
  // The byte of the exponent `field` - 127 - emax, at least `least`.
  const auto below = [&](VI field, int least) HWY_ATTR {
    return hn::Max(hn::Sub(field, set(k.max_exponent)), set(least));
  };
  [[maybe_unused]] constexpr int kQuarkZero = 127 - 23;  // the byte of a QuarkScale of 2^-23
  [[maybe_unused]] const VF rounded = Float(hn::Add(Bits(b), set(static_cast<int>(k.rounding))));
  if constexpr (kScale == BlockScale::kFloorLog2) {
    return hn::IfThenZeroElse(is_zero(b), below(FloorLog2Field(b), 0));
  } else if constexpr (kScale == BlockScale::kFloorLog2Clamped) {
    return hn::IfThenElse(is_zero(b), set(128 - k.max_exponent), below(FloorLog2Field(b), 0));
  } else if constexpr (kScale == BlockScale::kQuarkFloor) {
    return hn::IfThenElse(is_zero(b), set(kQuarkZero), below(FloorLog2Field(b), 1));
  } else if constexpr (kScale == BlockScale::kQuarkCeil) {
    return hn::IfThenElse(is_zero(b), set(kQuarkZero), below(CeilLog2Field(b), 1));
  } else if constexpr (kScale == BlockScale::kQuarkEven) {
    return below(FieldOf(rounded), 1);
  } else if constexpr (kScale == BlockScale::kEvenQuarter) {
    return below(FieldOf(rounded), 0);
  } else if constexpr (kScale == BlockScale::kCeilLog2Least) {
    return hn::IfThenZeroElse(is_zero(t), CeilLog2Field(t));
  } else if constexpr (kScale == BlockScale::kCeilLog2Clamped) {
    return hn::IfThenElse(is_zero(b), set(128), hn::IfThenZeroElse(is_zero(t), CeilLog2Field(t)));
  } else if constexpr (kScale == BlockScale::kCeilLog2Wrapped) {
    return hn::IfThenElse(is_zero(t), set(127), ExactCeilLog2Field(t));
  } else if constexpr (kScale == BlockScale::kRoundLog2) {
    return hn::IfThenElse(is_zero(t), set(127), RoundLog2Field(t));
  } else if constexpr (kScale == BlockScale::kRceilApproximate) {
    return hn::Min(ExactCeilLog2Field(t), set(254));
  } else if constexpr (kScale == BlockScale::kCeilQuotientFloored) {
    return hn::Max(hn::Min(ExactCeilLog2Field(t), set(254)), set(1));
  } else if constexpr (kScale == BlockScale::kInverseOfPower) {
    return hn::Sub(set(254), FieldOf(t));
  } else if constexpr (kScale == BlockScale::kCeilLog2) {
    const auto tiny = hn::RebindMask(di, hn::Lt(t, hn::Set(df, kTiny)));
    return hn::IfThenElse(tiny, set(127), CeilNaturalLog2Field(t));
  } else if constexpr (kScale == BlockScale::kOverflowAware) {
    const auto tiny = hn::Lt(hn::Div(b, hn::Set(df, q)), hn::Set(df, kTiny));
    return hn::IfThenElse(hn::RebindMask(di, tiny), set(127), FieldOf(Bf16Lanes(t)));
  } else if constexpr (kScale == BlockScale::kFloorLog2Quotient ||
                       kScale == BlockScale::kNearestLog2) {
    return FieldOf(t);  // FloorByte(t, 0)
  } else {
    return NoLanes();
  }
}
// Whether a is zero or normal and a number stays finite with `added` added to its bits.
HWY_INLINE hn::Mask<DI> IsZeroOrNormal(VF a, std::int32_t added) {
  const DI di;
  const auto normal = hn::And(hn::Gt(Bits(a), hn::Set(di, 0x007FFFFF)),
                              hn::Lt(Bits(a), hn::Set(di, kInfBits - added)));
  return hn::Or(normal, hn::Eq(Bits(a), hn::Zero(di)));
}

// One vector of bytes by their definition. A function of its own, or each formula's loop would hold
// a copy of EncodedExponent: half of this file's code.
HWY_NOINLINE void BytesByDefinition(const Dialect& d, float raise, const float* amax,
                                    const float* scale_before, std::int32_t* bytes) {
  for (std::size_t i = 0; i < hn::Lanes(DI()); ++i) {
    bytes[i] = EncodedExponent(d, amax[i], scale_before[i] * raise);
  }
}

// Finds the bytes of E8M0 scales by the block scale's rule, from b or from `raise` times t. Writes
// whole vectors.
HWY_INLINE void FindExponents(const Dialect& dialect, const ScaleConstants& constants, float raise,
                              std::size_t n, const BlockArrays& a) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  const Dialect d = dialect;
  const ScaleConstants k = constants;
  const float q = TargetOf(d);
  const auto added = static_cast<std::int32_t>(k.rounding);
  const auto find = [&](const auto& bytes_of) HWY_ATTR {
    for (std::size_t i = 0; i < n; i += hn::Lanes(df)) {
      const VF b = hn::LoadU(df, a.amax + i);
      const VF t = hn::Mul(hn::LoadU(df, a.scale_before + i), hn::Set(df, raise));
      hn::StoreU(hn::DemoteTo(d8, bytes_of(i, b, t)), d8, a.byte + i);
    }
  };
  const auto by_definition = [&](std::size_t i, VF, VF) HWY_ATTR {
    HWY_ALIGN std::int32_t bytes[hn::MaxLanes(di)];
    BytesByDefinition(d, raise, a.amax + i, a.scale_before + i, bytes);
    return hn::Load(di, bytes);
  };
  WithConstant<LastOf(BlockScale{})>(d.block_scale, [&](auto formula) HWY_ATTR {
    constexpr BlockScale kScale = decltype(formula)::value;
    if constexpr (IsMicroscaling(kScale)) {
      find([&](std::size_t, VF b, VF) HWY_ATTR { return MicroscalingByte<kScale>(d, k, b); });
    } else if constexpr (!Formula<kScale>::kIsExponent) {
      return;
    } else if constexpr (std::is_same_v<decltype(NormalExponentByte<kScale>(k, q, VF(), VF())),
                                        NoLanes>) {
      find(by_definition);
    } else {
      find([&](std::size_t i, VF b, VF t) HWY_ATTR {
        const bool normal =
            hn::AllTrue(di, hn::And(IsZeroOrNormal(b, added), IsZeroOrNormal(t, 0)));
        return HWY_LIKELY(normal) ? NormalExponentByte<kScale>(k, q, b, t) : by_definition(i, b, t);
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_EXPONENT_BYTES_INL_H_
