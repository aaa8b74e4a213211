// Causal softmax down the columns of a block of scores, for kernels, with one query per lane.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_NN_SOFTMAX_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_NN_SOFTMAX_LANES_INL_H_
#undef FP4LAB_NN_SOFTMAX_LANES_INL_H_
#else
#define FP4LAB_NN_SOFTMAX_LANES_INL_H_
#endif

#include <cstddef>
#include <limits>

#include <hwy/highway.h>

#include "fp4lab/nn/lanes/math-inl.h"
#include "fp4lab/nn/lanes/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kBlock = kPanelCols;  // queries in a block
inline constexpr std::size_t kSpan = 2 * kBlock;   // queries side by side: a row of scores

// The number of keys whose exponentials are computed together.
inline constexpr std::size_t kTogether = kPanelWide ? 8 : 4;
using TogetherVectors = Vectors<hwy::HWY_NAMESPACE::Vec<PanelTag>, kTogether>;

// Whether the lanes at `lane` of the query block may see key `u` of the same 16 positions.
template <class D>
HWY_INLINE auto Sees(D d, std::size_t lane, std::size_t u) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::Ge(hn::Iota(d, static_cast<float>(lane)), hn::Set(d, static_cast<float>(u)));
}

// The larger value of each lane; a NaN in `x` is passed over (the sum will be NaN).
template <class V>
HWY_INLINE V Larger(V lane, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::IfThenElse(hn::Gt(x, lane), x, lane);
}

// The maximum of each lane of s (keys, 16), rows kSpan apart, over the keys that the lane sees.
// Four running maxima hide the latency of a single chain.
HWY_INLINE hwy::HWY_NAMESPACE::Vec<PanelTag> MaxOfLanes(std::size_t keys, const float* s,
                                                        std::size_t lane) {
  namespace hn = hwy::HWY_NAMESPACE;
  const PanelTag d;
  const std::size_t diagonal = keys - kBlock;
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto m0 = lowest, m1 = lowest, m2 = lowest, m3 = lowest;
  for (std::size_t j = 0; j < diagonal; j += 4) {
    const float* row = s + j * kSpan + lane;
    m0 = Larger(m0, hn::Load(d, row));
    m1 = Larger(m1, hn::Load(d, row + kSpan));
    m2 = Larger(m2, hn::Load(d, row + 2 * kSpan));
    m3 = Larger(m3, hn::Load(d, row + 3 * kSpan));
  }
  auto m = Larger(Larger(m0, m1), Larger(m2, m3));
  for (std::size_t u = 0; u < kBlock; ++u) {
    const auto seen =
        hn::IfThenElse(Sees(d, lane, u), hn::Load(d, s + (diagonal + u) * kSpan + lane), lowest);
    m = Larger(m, seen);
  }
  return m;
}

// Turns scores s (keys, 16), rows kSpan apart, into exp(s - max), 0 where masked; writes max and
// 1 / sum of each lane.
HWY_INLINE void SoftmaxLanes(std::size_t keys, float* s, float* max, float* inverse_sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  const PanelTag d;
  const std::size_t diagonal = keys - kBlock;
  for (std::size_t lane = 0; lane < kBlock; lane += hn::Lanes(d)) {
    const auto m = MaxOfLanes(keys, s, lane);
    auto sum = hn::Zero(d);
    for (std::size_t j = 0; j < diagonal; j += kTogether) {
      float* rows = s + j * kSpan + lane;
      TogetherVectors p;
      p.Each([&](auto i) HWY_ATTR { p.at[i] = hn::Sub(hn::Load(d, rows + i * kSpan), m); });
      p = ExpNonPositive(d, p);
      p.Each([&](auto i) HWY_ATTR { hn::Store(p.at[i], d, rows + i * kSpan); });
      p.Each([&](auto i) HWY_ATTR { sum = hn::Add(sum, p.at[i]); });
    }
    for (std::size_t u = 0; u < kBlock; u += kTogether) {
      float* rows = s + (diagonal + u) * kSpan + lane;
      TogetherVectors p;
      p.Each([&](auto i) HWY_ATTR { p.at[i] = hn::Sub(hn::Load(d, rows + i * kSpan), m); });
      p = ExpNonPositive(d, p);
      p.Each([&](auto i) HWY_ATTR { p.at[i] = hn::IfThenElseZero(Sees(d, lane, u + i), p.at[i]); });
      p.Each([&](auto i) HWY_ATTR { hn::Store(p.at[i], d, rows + i * kSpan); });
      p.Each([&](auto i) HWY_ATTR { sum = hn::Add(sum, p.at[i]); });
    }
    hn::Store(m, d, max + lane);
    hn::Store(hn::Div(hn::Set(d, 1.0f), sum), d, inverse_sum + lane);
  }
}

// From scores s and dp = dout . v (keys, 16), rows kSpan apart: s becomes the probabilities p, dp
// becomes ds.
HWY_INLINE void SoftmaxLanesBackward(std::size_t keys, const float* max, const float* inverse_sum,
                                     const float* dot, float* s, float* dp) {
  namespace hn = hwy::HWY_NAMESPACE;
  const PanelTag d;
  const std::size_t diagonal = keys - kBlock;
  for (std::size_t lane = 0; lane < kBlock; lane += hn::Lanes(d)) {
    const auto m = hn::Load(d, max + lane), inverse = hn::Load(d, inverse_sum + lane);
    const auto own = hn::Load(d, dot + lane);
    const auto step = [&](std::size_t j, auto see) HWY_ATTR {
      float *s_rows = s + j * kSpan + lane, *dp_rows = dp + j * kSpan + lane;
      TogetherVectors p;
      p.Each([&](auto i) HWY_ATTR { p.at[i] = hn::Sub(hn::Load(d, s_rows + i * kSpan), m); });
      p = ExpNonPositive(d, p);
      p.Each([&](auto i) HWY_ATTR { p.at[i] = hn::Mul(p.at[i], inverse); });
      p.Each([&](auto i) HWY_ATTR {
        const auto ds = hn::Mul(p.at[i], hn::Sub(hn::Load(d, dp_rows + i * kSpan), own));
        hn::Store(see(i, ds), d, dp_rows + i * kSpan);
        hn::Store(see(i, p.at[i]), d, s_rows + i * kSpan);
      });
    };
    for (std::size_t j = 0; j < diagonal; j += kTogether) {
      step(j, [](auto, auto x) HWY_ATTR { return x; });
    }
    for (std::size_t u = 0; u < kBlock; u += kTogether) {
      step(diagonal + u,
           [&](auto i, auto x) HWY_ATTR { return hn::IfThenElseZero(Sees(d, lane, u + i), x); });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_NN_SOFTMAX_LANES_INL_H_
