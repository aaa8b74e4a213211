// The element stage of any dialect in lanes: scaled elements and their codes. Each function repeats
// a function of dialect/factors.h or dialect/element_roundings.h, its definition.
#if defined(FP4LAB_QUANTIZE_ELEMENT_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef FP4LAB_QUANTIZE_ELEMENT_STAGE_INL_H_
#undef FP4LAB_QUANTIZE_ELEMENT_STAGE_INL_H_
#else
#define FP4LAB_QUANTIZE_ELEMENT_STAGE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/block/plan.h"
#include "fp4lab/dialect/stages.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The numbers that all elements of a row share.
struct ElementRow {
  ElementConstants element;
  bool is_e2m1;
  const float* values;    // the value of every code
  std::size_t codes;      // number of codes
  float zero;             // added to v: -0 leaves a v of -0 as it is, +0 makes it +0
  std::int32_t nan_code;  // the code of a NaN v
  bool never_negative_zero;
  bool has_short_scales;  // scales have a few bits: they are not stored in binary32
  float decode;           // D
  float next;             // NextAfterLargest
};

// Correctly rounded division by a number c whose significand is not all ones, where nothing over-
// or underflows: a quotient within one unit in the last place and an exact remainder give the
// rounded quotient (Markstein, "Computation of elementary functions on the IBM RISC System/6000",
// 1990, theorem 8.1). For targets with a fused multiply-add (HWY_NATIVE_FMA).
struct DivisionByReciprocal {
  VF c, reciprocal;  // rounded
  HWY_INLINE explicit DivisionByReciprocal(VF c)
      : c(c), reciprocal(hn::Div(hn::Set(DF(), 1.0f), c)) {}
  HWY_INLINE DivisionByReciprocal(VF c, VF reciprocal) : c(c), reciprocal(reciprocal) {}
  HWY_INLINE VF operator()(VF a) const {
    const VF quotient = hn::Mul(a, reciprocal);
    return hn::MulAdd(hn::NegMulAdd(quotient, c, a), reciprocal, quotient);
  }
};

template <ElementScaling kScaling>
HWY_INLINE VF ScaledLanes(const ElementRow& row, VF x, VF e) {
  const DF d;
  if constexpr (kScaling == ElementScaling::kDivide) return hn::Div(x, e);
  if constexpr (kScaling == ElementScaling::kDivideOrZero) {
    return hn::IfThenZeroElse(hn::Eq(e, hn::Zero(d)), hn::Div(x, e));
  }
  if constexpr (kScaling == ElementScaling::kTwoSteps) {
    if (row.decode == 0.0f) return hn::Mul(hn::Zero(d), e);
    const VF v = hn::Mul(hn::Div(x, hn::Set(d, row.decode)), e);
    return hn::IfThenZeroElse(hn::Eq(e, hn::Zero(d)), v);
  }
  const VF v = hn::Mul(x, e);
  if constexpr (kScaling == ElementScaling::kZeroWhereZero) {
    return hn::IfThenZeroElse(hn::Eq(e, hn::Zero(d)), v);
  }
  if constexpr (kScaling ==
                ElementScaling::kFused) {  // a product of zero is +0, an underflow is not
    const auto zero = hn::Or(hn::Eq(x, hn::Zero(d)), hn::Eq(e, hn::Zero(d)));
    return hn::IfThenZeroElse(hn::And(zero, hn::Eq(v, hn::Zero(d))), v);
  }
  return v;
}

// RoundToBf16 for numbers; a NaN stays a NaN.
HWY_INLINE VF Bf16Lanes(VF v) {
  const DI di;
  const VI bits = Bits(v);
  const VI odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 1));
  const VI rounded = hn::And(hn::Add(bits, hn::Add(odd, hn::Set(di, 0x7FFF))),
                             hn::Set(di, static_cast<std::int32_t>(0xFFFF0000u)));
  return hn::IfThenElse(hn::IsNaN(v), v, Float(rounded));
}

// EncodeHalfAdded: floor(fl(a / step + 0.5)) steps, for a <= e.max.
HWY_INLINE VF RoundHalfAdded(const ElementConstants& e, VF a) {
  const DF d;
  const DI di;
  const VI exponent = hn::And(Bits(hn::Max(a, hn::Set(d, e.min_normal))), hn::Set(di, kInfBits));
  const VI shift = hn::Sub(hn::Set(di, (127 + e.mantissa_bits) << 23), exponent);
  const VF steps = Float(hn::Add(shift, hn::Set(di, 127 << 23)));  // 1 / step, a power of two
  const VF step = Float(hn::Sub(exponent, hn::Set(di, e.mantissa_bits << 23)));
  const VF sum = hn::Add(hn::Mul(a, steps), hn::Set(d, 0.5f));
  return hn::Mul(hn::ConvertTo(d, hn::ConvertTo(di, sum)), step);
}

