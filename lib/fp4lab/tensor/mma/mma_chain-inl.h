// Fused steps of kChain, kFp8InFp16 and kScaledChain for 32 columns of c.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_MMA_CHAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_TENSOR_MMA_CHAIN_INL_H_
#undef FP4LAB_TENSOR_MMA_CHAIN_INL_H_
#else
#define FP4LAB_TENSOR_MMA_CHAIN_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/tensor/mma/mma_number.h"
#include "fp4lab/tensor/mma/tensor_core_pack.h"

#include <hwy/highway.h>

#include "fp4lab/tensor/mma/mma_round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

using Float = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<Float>;
using Int = hn::RebindToSigned<Float>;
using IntVec = hn::Vec<Int>;
inline constexpr std::size_t kFloats = hn::MaxLanes(Float());

// The inputs of one step: a row of a and a panel of b. Values and exponents are relative to
// 2^(shift of a + shift of b): products are below 4, their exponents at most 0.
struct ChainStep {
  const float* a;  // `step` values
  const std::int16_t* a_exponents;
  std::int32_t a_shift, a_low;
  const float* b;  // `step` x kMmaPanel values
  const std::int16_t* b_exponents;
  const std::int32_t *b_shifts, *b_lows;
  int step, fraction_bits, floor;
};

// A largest exponent below kNoProduct means that a column has no non-zero product.
inline constexpr std::int32_t kNoProduct = kZeroExponent / 2;

// Writes the largest exponent over k of the non-zero products of each column.
HWY_INLINE void MaxExponents(const ChainStep& s, std::int16_t* HWY_RESTRICT out) {
  const hn::CappedTag<std::int16_t, kMmaPanel> d;
  for (std::size_t j = 0; j < kMmaPanel; j += hn::Lanes(d)) {
    auto e = hn::Set(d, static_cast<std::int16_t>(2 * kZeroExponent));
    for (std::size_t k = 0; k < static_cast<std::size_t>(s.step); ++k) {
      const auto b = hn::Load(d, s.b_exponents + k * kMmaPanel + j);
      e = hn::Max(e, hn::Add(hn::Set(d, s.a_exponents[k]), b));
    }
    hn::Store(e, d, out + j);
  }
}

// Returns E of the step. *relative is E minus the shifts, clamped to [-100, 100], which changes no
// truncated product.
template <MmaOutput kOutput>
HWY_INLINE IntVec StepExponent(const ChainStep& s, IntVec products, IntVec shift, FloatVec c,
                               IntVec* relative) {
  const Int d;
  constexpr int kLeastRaw = kOutput == MmaOutput::kNearest16 ? -14 : -126;
  const IntVec none = hn::Set(d, kNoExponent);
  const IntVec bits = hn::And(hn::BitCast(d, c), hn::Set(d, 0x7FFFFFFF));
  const IntVec raw =
      hn::Max(hn::Sub(hn::ShiftRight<23>(bits), hn::Set(d, 127)), hn::Set(d, kLeastRaw));
  const IntVec from_c = hn::IfThenElse(hn::Eq(bits, hn::Zero(d)), none, raw);
  const IntVec from_products =
      hn::IfThenElse(hn::Lt(products, hn::Set(d, kNoProduct)), none, hn::Add(products, shift));
  // -300 is below every product and accumulator, and 2^(300 + F) is a binary64 number.
  const IntVec e =
      hn::Max(hn::Max(from_c, from_products), hn::Set(d, s.floor > -300 ? s.floor : -300));
  *relative = hn::Min(hn::Max(hn::Sub(e, shift), hn::Set(d, -100)), hn::Set(d, 100));
  return e;
}

// Truncates v toward zero; |v| < 2^31. hn::ConvertTo also handles values out of range, at twice the
// cost.
HWY_INLINE IntVec TruncateToInt(FloatVec v) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return IntVec{_mm512_cvttps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX2
  return IntVec{_mm256_cvttps_epi32(v.raw)};
#else
  return hn::ConvertTo(Int(), v);
#endif
}

