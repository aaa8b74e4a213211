// RandomHadamard of vectors of groups that run down the memory columns, one group a lane, for sizes
// other than 16 and 32: in binary32 if that is exact for a whole vector, else in binary64.
#if defined(FP4LAB_TRANSFORM_SIZES_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_TRANSFORM_SIZES_INL_H_
#undef FP4LAB_TRANSFORM_SIZES_INL_H_
#else
#define FP4LAB_TRANSFORM_SIZES_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "fp4lab/transform/kernels.h"

#include <hwy/highway.h>

#include "fp4lab/transform/bands-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

using DD = hn::ScalableTag<double>;
using DHalf = hn::Rebind<float, DD>;  // as many lanes as DD
using VD = hn::Vec<DD>;

// The Hadamard transform of kN vectors, in place. The recursion makes every index a constant.
template <int kN, class V>
HWY_INLINE void HadamardOf(V* v) {
  if constexpr (kN == 2) {
    const V sum = hn::Add(v[0], v[1]);
    v[1] = hn::Sub(v[0], v[1]);
    v[0] = sum;
  } else {
    for (int i = 0; i < kN / 2; ++i) {
      const V sum = hn::Add(v[i], v[i + kN / 2]);
      v[i + kN / 2] = hn::Sub(v[i], v[i + kN / 2]);
      v[i] = sum;
    }
    HadamardOf<kN / 2>(v);
    HadamardOf<kN / 2>(v + kN / 2);
  }
}

// Transforms kSize terms, vectors that term(k) returns. put(k, y) gets each output once, after all
// terms of its pass were read. Sizes above 8 take two passes, with `between` as memory between
// them.
template <int kSize, class D, class Term, class Put>
HWY_INLINE void TransformTerms(D d, const Term& term, hn::TFromD<D>* between, const Put& put) {
  using V = hn::Vec<D>;
  constexpr int kFirst = std::min(kSize, 8), kSecond = kSize / kFirst;
  constexpr std::size_t kWidth = hn::MaxLanes(D());
  for (std::size_t b = 0; b < kSecond; ++b) {
    V v[kFirst];
    for (std::size_t i = 0; i < kFirst; ++i) v[i] = term(b + i * kSecond);
    HadamardOf<kFirst>(v);
    for (std::size_t i = 0; i < kFirst; ++i) {
      if constexpr (kSecond == 1) {
        put(i, v[i]);
      } else {
        hn::Store(v[i], d, between + (b + i * kSecond) * kWidth);
      }
    }
  }
  if constexpr (kSecond > 1) {
    for (std::size_t a = 0; a < kSize; a += kSecond) {
      V v[kSecond];
      for (std::size_t i = 0; i < kSecond; ++i) v[i] = hn::Load(d, between + (a + i) * kWidth);
      HadamardOf<kSecond>(v);
      for (std::size_t i = 0; i < kSecond; ++i) put(a + i, v[i]);
    }
  }
}

// The lanes whose sums are exact and finite in binary64, from the range of their terms.
template <int kSize>
HWY_INLINE MF ExactInBinary64(const Range& range) {
  const DI d;
  const VI exponent = hn::Set(d, 0x7F800000);
  const VI one_unit = hn::Set(d, 0x00800000);  // subnormals share the least normal's unit
  const VI top = hn::Max(hn::And(range.largest, exponent), one_unit);
  const VI bottom = hn::Max(hn::And(range.smallest, exponent), one_unit);
  const VI least = hn::Sub(top, hn::Set(d, ExactSpan(53, kSize) << 23));  // may be negative
  const auto finite = hn::Lt(top, hn::Set(d, LeastOverflow(kSize) << 23));
  return hn::RebindMask(DF(), hn::And(finite, hn::Not(hn::Lt(bottom, least))));
}

