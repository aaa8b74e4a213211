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

// For every exponent field: FloatsWithLogarithm below 2^(e + 1); the number of floats from 2^e on
// that CeilNaturalLog2 takes to e, and of floats below 2^(e + 1) that it takes to e + 2.
struct LogarithmTables {
  std::int32_t below_next[256] = {}, at_most[256] = {}, over_next[256] = {};
};
constexpr LogarithmTables TablesOfLogarithms() {
  LogarithmTables t;
  for (int field = 1; field < 255; ++field) {
    const int e = field - 127;
    const auto ceil = [&](int m) {
      return CeilNaturalLog2(std::bit_cast<float>(static_cast<std::uint32_t>((field << 23) + m)));
    };
    t.below_next[field] = static_cast<std::int32_t>(FloatsWithLogarithm(e + 1, 24, e + 1 > 0));
    while (ceil(t.at_most[field]) == e) ++t.at_most[field];
    while (ceil(0x7FFFFF - t.over_next[field]) == e + 2) ++t.over_next[field];
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
    const VI field = hn::ShiftRight<23>(Bits(t)), m = hn::And(Bits(t), fraction);
    const VI at_most = hn::GatherIndex(di, kLogarithms.at_most, field);
    const VI over_next = hn::GatherIndex(di, kLogarithms.over_next, field);
    const VI next = hn::Add(field, hn::IfThenZeroElse(hn::Lt(m, at_most), one));
    const auto over = hn::Gt(m, hn::Sub(fraction, over_next));
    const VI byte = hn::Add(next, hn::IfThenElseZero(over, one));
    const auto tiny = hn::RebindMask(di, hn::Lt(t, hn::Set(df, kTiny)));
    return hn::IfThenElse(tiny, hn::Set(di, 127), byte);
  }
  if constexpr (kScale == BlockScale::kOverflowAware) {
    const auto tiny = hn::Lt(hn::Div(b, hn::Set(df, q)), hn::Set(df, kTiny));
    return hn::IfThenElse(hn::RebindMask(di, tiny), hn::Set(di, 127),
                          hn::ShiftRight<23>(Bits(Bf16Lanes(t))));
  }
  return hn::ShiftRight<23>(Bits(t));  // FloorByte(t, 0)
}
// Whether NormalExponentByte has the formula; others are computed block by block by their
// definition.
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
  bool done = false;
  WithConstant<LastOf(BlockScale{})>(d.block_scale, [&](auto formula) HWY_ATTR {
    constexpr BlockScale kScale = decltype(formula)::value;
    if constexpr (IsMicroscaling(kScale)) {
      find([&](std::size_t, VF b, VF) HWY_ATTR { return MicroscalingByte<kScale>(d, k, b); });
      done = true;
    } else if constexpr (HasNormalExponentByte(kScale)) {
      find([&](std::size_t i, VF b, VF t) HWY_ATTR {
        const bool normal = hn::AllTrue(di, hn::And(IsZeroOrNormal(b), IsZeroOrNormal(t)));
        return HWY_LIKELY(normal) ? NormalExponentByte<kScale>(k, q, b, t) : by_definition(i, b, t);
      });
      done = true;
    }
  });
  if (!done) find(by_definition);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_EXPONENT_BYTES_INL_H_
