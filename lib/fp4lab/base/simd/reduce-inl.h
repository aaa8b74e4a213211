// Reductions of floats for kernels: the order of base/simd/reduce.h, the same bits on every SIMD
// target. Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per
// target.
#if defined(FP4LAB_BASE_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BASE_REDUCE_INL_H_
#undef FP4LAB_BASE_REDUCE_INL_H_
#else
#define FP4LAB_BASE_REDUCE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <limits>

#include "fp4lab/base/simd/reduce.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// Vectors of at most 16 lanes, so that a group of 16 elements is a whole number of vectors.
using ReduceTag = hwy::HWY_NAMESPACE::CappedTag<float, kReductionLanes>;
using ReduceVec = hwy::HWY_NAMESPACE::Vec<ReduceTag>;

struct SumStep {
  static constexpr float kStart = 0.0f;
  template <class V>
  HWY_INLINE V operator()(V lane, V x) const {
    return hwy::HWY_NAMESPACE::Add(lane, x);
  }
};

struct MaxStep {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  template <class V>
  HWY_INLINE V operator()(V lane, V x) const {  // hn::Max treats NaN differently on each target
    return hwy::HWY_NAMESPACE::IfThenElse(hwy::HWY_NAMESPACE::Gt(x, lane), x, lane);
  }
};

// The 16 virtual lanes of one running reduction. Take(j, x) combines x, elements [j, j + Lanes) of
// a group of 16, with the lanes of the same indices; a caller that has other work per vector can
// call Take directly.
template <class Step>
class VirtualLanes {
 public:
  static constexpr std::size_t kLanes = hwy::HWY_NAMESPACE::MaxLanes(ReduceTag());
  static constexpr std::size_t kVectors = kReductionLanes / kLanes;

  HWY_INLINE VirtualLanes() {
    for (auto& lane : lanes_) lane = hwy::HWY_NAMESPACE::Set(ReduceTag(), Step::kStart);
  }

  HWY_INLINE void Take(std::size_t j, ReduceVec x) {
    lanes_[j / kLanes] = Step()(lanes_[j / kLanes], x);
  }

  // Takes the last `count` < 16 elements from a buffer of 16; the rest of the buffer is ignored.
  HWY_INLINE void TakeLast(const float* HWY_RESTRICT buffer, std::size_t count) {
    namespace hn = hwy::HWY_NAMESPACE;
    const ReduceTag d;
    for (std::size_t j = 0; j < count; j += kLanes) {
      const auto valid = hn::FirstN(d, std::min(kLanes, count - j));
      const ReduceVec after = Step()(lanes_[j / kLanes], hn::LoadU(d, buffer + j));
      lanes_[j / kLanes] = hn::IfThenElse(valid, after, lanes_[j / kLanes]);
    }
  }

  HWY_INLINE float Result() const {
    namespace hn = hwy::HWY_NAMESPACE;
    const ReduceTag d;
    HWY_ALIGN float lanes[kReductionLanes];
    for (std::size_t i = 0; i < kVectors; ++i) hn::Store(lanes_[i], d, lanes + i * kLanes);
    const hn::CappedTag<float, 4> d4;
    for (std::size_t width = kReductionLanes / 2; width >= 4; width /= 2) {
      for (std::size_t i = 0; i < width; i += hn::Lanes(d4)) {
        hn::Store(Step()(hn::Load(d4, lanes + i), hn::Load(d4, lanes + width + i)), d4, lanes + i);
      }
    }
    const hn::CappedTag<float, 1> d1;
    const auto even = Step()(hn::Load(d1, lanes), hn::Load(d1, lanes + 2));
    const auto odd = Step()(hn::LoadU(d1, lanes + 1), hn::LoadU(d1, lanes + 3));
    return hn::GetLane(Step()(even, odd));
  }

 private:
  ReduceVec lanes_[kVectors];
};

// Reduces term(x...) over n elements, where x... are vectors of the inputs at the same place.
// `term` must be pure and elementwise: it also sees zeros beyond the end, whose results are
// dropped.
template <class Step, class Term, class... In>
HWY_INLINE float Reduce(std::size_t n, Term term, const In*... in) {
  namespace hn = hwy::HWY_NAMESPACE;
  const ReduceTag d;
  VirtualLanes<Step> lanes;
  std::size_t i = 0;
  for (; i + kReductionLanes <= n; i += kReductionLanes) {
    for (std::size_t j = 0; j < kReductionLanes; j += lanes.kLanes) {
      lanes.Take(j, term(hn::LoadU(d, in + i + j)...));
    }
  }
  if (i == n) return lanes.Result();
  const std::size_t rest = n - i;
  const auto load_last = [d, i, rest](const float* from, std::size_t j) HWY_ATTR {
    HWY_ALIGN float padded[kReductionLanes] = {};
    std::copy_n(from + i, rest, padded);
    return hn::Load(d, padded + j);
  };
  HWY_ALIGN float terms[kReductionLanes];
  for (std::size_t j = 0; j < kReductionLanes; j += lanes.kLanes) {
    hn::Store(term(load_last(in, j)...), d, terms + j);
  }
  lanes.TakeLast(terms, rest);
  return lanes.Result();
}

// SumInOrder and MaxInOrder of terms, for example
//   Sum(n, [](auto v) HWY_ATTR { return hn::Mul(v, v); }, x)     for the sum of squares.
template <class Term, class... In>
HWY_INLINE float Sum(std::size_t n, Term term, const float* first, const In*... in) {
  return Reduce<SumStep>(n, term, first, in...);
}
template <class Term, class... In>
HWY_INLINE float Max(std::size_t n, Term term, const float* first, const In*... in) {
  return Reduce<MaxStep>(n, term, first, in...);
}

// SumInOrder and MaxInOrder of the elements themselves.
HWY_INLINE float Sum(std::size_t n, const float* x) {
  return Reduce<SumStep>(
      n, [](ReduceVec v) HWY_ATTR { return v; }, x);
}
HWY_INLINE float Max(std::size_t n, const float* x) {
  return Reduce<MaxStep>(
      n, [](ReduceVec v) HWY_ATTR { return v; }, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BASE_REDUCE_INL_H_
