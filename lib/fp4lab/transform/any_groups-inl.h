// RandomHadamard of a vector of groups that run down the memory columns, one group a lane, for any
// values: each group in one binary32 sum, in two, or exactly.
#if defined(FP4LAB_TRANSFORM_ANY_GROUPS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_TRANSFORM_ANY_GROUPS_INL_H_
#undef FP4LAB_TRANSFORM_ANY_GROUPS_INL_H_
#else
#define FP4LAB_TRANSFORM_ANY_GROUPS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/kernels.h"

#include <hwy/highway.h>

#include "fp4lab/transform/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kLanes = hn::MaxLanes(DF());

// kRows rows of one vector each.
template <int kRows>
struct RowBuffer {
  HWY_ALIGN float rows[kRows * kLanes];
  HWY_INLINE VF Get(std::size_t k) const { return hn::Load(DF(), rows + k * kLanes); }
  HWY_INLINE void Put(std::size_t k, VF x) { hn::Store(x, DF(), rows + k * kLanes); }
  HWY_INLINE Four GetFour(std::size_t k, std::size_t step) const {
    return {Get(k), Get(k + step), Get(k + 2 * step), Get(k + 3 * step)};
  }
  HWY_INLINE void PutFour(std::size_t k, const Four& y) {
    Put(k, y.a);
    Put(k + 1, y.b);
    Put(k + 2, y.c);
    Put(k + 3, y.e);
  }
};
using Buffer = RowBuffer<32>;

template <int kSize>
HWY_INLINE VF Scaled(VF y) {
  return HasExactHadamardFactor(kSize) ? y : hn::Mul(y, hn::Set(DF(), HadamardFactor(kSize)));
}
template <int kSize>
HWY_INLINE Four ScaledFour(const Four& y) {
  return {Scaled<kSize>(y.a), Scaled<kSize>(y.b), Scaled<kSize>(y.c), Scaled<kSize>(y.e)};
}

// The terms that a pass sums.
enum class Terms { kAll, kHigh, kLow };

// Term k of the sums: x_k times its sign (and, for size 16, times the exact factor 1/4).
template <Terms kTerms>
HWY_INLINE VF Term(const float* x, const float* factors, std::size_t k, const Split& split) {
  const VF value = hn::LoadU(DF(), x);
  const VF term = hn::Mul(value, hn::Set(DF(), factors[k]));
  if constexpr (kTerms == Terms::kHigh) return hn::IfThenElseZero(IsHigh(split, value), term);
  if constexpr (kTerms == Terms::kLow) return hn::IfThenZeroElse(IsHigh(split, value), term);
  return term;
}

// The stages of strides kSize / 4 and kSize / 2 of the Hadamard transform, which read x.
template <int kSize, Terms kTerms>
HWY_INLINE void FirstStages(const float* x, std::size_t stride, const float* factors,
                            const Split& split, Buffer* buffer) {
  constexpr std::size_t kQuarter = kSize / 4;
  for (std::size_t b = 0; b < kQuarter; ++b) {
    const auto term = [&](std::size_t i) HWY_ATTR {
      const std::size_t k = b + i * kQuarter;
      return Term<kTerms>(x + k * stride, factors, k, split);
    };
    const Four y = Hadamard4({term(0), term(1), term(2), term(3)});
    buffer->Put(b, y.a);
    buffer->Put(b + kQuarter, y.b);
    buffer->Put(b + 2 * kQuarter, y.c);
    buffer->Put(b + 3 * kQuarter, y.e);
  }
}

// Size 32: the stage of stride 4, in place.
HWY_INLINE void MiddleStage(Buffer* buffer) {
  for (std::size_t k = 0; k < 32; k += 8) {
    for (std::size_t i = k; i < k + 4; ++i) {
      const VF a = buffer->Get(i), b = buffer->Get(i + 4);
      buffer->Put(i, hn::Add(a, b));
      buffer->Put(i + 4, hn::Sub(a, b));
    }
  }
}