// Transforms as many groups as a vector of doubles has lanes: half a vector of floats, or all of a
// vector of one lane. The sums are right in lanes in which binary64 is exact.
template <int kSize>
HWY_INLINE void TransformInBinary64(const float* x, std::size_t stride, const float* factors,
                                    float* y) {
  const DD d;
  const DHalf half;
  HWY_ALIGN double between[kSize * hn::MaxLanes(DD())];
  const auto term = [&](std::size_t k) HWY_ATTR {
    const VD value = hn::PromoteTo(d, hn::LoadU(half, x + k * stride));
    return hn::Mul(value, hn::Set(d, static_cast<double>(factors[k])));
  };
  TransformTerms<kSize>(d, term, between, [&](std::size_t k, VD sum) HWY_ATTR {
    hn::StoreU(hn::DemoteTo(half, sum), half, y + k * kLanes);
  });
}

// Transforms one vector of groups with any values; *y gets BF16 values.
template <int kSize>
HWY_NOINLINE void TransformWide(const float* x, std::size_t stride, const HadamardFactors& factors,
                                RowBuffer<kSize>* y) {
  Range range = EmptyRange();
  for (std::size_t k = 0; k < kSize; ++k) {
    range = Widen(range, hn::LoadU(DF(), x + k * stride));
  }
  const MF exact = ExactInBinary64<kSize>(range);
  for (std::size_t lane = 0; lane < hn::Lanes(DF()); lane += hn::Lanes(DD())) {
    TransformInBinary64<kSize>(x + lane, stride, factors.of_elements, y->rows + lane);
  }
  for (std::size_t k = 0; k < kSize; ++k) y->Put(k, RoundLanesToBf16(Scaled<kSize>(y->Get(k))));
  if (HWY_UNLIKELY(!hn::AllTrue(DF(), exact))) {
    TransformExactly<kSize>(x, stride, factors.transform.signs, exact, y);
  }
}

#if HWY_TARGET != HWY_SCALAR

// The largest size for which binary32 is tried first. Most vectors of longer groups hold a group
// that needs binary64, so that trying binary32 costs more than it saves.
constexpr int kMaxBinary32Size = 64;

// Transforms a vector of groups. If all sums are exact in binary32, puts them into `sink`, sets
// *largest to each lane's largest magnitude before rounding, and returns true; else `sink` gets
// nothing.
template <int kSize, class Sink>
HWY_INLINE bool TransformInBinary32(const float* x, std::size_t stride,
                                    const HadamardFactors& factors, const Sink& sink, VF* largest) {
  const DF d;
  WordRange range = EmptyWordRange();
  RowBuffer<kSize> y;
  VF top = hn::Zero(d);
  const auto term = [&](std::size_t k) HWY_ATTR {  // never -0
    const VF value = hn::LoadU(d, x + k * stride);
    return hn::MulAdd(value, hn::Set(d, factors.of_elements[k]), hn::Zero(d));
  };
  for (std::size_t k = 0; k < kSize; k += 2) {
    Widen(hn::LoadU(d, x + k * stride), hn::LoadU(d, x + (k + 1) * stride), &range);
  }
  TransformTerms<kSize>(d, term, y.rows, [&](std::size_t k, VF sum) HWY_ATTR {
    y.Put(k, sum);
    top = LargerMagnitude(top, sum);
  });
  if (HWY_UNLIKELY(!AllExact<kSize>(range, top))) return false;
  *largest = Scaled<kSize>(top);
  for (std::size_t k = 0; k < kSize; k += 2) {
    sink.PutSums(k, Scaled<kSize>(y.Get(k)), Scaled<kSize>(y.Get(k + 1)));
  }
  return true;
}

#endif

// TransformVector for sizes other than 16 and 32.
template <int kSize, class Sink>
HWY_INLINE VI TransformVectorOfSize(const float* x, std::size_t stride,
                                    const HadamardFactors& factors, const Sink& sink) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kSize <= kMaxBinary32Size) {
    VF largest;
    if (HWY_LIKELY(TransformInBinary32<kSize>(x, stride, factors, sink, &largest))) {
      return hn::BitCast(DI(), RoundPositiveZeroToBf16(largest));
    }
  }
#endif
  RowBuffer<kSize> y;
  TransformWide<kSize>(x, stride, factors, &y);
  for (std::size_t k = 0; k < kSize; k += 2) sink.PutBf16(k, y.Get(k), y.Get(k + 1));
  return AmaxOf<kSize>(y);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TRANSFORM_SIZES_INL_H_