// EncodeTransformerEngineStochastic for a <= e.max; `random` counts units of 2^-8.
HWY_INLINE VF RoundAsTransformerEngine(const ElementConstants& e, VF a, VU random) {
  const DF d;
  const VF q = hn::IfThenElse(
      hn::Lt(a, hn::Set(d, 2.0f)), hn::Set(d, 0.5f),
      hn::IfThenElse(hn::Lt(a, hn::Set(d, 4.0f)), hn::Set(d, 1.0f), hn::Set(d, 2.0f)));
  const VF fraction = hn::Mul(hn::ConvertTo(d, hn::BitCast(DI(), random)), hn::Set(d, 0x1p-8f));
  const VF t = hn::Add(hn::Mul(fraction, q), a);
  return RoundTowardZero(e, hn::Min(t, hn::Set(d, e.max)));
}

// The sign bit of the code of x.
HWY_INLINE VI SignCode(const ElementRow& row, VF x) {
  return hn::And(hn::ShiftRight<31>(Bits(x)),
                 hn::Set(DI(), static_cast<std::int32_t>(row.element.sign_code)));
}

// EncodeBySearch. Scales are not negative, so no code with the opposite sign of x has a lesser
// error, and of the two zeros +0 comes first.
HWY_INLINE VI SearchLanes(const ElementRow& row, VF x, VF s) {
  const DF d;
  const DI di;
  const VF magnitude = hn::Abs(x);
  VI best = hn::Zero(di);
  VF least = hn::Abs(hn::Sub(hn::Mul(hn::Set(d, row.values[0]), s), magnitude));
  for (std::size_t code = 1; code < row.codes / 2; ++code) {
    const VF error = hn::Abs(hn::Sub(hn::Mul(hn::Set(d, row.values[code]), s), magnitude));
    const auto better = hn::Lt(error, least);
    best = hn::IfThenElse(hn::RebindMask(di, better), hn::Set(di, static_cast<int>(code)), best);
    least = hn::IfThenElse(better, error, least);
  }
  return hn::IfThenZeroElse(hn::Eq(best, hn::Zero(di)), hn::Or(best, SignCode(row, x)));
}

// The code of RoundNearest(a), a <= e.max: the bits of the sum minus the bits of the magic number
// are the number of steps of the magnitude in its binade; 2^m steps are one exponent.
HWY_INLINE VI NearestCode(const ElementConstants& e, VF a) {
  const DF d;
  const DI di;
  const int dropped = 23 - e.mantissa_bits;
  const VI least = hn::Set(di, std::bit_cast<std::int32_t>(e.min_normal) >> dropped);
  const VI exponent = hn::And(Bits(hn::Max(a, hn::Set(d, e.min_normal))), hn::Set(di, kInfBits));
  const VI magic = hn::Add(exponent, hn::Set(di, dropped << 23));
  const VI steps = hn::Sub(Bits(hn::Add(a, Float(magic))), magic);
  return hn::Add(steps, hn::Sub(hn::ShiftRightSame(exponent, dropped), least));
}

// EncodeComfyCentre without the sign: the nearest code but for numbers from 1.75 up to a threshold,
// which have the code of 1, and for 7 to 9 and Inf, which have that of 4.
HWY_INLINE VI ComfyMagnitude(const ElementConstants& e, VF a) {
  const DF d;
  const DI di;
  const auto between = [&](float least, const auto& below)
                           HWY_ATTR { return hn::And(hn::Ge(a, hn::Set(d, least)), below); };
  const auto one = between(1.75f, hn::Lt(a, hn::Set(d, kComfyThresholds[1])));
  const auto four =
      hn::Or(between(7.0f, hn::Le(a, hn::Set(d, 9.0f))), hn::Gt(a, hn::Set(d, kFloatMax)));
  const VI nearest = NearestCode(e, hn::Min(a, hn::Set(d, e.max)));
  return hn::IfThenElse(hn::RebindMask(di, four), hn::Set(di, 6),
                        hn::IfThenElse(hn::RebindMask(di, one), hn::Set(di, 2), nearest));
}

// NearestCode with ties toward zero: one code less where the rounding went up by half a step.
HWY_INLINE VI TiesToZeroCode(const ElementConstants& e, VF a) {
  const DF d;
  const DI di;
  const VI exponent = hn::And(Bits(hn::Max(a, hn::Set(d, e.min_normal))), hn::Set(di, kInfBits));
  const VF half = Float(hn::Sub(exponent, hn::Set(di, (e.mantissa_bits + 1) << 23)));
  const auto tie = hn::Eq(hn::Sub(RoundNearest(e, a), a), half);
  return hn::Add(NearestCode(e, a), hn::VecFromMask(di, hn::RebindMask(di, tie)));
}