// The stages of strides 1 and 2.
HWY_INLINE Four LastStages(const Buffer& buffer, std::size_t k) {
  return Hadamard4({buffer.Get(k), buffer.Get(k + 1), buffer.Get(k + 2), buffer.Get(k + 3)});
}

template <int kSize>
HWY_INLINE void PutRounded(const Four& sums, std::size_t k, Buffer* y) {
  const Four s = ScaledFour<kSize>(sums);
  y->PutFour(k, {RoundLanesToBf16(s.a), RoundLanesToBf16(s.b), RoundLanesToBf16(s.c),
                 RoundLanesToBf16(s.e)});
}

// Transforms a vector of groups, some of which need two sums.
template <int kSize>
HWY_INLINE void TransformSplit(const float* x, std::size_t stride, const float* factors,
                               const Split& split, Buffer* y) {
  Buffer high, low;
  FirstStages<kSize, Terms::kHigh>(x, stride, factors, split, &high);
  FirstStages<kSize, Terms::kLow>(x, stride, factors, split, &low);
  if constexpr (kSize == 32) {
    MiddleStage(&high);
    MiddleStage(&low);
  }
  for (std::size_t k = 0; k < kSize; k += 4) {
    const Four h = LastStages(high, k), l = LastStages(low, k);
    PutRounded<kSize>({hn::Add(h.a, l.a), hn::Add(h.b, l.b), hn::Add(h.c, l.c), hn::Add(h.e, l.e)},
                      k, y);
  }
}

// Transforms the groups of the lanes that are not `done`, by HadamardWideGroup.
template <int kSize, class Rows>
HWY_INLINE void TransformExactly(const float* x, std::size_t stride, const HadamardSigns& signs,
                                 MF done, Rows* y) {
  HWY_ALIGN float exact[kLanes];
  hn::Store(hn::IfThenZeroElse(done, hn::Set(DF(), 1.0f)), DF(), exact);
  for (std::size_t lane = 0; lane < hn::Lanes(DF()); ++lane) {
    if (exact[lane] == 0.0f) continue;
    const MatrixView<const float> group(x + lane, 1, kSize, 0, stride);
    HadamardWideGroup(group, signs, MatrixView<float>(y->rows + lane, 1, kSize, 0, kLanes));
  }
}

// Transforms one vector of groups of 16 or 32 with any values; *y gets BF16 values.
template <int kSize>
HWY_NOINLINE void TransformAny(const float* x, std::size_t stride, const HadamardFactors& factors,
                               Buffer* y) {
  Range range = EmptyRange();
  for (std::size_t k = 0; k < kSize; ++k) {
    range = Widen(range, hn::LoadU(DF(), x + k * stride));
  }
  const Split split = SplitOf(range, kSize);
  if (hn::AllTrue(DF(), split.one)) {
    Buffer sums;
    FirstStages<kSize, Terms::kAll>(x, stride, factors.of_elements, split, &sums);
    if constexpr (kSize == 32) MiddleStage(&sums);
    for (std::size_t k = 0; k < kSize; k += 4) PutRounded<kSize>(LastStages(sums, k), k, y);
    return;
  }
  TransformSplit<kSize>(x, stride, factors.of_elements, split, y);
  if (!hn::AllTrue(DF(), split.two)) {
    TransformExactly<kSize>(x, stride, factors.transform.signs, split.two, y);
  }
}

// The largest magnitude in each lane of a buffer, as binary32 bits; NaN is ignored.
template <int kSize, class Rows>
HWY_INLINE VI AmaxOf(const Rows& y) {
  const DI d;
  VI max = hn::Zero(d);
  for (std::size_t k = 0; k < kSize; ++k) {
    const VI magnitude = hn::And(hn::BitCast(d, y.Get(k)), hn::Set(d, 0x7FFFFFFF));
    const auto nan = hn::Gt(magnitude, hn::Set(d, 0x7F800000));
    max = hn::Max(max, hn::IfThenZeroElse(nan, magnitude));
  }
  return max;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TRANSFORM_ANY_GROUPS_INL_H_
