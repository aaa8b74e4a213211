// Fused steps of kScaledGroups for 32 columns of c.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_MMA_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_TENSOR_MMA_GROUPS_INL_H_
#undef FP4LAB_TENSOR_MMA_GROUPS_INL_H_
#else
#define FP4LAB_TENSOR_MMA_GROUPS_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/tensor/mma/tensor_core_pack.h"

#include <hwy/highway.h>

#include "fp4lab/tensor/fp4_gemm_dot-inl.h"
#include "fp4lab/tensor/mma/mma_round-inl.h"
#include "fp4lab/tensor/repeat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// The inputs of one step: a row of a and a panel of b.
struct GroupStep {
  const std::uint8_t* a;               // 64 codes
  const double *a_factors, *a_powers;  // 4 each
  const std::uint64_t* a_masks;        // 4
  std::int32_t a_high, a_low;
  const std::uint8_t* b;                 // 16 quads x kMmaPanel
  const std::int32_t* b_starts;          // 4 x kMmaPanel
  const double *b_factors, *b_powers;    // 4 x kMmaPanel
  const std::uint64_t* b_masks;          // 4 x kMmaPanel
  const std::int32_t *b_highs, *b_lows;  // kMmaPanel
  int floor, fraction_bits;
  OpenChoices open;
};

// The integer dot products of a's groups with kLanes columns of b from j on; magnitudes at most
// 2304.
HWY_INLINE void GroupDots(const GroupStep& s, std::size_t j, Fp4IntVec dots[kGroupsAStep]) {
  Repeat<kGroupsAStep>([&](auto g) HWY_ATTR {
    Fp4IntVec sum = Dots::Start(hn::Load(Fp4IntTag(), s.b_starts + g * kMmaPanel + j));
    Repeat<kMmaGroup / 4>([&](auto q) HWY_ATTR {
      constexpr std::size_t kQuad = g * (kMmaGroup / 4) + q;
      sum = Dots::Add(sum, BroadcastQuad(s.a + 4 * kQuad),
                      LoadDotBytes(s.b + 4 * (kQuad * kMmaPanel + j)));
    });
    dots[g] = Dots::Whole(sum);
  });
}

// t = the dot products times their scales, exact, for kDoubles columns.
HWY_INLINE void ScaleDots(const GroupStep& s, std::size_t column,
                          const std::int32_t* HWY_RESTRICT dots, DoubleVec t[kGroupsAStep]) {
  const Double d;
  const hn::Rebind<std::int32_t, Double> di;
  Repeat<kGroupsAStep>([&](auto g) HWY_ATTR {
    const DoubleVec factor =
        hn::Mul(hn::Set(d, s.a_factors[g]), hn::Load(d, s.b_factors + g * kMmaPanel + column));
    t[g] = hn::Mul(hn::PromoteTo(d, hn::Load(di, dots + g * kLanes)), factor);
  });
}

// Whether no term of the step loses a bit in any of kLanes columns, whichever groups count for E:
// all terms are multiples of 2^(E - F) for the largest E that the step can have. The step is then
// the exact sum, because the terms are below 2^(E + 12) and binary64 holds 53 bits.
HWY_INLINE bool NothingIsTruncated(const GroupStep& s, std::size_t j, const float* c) {
  const Fp4IntTag d;
  const Fp4IntVec zero = hn::Zero(d);
  const Fp4IntVec bits = hn::And(hn::BitCast(d, hn::Load(GemmTag(), c)), hn::Set(d, 0x7FFFFFFF));
  const Fp4IntVec field = hn::ShiftRight<23>(bits);
  const Fp4IntVec raw = hn::Max(hn::Sub(field, hn::Set(d, 127)), hn::Set(d, -126));
  const Fp4IntVec high = hn::Add(hn::Set(d, s.a_high), hn::Load(d, s.b_highs + j));
  const Fp4IntVec low = hn::Add(hn::Set(d, s.a_low), hn::Load(d, s.b_lows + j));
  const Fp4IntVec e = hn::Max(hn::Max(raw, high), hn::Set(d, s.floor));
  const Fp4IntVec unit = hn::Sub(e, hn::Set(d, s.fraction_bits));
  const Fp4IntVec c_low = hn::IfThenElse(hn::Eq(bits, zero), low, hn::Sub(raw, hn::Set(d, 23)));
  const auto cut = hn::Lt(hn::Min(low, c_low), unit);
  return hn::AllFalse(d, hn::Or(cut, hn::Eq(field, hn::Set(d, 255))));
}