// EncodeBySearch of x under s, by v = fl(x / s); s = 1 and v = x for kClosestScaled. Up to 2^10
// times the largest element, differences to the two codes around v are exact and those to the two
// largest codes unequal. So the nearest code is found, and of a tie the first. v is on x's side of
// each decision point: a point times s is exact, and the next number is more than half a unit off.
template <ElementRounding kRounding>
HWY_INLINE VI ClosestCode(const ElementRow& row, VF x, VF s) {
  const DF d;
  const DI di;
  constexpr bool kDivides = kRounding == ElementRounding::kClosest;
  const VF v = kDivides ? hn::Div(x, s) : x;
  const VF a = hn::Abs(v);
  auto searches = hn::Gt(a, hn::Set(d, 0x1p10f * row.element.max));
  if constexpr (kDivides) {
    const auto moderate = hn::And(hn::Ge(s, hn::Set(d, 0x1p-60f)), hn::Le(s, hn::Set(d, 0x1p60f)));
    searches = hn::Or(searches, hn::Not(moderate));
  }
  if (HWY_UNLIKELY(!hn::AllFalse(d, searches)) || (kDivides && !row.has_short_scales)) {
    return SearchLanes(row, x, s);
  }
  const VI code = TiesToZeroCode(row.element, hn::Min(a, hn::Set(d, row.element.max)));
  return hn::IfThenZeroElse(hn::Eq(code, hn::Zero(di)), hn::Or(code, SignCode(row, v)));
}

// The rounded magnitude of a <= e.max.
template <ElementRounding kRounding>
HWY_INLINE VF MagnitudeLanes(const ElementRow& row, VF a, VU random) {
  const ElementConstants& e = row.element;
  if constexpr (kRounding == ElementRounding::kTiesAway) {
    return CutAfterAdding(e, a, hn::Set(DI(), 1 << (22 - e.mantissa_bits)));
  } else if constexpr (kRounding == ElementRounding::kHalfAdded) {
    return RoundHalfAdded(e, a);
  } else if constexpr (kRounding == ElementRounding::kTowardZero) {
    return RoundTowardZero(e, a);
  } else if constexpr (kRounding == ElementRounding::kStochastic16) {
    return RoundStochastic(e, a, random);
  } else if constexpr (kRounding == ElementRounding::kStochastic32) {
    return RoundStochastic32(e, a, random);
  } else if constexpr (kRounding == ElementRounding::kStochastic4) {
    return RoundStochastic(e, a, hn::ShiftLeft<12>(random));
  } else {
    static_assert(kRounding == ElementRounding::kStochastic8, "what lanes round");
    if (row.is_e2m1) return RoundAsTransformerEngine(e, a, random);
    return RoundStochastic(e, a, hn::ShiftLeft<8>(random));
  }
}

// The code of v without its sign. kBf16First has v as a BF16 number.
template <ElementRounding kRounding>
HWY_INLINE VI MagnitudeCodeLanes(const ElementRow& row, VF v, VU random) {
  const ElementConstants& e = row.element;
  const DF d;
  const VF a = hn::Abs(v), bounded = hn::Min(a, hn::Set(d, e.max));
  if constexpr (kRounding == ElementRounding::kNearestEven ||
                kRounding == ElementRounding::kBf16First) {
    return NearestCode(e, bounded);
  } else if constexpr (kRounding == ElementRounding::kNearestEvenOpen) {
    return NearestCode(e, hn::Min(a, hn::Set(d, row.next)));
  } else if constexpr (kRounding == ElementRounding::kComfyCentre) {
    return row.is_e2m1 ? ComfyMagnitude(e, a) : NearestCode(e, bounded);
  } else if constexpr (kRounding == ElementRounding::kHalfAddedEven) {
    const float step = row.values[1];
    const auto lifted = hn::Eq(a, hn::Set(d, BelowHalfStep(step)));
    return NearestCode(e, hn::IfThenElse(lifted, hn::Set(d, step), bounded));
  } else if constexpr (kRounding == ElementRounding::kTiesToZero) {
    return TiesToZeroCode(e, bounded);
  } else {
    return MagnitudeCode(e, MagnitudeLanes<kRounding>(row, bounded, random));
  }
}