// Writes the sum of the products to `out` as doubles, in units of 2^(relative - F), each product
// truncated. down = 2^(F - relative).
HWY_INLINE void SumTruncated(const ChainStep& s, std::size_t j, FloatVec down, double* out) {
  const Float d;
  const Int di;
  HWY_ALIGN std::int32_t sums[2][kFloats];
  for (int half = 0; half < 2; ++half) {  // 16 products below 2^27 units fit 32 bits
    const int begin = half * 16, end = s.step < begin + 16 ? s.step : begin + 16;
    IntVec sum = hn::Zero(di);
    for (int k = begin; k < end; ++k) {
      const FloatVec product = hn::Mul(
          hn::Set(d, s.a[k]), hn::Load(d, s.b + static_cast<std::size_t>(k) * kMmaPanel + j));
      sum = hn::Add(sum, TruncateToInt(hn::Mul(product, down)));
    }
    hn::Store(sum, di, sums[half]);
  }
  const Double dd;
  const hn::Rebind<std::int32_t, Double> dh;
  for (std::size_t i = 0; i < kFloats; i += kDoubles) {
    const DoubleVec low = hn::PromoteTo(dd, hn::Load(dh, sums[0] + i));
    const DoubleVec high = hn::PromoteTo(dd, hn::Load(dh, sums[1] + i));
    hn::Store(hn::Add(low, high), dd, out + i);
  }
}

// The sum of the products in units of 2^shift, for steps in which no product loses a bit and the
// sum fits binary32.
HWY_INLINE FloatVec SumExact(const ChainStep& s, std::size_t j) {
  const Float d;
  FloatVec even = hn::Zero(d), odd = hn::Zero(d);
  const float* HWY_RESTRICT b = s.b + j;
  for (int k = 0; k < s.step; k += 2) {  // `step` is a power of two, at least 4
    even = hn::MulAdd(hn::Set(d, s.a[k]), hn::Load(d, b), even);
    odd = hn::MulAdd(hn::Set(d, s.a[k + 1]), hn::Load(d, b + kMmaPanel), odd);
    b += 2 * kMmaPanel;
  }
  return hn::Add(even, odd);
}

HWY_INLINE void ToDoubles(FloatVec v, double* out) {
  const Double dd;
  const FloatOfDouble dh;
  HWY_ALIGN float lanes[kFloats];
  hn::Store(v, Float(), lanes);
  for (std::size_t i = 0; i < kFloats; i += kDoubles) {
    hn::Store(hn::PromoteTo(dd, hn::Load(dh, lanes + i)), dd, out + i);
  }
}

// 2^e, -126 <= e <= 127.
HWY_INLINE FloatVec PowerOf(IntVec e) {
  return hn::BitCast(Float(), hn::ShiftLeft<23>(hn::Add(e, hn::Set(Int(), 127))));
}

// x + y rounded toward zero, for sums below 2^127 whose rounding error is a binary32 number: the
// sum to nearest, one unit smaller in magnitude if the error (Knuth's TwoSum) has the opposite
// sign.
HWY_INLINE FloatVec AddTowardZero(FloatVec x, FloatVec y) {
  const Float d;
  const Int di;
  const FloatVec sum = hn::Add(x, y);
  const FloatVec part = hn::Sub(sum, x);
  const FloatVec error = hn::Add(hn::Sub(x, hn::Sub(sum, part)), hn::Sub(y, part));
  const auto opposite = hn::Lt(hn::BitCast(di, hn::Xor(error, sum)), hn::Zero(di));
  const auto inexact = hn::RebindMask(di, hn::Gt(hn::Abs(error), hn::Zero(d)));
  const IntVec bits = hn::BitCast(di, sum);
  const IntVec less = hn::Sub(bits, hn::Set(di, 1));
  return hn::BitCast(d, hn::IfThenElse(hn::And(opposite, inexact), less, bits));
}

// Computes the whole step in binary32 if only the result is truncated, whatever E is: every product
// and c are multiples of 2^(E - F) for the largest E that the step can have. Returns false, without
// writing c, if this does not hold in some lane.
HWY_INLINE bool TryWithoutTruncation(const ChainStep& s, std::size_t j, IntVec shift, int room,
                                     float* HWY_RESTRICT c) {
  const Float d;
  const Int di;
  const FloatVec old = hn::Load(d, c);
  const IntVec c_bits = hn::And(hn::BitCast(di, old), hn::Set(di, 0x7FFFFFFF));
  const IntVec raw =
      hn::Max(hn::Sub(hn::ShiftRight<23>(c_bits), hn::Set(di, 127)), hn::Set(di, -126));
  const IntVec low = hn::Add(hn::Set(di, s.a_low), hn::Load(di, s.b_lows + j));
  const IntVec e = hn::Max(hn::Max(raw, shift), hn::Set(di, s.floor));
  const IntVec q = hn::Sub(e, hn::Set(di, s.fraction_bits));
  // The step must be in a range in which binary32 neither under- nor overflows: e in [-90, 90],
  // products in units of 2^-140 or more.
  const IntVec least = hn::Max(hn::Sub(q, shift), hn::Set(di, -room));
  const auto no = hn::Or(hn::Or(hn::Lt(low, least), hn::Gt(hn::Abs(e), hn::Set(di, 90))),
                         hn::Lt(shift, hn::Set(di, -90)));
  if (!hn::AllFalse(di, no)) return false;
  const FloatVec units = hn::Mul(old, PowerOf(hn::Sub(hn::Zero(di), q)));
  const auto whole = hn::And(hn::Eq(hn::Trunc(units), units),
                             hn::Or(hn::Gt(hn::Abs(units), hn::Zero(d)), hn::Eq(old, hn::Zero(d))));
  if (!hn::AllTrue(d, whole)) return false;
  const FloatVec dot = hn::Mul(SumExact(s, j), PowerOf(shift));
  hn::Store(AddTowardZero(hn::Add(dot, hn::Zero(d)), old), d, c);
  return true;
}

