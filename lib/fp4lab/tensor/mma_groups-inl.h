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

#include "fp4lab/tensor/tensor_core_pack.h"

#include <hwy/highway.h>

#include "fp4lab/tensor/mma_round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// One step: a's row and b's panel.
struct GroupStep {
  const double* a;  // 64 values
  const double* a_powers;
  const std::uint64_t* a_masks;  // 4 each
  const double* b;               // 64 x kMmaPanel
  const double* b_powers;
  const std::uint64_t* b_masks;  // 4 x kMmaPanel
  double least_power;            // 2^floor
  int fraction_bits;
  OpenChoices open;
};

inline constexpr std::size_t kGroupVectors = 4;  // columns done together, in vectors
inline constexpr std::size_t kGroupCols =
    kGroupVectors * kDoubles < kMmaPanel ? kGroupVectors * kDoubles : kMmaPanel;

// Dots of group g with kGroupCols columns, exact: at most 2304 * 225 units.
HWY_INLINE void GroupDots(const GroupStep& s, std::size_t g, std::size_t j,
                          DoubleVec* HWY_RESTRICT t) {
  const Double d;
  const double* HWY_RESTRICT a = s.a + g * kMmaGroup;
  const double* HWY_RESTRICT b = s.b + g * kMmaGroup * kMmaPanel + j;
  DoubleVec t0 = hn::Zero(d), t1 = t0, t2 = t0, t3 = t0;
  for (std::size_t k = 0; k < kMmaGroup; ++k) {
    const DoubleVec ak = hn::Set(d, a[k]);
    t0 = hn::MulAdd(ak, hn::Load(d, b), t0);
    t1 = hn::MulAdd(ak, hn::Load(d, b + kDoubles), t1);
    t2 = hn::MulAdd(ak, hn::Load(d, b + 2 * kDoubles), t2);
    t3 = hn::MulAdd(ak, hn::Load(d, b + 3 * kDoubles), t3);
    b += kMmaPanel;
  }
  t[0] = t0, t[1] = t1, t[2] = t2, t[3] = t3;
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

// Columns [column, column + kDoubles), whose dots are t of kGroupsAStep groups.
HWY_INLINE void FinishGroups(const GroupStep& s, std::size_t column,
                             const DoubleVec t[kGroupsAStep], float* HWY_RESTRICT c) {
  const Double d;
  const FloatOfDouble df;
  const hn::RebindToSigned<Double> di;
  const DoubleVec old = hn::PromoteTo(d, hn::Load(df, c + column));
  const DoubleVec exponent_bits = hn::Set(d, std::bit_cast<double>(std::uint64_t{0x7FF} << 52));
  const DoubleVec from_c = hn::IfThenZeroElse(
      hn::Eq(old, hn::Zero(d)), hn::Max(hn::And(old, exponent_bits), hn::Set(d, 0x1p-126)));
  DoubleVec power = hn::Max(from_c, hn::Set(d, s.least_power));
  for (std::size_t g = 0; g < kGroupsAStep; ++g) {
    power = hn::Max(power, GroupPower(s, g, column, t[g]));
  }
  // power = 2^E; 1 / 2^q = 2^(F - E) and 2^q by arithmetic on exponent fields.
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

// c takes in one step, for all columns of a panel.
HWY_INLINE void ComputeGroupStep(const GroupStep& s, float* HWY_RESTRICT c) {
  static_assert(kGroupVectors == 4);
  for (std::size_t j = 0; j < kMmaPanel; j += kGroupCols) {
    DoubleVec t[kGroupsAStep][kGroupVectors];
    for (std::size_t g = 0; g < kGroupsAStep; ++g) GroupDots(s, g, j, t[g]);
    for (std::size_t v = 0; v < kGroupVectors; ++v) {
      const DoubleVec column[kGroupsAStep] = {t[0][v], t[1][v], t[2][v], t[3][v]};
      FinishGroups(s, j + v * kDoubles, column, c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_MMA_GROUPS_INL_H_