// CodeOf.
template <ElementRounding kRounding>
HWY_INLINE VI CodeLanes(const ElementRow& row, VF x, VF s, VF v, VU random) {
  const DI di;
  const VI nan_code = hn::Set(di, row.nan_code);
  const VI negative_zero = hn::Set(di, static_cast<std::int32_t>(row.element.sign_code));
  VI code;
  if constexpr (kRounding == ElementRounding::kClosest) {
    code = ClosestCode<kRounding>(row, x, s);
  } else if constexpr (kRounding == ElementRounding::kClosestScaled) {
    code = ClosestCode<kRounding>(row, v, hn::Set(DF(), 1.0f));
  } else {
    code = hn::Or(MagnitudeCodeLanes<kRounding>(row, v, random), SignCode(row, v));
  }
  if constexpr (kRounding == ElementRounding::kTiesToZero) {
    code = hn::IfThenElse(hn::RebindMask(di, hn::Eq(v, hn::Zero(DF()))), negative_zero, code);
  }
  if (row.never_negative_zero) {
    code = hn::IfThenZeroElse(hn::Eq(code, negative_zero), code);
  }
  return hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(v)), nan_code, code);
}

// e and s of a row's elements, one entry per block of `width` columns; blocks are whole vectors.
struct ByBlock {
  const float *factor, *scale;
  std::size_t width;
};
// e and s of a row's elements, one entry per column, with room for one more vector.
struct ByColumn {
  const float *factor, *scale;
};

template <ElementScaling kScaling, ElementRounding kRounding>
struct RowCoder {
  ElementRow row;
  static constexpr bool kStochastic = RandomBitsOf(kRounding) != 0;

  HWY_INLINE void Put(const float* x, VF e, VF s, const std::uint32_t* random,
                      std::uint8_t* codes) const {
    const DF d;
    const hn::Rebind<std::uint8_t, DI> d8;
    const VF element = hn::LoadU(d, x);
    VF scaled = ScaledLanes<kScaling>(row, element, e);
    if constexpr (kRounding == ElementRounding::kBf16First) scaled = Bf16Lanes(scaled);
    const VF v = hn::Add(scaled, hn::Set(d, row.zero));
    VU bits = hn::Zero(DU());
    if constexpr (kStochastic) bits = hn::LoadU(DU(), random);
    hn::StoreU(hn::DemoteTo(d8, CodeLanes<kRounding>(row, element, s, v, bits)), d8, codes);
  }
  HWY_INLINE void PutPart(const float* x, VF e, VF s, const std::uint32_t* random,
                          std::size_t count, std::uint8_t* codes) const {
    HWY_ALIGN float last[hn::MaxLanes(DF())] = {};
    std::uint32_t last_random[hn::MaxLanes(DF())] = {};
    std::uint8_t last_codes[hn::MaxLanes(DF())];
    std::copy_n(x, count, last);
    if (kStochastic) std::copy_n(random, count, last_random);
    Put(last, e, s, last_random, last_codes);
    std::copy_n(last_codes, count, codes);
  }
};

// codes[i] = the code of x[i], for i < cols. `random`: one word per element with its random bits
// and zeros above, if the rounding is stochastic.
template <ElementScaling kScaling, ElementRounding kRounding>
HWY_INLINE void CodesOfRow(const ElementRow& shared, const float* x, const ByBlock& blocks,
                           const std::uint32_t* random, std::size_t cols, std::uint8_t* codes) {
  const DF d;
  const std::size_t lanes = hn::Lanes(d);
  const RowCoder<kScaling, kRounding> coder{shared};
  for (std::size_t j = 0, i = 0; i < cols; ++j) {
    const VF e = hn::Set(d, blocks.factor[j]), s = hn::Set(d, blocks.scale[j]);
    const std::size_t end = std::min(i + blocks.width, cols);
    for (; i + lanes <= end; i += lanes) coder.Put(x + i, e, s, random + i, codes + i);
    if (i < end) coder.PutPart(x + i, e, s, random + i, end - i, codes + i);
    i = end;
  }
}
template <ElementScaling kScaling, ElementRounding kRounding>
HWY_INLINE void CodesOfRow(const ElementRow& shared, const float* x, const ByColumn& columns,
                           const std::uint32_t* random, std::size_t cols, std::uint8_t* codes) {
  const DF d;
  const std::size_t lanes = hn::Lanes(d);
  const RowCoder<kScaling, kRounding> coder{shared};
  for (std::size_t i = 0; i < cols; i += lanes) {
    const VF e = hn::LoadU(d, columns.factor + i), s = hn::LoadU(d, columns.scale + i);
    if (i + lanes <= cols) {
      coder.Put(x + i, e, s, random + i, codes + i);
    } else {
      coder.PutPart(x + i, e, s, random + i, cols - i, codes + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_ELEMENT_STAGE_INL_H_