// 2^(exponent of group g's scales) where the group takes part in E, else 0.
HWY_INLINE DoubleVec GroupPower(const GroupStep& s, std::size_t g, std::size_t column,
                                DoubleVec t) {
  const Double d;
  const hn::RebindToUnsigned<Double> du;
  const DoubleVec power =
      hn::Mul(hn::Set(d, s.a_powers[g]), hn::Load(d, s.b_powers + g * kMmaPanel + column));
  const bool all = s.open.cancelled_group_counts && s.open.zero_group_counts;
  if (all) return power;
  const auto common =
      hn::And(hn::Set(du, s.a_masks[g]), hn::Load(du, s.b_masks + g * kMmaPanel + column));
  const auto dead = hn::RebindMask(d, hn::Eq(common, hn::Zero(du)));
  if (s.open.cancelled_group_counts) return hn::IfThenZeroElse(dead, power);
  const auto cancelled = hn::AndNot(dead, hn::Eq(t, hn::Zero(d)));
  const DoubleVec live = hn::IfThenZeroElse(cancelled, power);
  return s.open.zero_group_counts ? live : hn::IfThenZeroElse(dead, live);
}

// Finishes a step for columns [column, column + kDoubles); t: the scaled dot products of the
// kGroupsAStep groups.
HWY_INLINE void FinishGroups(const GroupStep& s, std::size_t column,
                             const DoubleVec t[kGroupsAStep], float* HWY_RESTRICT c) {
  const Double d;
  const FloatOfDouble df;
  const hn::RebindToSigned<Double> di;
  const DoubleVec old = hn::PromoteTo(d, hn::Load(df, c + column));
  const DoubleVec exponent_bits = hn::Set(d, std::bit_cast<double>(std::uint64_t{0x7FF} << 52));
  const DoubleVec from_c = hn::IfThenZeroElse(
      hn::Eq(old, hn::Zero(d)), hn::Max(hn::And(old, exponent_bits), hn::Set(d, 0x1p-126)));
  const auto least = static_cast<std::uint64_t>(1023 + s.floor) << 52;
  DoubleVec power = hn::Max(from_c, hn::Set(d, std::bit_cast<double>(least)));
  for (std::size_t g = 0; g < kGroupsAStep; ++g) {
    power = hn::Max(power, GroupPower(s, g, column, t[g]));
  }
  // power = 2^E. Arithmetic on exponent fields gives 2^q and 1 / 2^q, with q = E - F.
  const auto field = hn::BitCast(di, power);
  const auto f = hn::Set(di, static_cast<std::int64_t>(s.fraction_bits) << 52);
  const auto twice_bias = hn::Set(di, std::int64_t{2 * 1023} << 52);
  const DoubleVec inverse = hn::BitCast(d, hn::Sub(hn::Add(twice_bias, f), field));
  const DoubleVec unit = hn::BitCast(d, hn::Sub(field, f));
  DoubleVec sum = hn::Zero(d);
  for (std::size_t g = 0; g < kGroupsAStep; ++g) {
    sum = hn::Add(sum, hn::Trunc(hn::Mul(t[g], inverse)));
  }
  sum = hn::Add(sum, hn::Trunc(hn::Mul(old, inverse)));
  hn::Store(RoundStep<MmaOutput::kTruncate32>(sum, unit), df, c + column);
}

// FinishGroups for a step in which no term is truncated.
HWY_INLINE void FinishExactGroups(std::size_t column, const DoubleVec t[kGroupsAStep],
                                  float* HWY_RESTRICT c) {
  const Double d;
  const FloatOfDouble df;
  static_assert(kGroupsAStep == 4);
  const DoubleVec dots = hn::Add(hn::Add(t[0], t[1]), hn::Add(t[2], t[3]));
  // The sum starts with +0, so that a sum of zeros of any sign is +0.
  const DoubleVec sum =
      hn::Add(hn::Add(hn::Zero(d), dots), hn::PromoteTo(d, hn::Load(df, c + column)));
  hn::Store(RoundStep<MmaOutput::kTruncate32>(sum, hn::Set(d, 1.0)), df, c + column);
}

// Adds one step to the accumulators c of all columns of a panel.
HWY_INLINE void ComputeGroupStep(const GroupStep& s, float* HWY_RESTRICT c) {
  for (std::size_t j = 0; j < kMmaPanel; j += kLanes) {
    Fp4IntVec dots[kGroupsAStep];
    HWY_ALIGN std::int32_t stored[kGroupsAStep * kLanes];
    GroupDots(s, j, dots);
    Repeat<kGroupsAStep>([&](auto g)
                             HWY_ATTR { hn::Store(dots[g], Fp4IntTag(), stored + g * kLanes); });
    const bool is_exact = NothingIsTruncated(s, j, c + j);
    for (std::size_t i = 0; i < kLanes; i += kDoubles) {
      DoubleVec t[kGroupsAStep];
      ScaleDots(s, j + i, stored + i, t);
      if (HWY_LIKELY(is_exact)) {
        FinishExactGroups(j + i, t, c);
      } else {
        FinishGroups(s, j + i, t, c);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_MMA_GROUPS_INL_H_