// c = round(trunc(c / 2^(e - F)) + t) for kFloats columns.
template <MmaOutput kOutput>
HWY_INLINE void AddAndRound(const double* HWY_RESTRICT t, const std::int32_t* HWY_RESTRICT e,
                            int fraction_bits, float* HWY_RESTRICT c) {
  const Double d;
  const FloatOfDouble df;
  const hn::RebindToSigned<Double> di;
  const hn::Rebind<std::int32_t, Double> dh;
  for (std::size_t i = 0; i < kFloats; i += kDoubles) {
    const auto q = hn::Sub(hn::PromoteTo(di, hn::Load(dh, e + i)), hn::Set(di, fraction_bits));
    const auto one = hn::Set(di, 1023);
    const DoubleVec unit = hn::BitCast(d, hn::ShiftLeft<52>(hn::Add(one, q)));
    const DoubleVec inverse = hn::BitCast(d, hn::ShiftLeft<52>(hn::Sub(one, q)));
    const DoubleVec old = hn::PromoteTo(d, hn::Load(df, c + i));
    // t is never -0, so neither is the sum.
    const DoubleVec sum = hn::Add(hn::Load(d, t + i), hn::Trunc(hn::Mul(old, inverse)));
    hn::Store(RoundStep<kOutput>(sum, unit), df, c + i);
  }
}

// Computes a step, with truncation, for kFloats columns from j on, whose largest product exponents
// are `products`.
template <MmaOutput kOutput>
HWY_INLINE void ComputeTruncated(const ChainStep& s, std::size_t j, IntVec products, IntVec shift,
                                 int room, float* HWY_RESTRICT c) {
  const Float d;
  const Int di;
  HWY_ALIGN std::int32_t e[kFloats];
  HWY_ALIGN double t[kFloats];
  IntVec relative;
  hn::Store(StepExponent<kOutput>(s, products, shift, hn::Load(d, c), &relative), di, e);
  const IntVec q = hn::Sub(relative, hn::Set(di, s.fraction_bits));
  const FloatVec down = PowerOf(hn::Sub(hn::Zero(di), q));
  const IntVec low = hn::Add(hn::Set(di, s.a_low), hn::Load(di, s.b_lows + j));
  if (hn::AllFalse(di, hn::Lt(low, hn::Max(q, hn::Set(di, -room))))) {
    ToDoubles(hn::Mul(SumExact(s, j), down), t);
  } else {
    SumTruncated(s, j, down, t);
  }
  AddAndRound<kOutput>(t, e, s.fraction_bits, c);
}

// Adds one step to the accumulators c of all columns of a panel.
template <MmaOutput kOutput>
HWY_INLINE void ComputeChainStep(const ChainStep& s, float* HWY_RESTRICT c) {
  const Int di;
  const hn::Rebind<std::int16_t, Int> d16;
  HWY_ALIGN std::int16_t products[kMmaPanel];
  bool has_products = false;
  // A sum of `step` products below 4 is below 2^(2 + log2(step)).
  const int room = 24 - 2 - std::countr_zero(static_cast<unsigned>(s.step));
  for (std::size_t j = 0; j < kMmaPanel; j += kFloats) {
    const IntVec shift = hn::Add(hn::Set(di, s.a_shift), hn::Load(di, s.b_shifts + j));
    if constexpr (kOutput == MmaOutput::kTruncate32) {
      if (TryWithoutTruncation(s, j, shift, room, c + j)) continue;
    }
    if (!has_products) MaxExponents(s, products);
    has_products = true;
    ComputeTruncated<kOutput>(s, j, hn::PromoteTo(di, hn::Load(d16, products + j)), shift, room,
                              c + j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_MMA_CHAIN_INL_H_
