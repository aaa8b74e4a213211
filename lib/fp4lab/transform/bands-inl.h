// RandomHadamard of vectors of groups that run down the memory columns, one group a lane: the fast
// path, and the sinks that take the outputs.
#if defined(FP4LAB_TRANSFORM_BANDS_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_TRANSFORM_BANDS_INL_H_
#undef FP4LAB_TRANSFORM_BANDS_INL_H_
#else
#define FP4LAB_TRANSFORM_BANDS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "fp4lab/transform/kernels.h"

#include <hwy/highway.h>

#include "fp4lab/transform/any_groups-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// A sink takes outputs k and k + 1 of every group, k even. PutSums takes finite sums, never -0, and
// rounds them to BF16; PutBf16 takes BF16 values.

// Drops the outputs.
struct NoRows {
  HWY_INLINE void PutSums(std::size_t /*k*/, VF /*a*/, VF /*b*/) const {}
  HWY_INLINE void PutBf16(std::size_t /*k*/, VF /*a*/, VF /*b*/) const {}
};

// Stores BF16 values as floats: output k in row k of `out`.
struct FloatRows {
  float* out;
  std::size_t stride;
  HWY_INLINE void PutBf16(std::size_t k, VF a, VF b) const {
    hn::StoreU(a, DF(), out + k * stride);
    hn::StoreU(b, DF(), out + (k + 1) * stride);
  }
  HWY_INLINE void PutSums(std::size_t k, VF a, VF b) const {
    PutBf16(k, RoundPositiveZeroToBf16(a), RoundPositiveZeroToBf16(b));
  }
};

// Stores two rows of BF16 values in a row of words, the even row in the lower halves.
struct WordRows {
  std::uint32_t* out;
  std::size_t stride;
  // Stores the upper halves of `low` and `high`.
  HWY_INLINE void PutUpper(std::size_t k, VI low, VI high) const {
    const DU d;
    const VU joined = hn::OrAnd(hn::ShiftRight<16>(hn::BitCast(d, low)), hn::BitCast(d, high),
                                hn::Set(d, 0xFFFF0000u));
    hn::StoreU(joined, d, out + k / 2 * stride);
  }
  HWY_INLINE void PutBf16(std::size_t k, VF a, VF b) const {
    PutUpper(k, hn::BitCast(DI(), a), hn::BitCast(DI(), b));
  }
  HWY_INLINE void PutSums(std::size_t k, VF a, VF b) const {
    PutUpper(k, UpperHalfRounded(a), UpperHalfRounded(b));
  }
};

// Puts the sums of outputs k to k + 3.
template <class Sink>
HWY_INLINE void PutFourSums(const Four& y, std::size_t k, const Sink& sink) {
  sink.PutSums(k, y.a, y.b);
  sink.PutSums(k + 2, y.c, y.e);
}

#if HWY_TARGET != HWY_SCALAR

// The range of BF16 magnitudes, as 16-bit words: the largest, and the smallest minus one (zeros
// wrap to the top, so that they do not count).
using D16 = hn::Repartition<std::uint16_t, DF>;
using V16 = hn::Vec<D16>;
struct WordRange {
  V16 largest, smallest;
};
HWY_INLINE WordRange EmptyWordRange() { return {hn::Zero(D16()), hn::Set(D16(), 0xFFFF)}; }
HWY_INLINE void Widen(VF a, VF b, WordRange* range) {
  const DU d;
  const D16 d16;
  const VU upper = hn::BitCast(d, a), lower = hn::ShiftRight<16>(hn::BitCast(d, b));
  const VU magnitude = hn::Set(d, 0x7FFF7FFF);
#if HWY_TARGET <= HWY_AVX3
  const VU joined{_mm512_ternarylogic_epi32(upper.raw, lower.raw, magnitude.raw, 0xA8)};
#else
  const VU joined = hn::And(hn::Or(upper, lower), magnitude);
#endif
  const V16 words = hn::BitCast(d16, joined);
  range->largest = hn::Max(range->largest, words);
  range->smallest = hn::Min(range->smallest, hn::Sub(words, hn::Set(d16, 1)));
}

// a * fa + b * fb and a * fa - b * fb, never -0 (exact products; fused or not is the same then).
struct SumAndDifference {
  VF sum, difference;
};
HWY_INLINE SumAndDifference SignedPair(VF a, VF b, const float* fa, const float* fb) {
  const DF d;
  const VF first = hn::MulAdd(a, hn::Set(d, *fa), hn::Zero(d)), f = hn::Set(d, *fb);
  return {hn::MulAdd(b, f, first), hn::NegMulAdd(b, f, first)};
}

// Whether the sums of all lanes were exact (see lanes-inl.h). The sums of 4, 16 and 64 terms
// include their factor.
template <int kSize>
HWY_INLINE bool AllExact(const WordRange& range, VF largest_output) {
  const DU d;
  const DI di;
  constexpr int kFactorBits = HasExactHadamardFactor(kSize) ? HadamardStages(kSize) / 2 : 0;
  const VU words = hn::BitCast(d, range.smallest), low = hn::Set(d, 0xFFFF);
  const VU least = hn::Min(hn::And(words, low), hn::ShiftRight<16>(words));  // minus one
  const VU top_words = hn::BitCast(d, range.largest);
  const VU top = hn::Max(hn::And(top_words, low), hn::ShiftRight<16>(top_words));
  // The exponent field of the smallest nonzero term; for a group of zeros the largest field.
  const VU exponent = hn::ShiftRight<7>(hn::Min(hn::Add(least, hn::Set(d, 1)), hn::Set(d, 0x7F80)));
  const VU bound = hn::Add(hn::Max(exponent, hn::Set(d, 1)), hn::Set(d, 16 - kFactorBits));
  const VI y = hn::BitCast(di, largest_output);
  const auto exact = hn::Lt(hn::ShiftRight<23>(y), hn::BitCast(di, bound));
  const auto no_overflow = hn::Lt(hn::BitCast(di, top), hn::Set(di, LeastOverflow(kSize) << 7));
  return hn::AllTrue(di, hn::And(exact, no_overflow));
}

// Sixteen outputs of every group: rows[k] holds outputs 4 k to 4 k + 3.
struct Sixteen {
  Four rows[4];
};

// The stages of strides 2 and 1. Argument g<b> holds rows b, b + 4, b + 8, b + 12 after the stages
// of strides 8 and 4.
HWY_INLINE Sixteen LastStages16(const Four& g0, const Four& g1, const Four& g2, const Four& g3) {
  return {{Hadamard4({g0.a, g1.a, g2.a, g3.a}), Hadamard4({g0.b, g1.b, g2.b, g3.b}),
           Hadamard4({g0.c, g1.c, g2.c, g3.c}), Hadamard4({g0.e, g1.e, g2.e, g3.e})}};
}

HWY_INLINE VF LargestOf(const Four& y) {
  return LargerMagnitude(LargerMagnitude(y.a, y.b), LargerMagnitude(y.c, y.e));
}
HWY_INLINE VF LargestOf(const Sixteen& y) {
  return LargerMagnitude(LargerMagnitude(LargestOf(y.rows[0]), LargestOf(y.rows[1])),
                         LargerMagnitude(LargestOf(y.rows[2]), LargestOf(y.rows[3])));
}

// The stages of strides 8 and 4 for rows b, b + 4, b + 8, b + 12; x and factors start at row b.
HWY_INLINE Four FirstStages16(const float* x, std::size_t stride, const float* factors,
                              WordRange* range) {
  const DF d;
  const VF a = hn::LoadU(d, x), b = hn::LoadU(d, x + 4 * stride);
  const VF c = hn::LoadU(d, x + 8 * stride), e = hn::LoadU(d, x + 12 * stride);
  Widen(a, b, range);
  Widen(c, e, range);
  const SumAndDifference p = SignedPair(a, b, factors, factors + 4);
  const SumAndDifference q = SignedPair(c, e, factors + 8, factors + 12);
  return {hn::Add(p.sum, q.sum), hn::Add(p.difference, q.difference), hn::Sub(p.sum, q.sum),
          hn::Sub(p.difference, q.difference)};
}

// The stage of stride 16: returns row k and puts row k + 16 into *buffer.
HWY_INLINE VF FirstStage32(const float* x, std::size_t stride, const float* factors, std::size_t k,
                           WordRange* range, Buffer* buffer) {
  const DF d;
  const VF a = hn::LoadU(d, x + k * stride), b = hn::LoadU(d, x + (k + 16) * stride);
  Widen(a, b, range);
  const SumAndDifference p = SignedPair(a, b, factors + k, factors + k + 16);
  buffer->Put(k + 16, p.difference);
  return p.sum;
}

template <class Sink>
HWY_INLINE void PutSixteen(const Sixteen& y, std::size_t k, const Sink& sink) {
  PutFourSums(y.rows[0], k, sink);
  PutFourSums(y.rows[1], k + 4, sink);
  PutFourSums(y.rows[2], k + 8, sink);
  PutFourSums(y.rows[3], k + 12, sink);
}

// Transforms a vector of groups of 16. If all sums are exact, puts them into `sink`, sets *largest
// to each lane's largest magnitude before rounding, and returns true; else `sink` gets nothing.
template <class Sink>
HWY_INLINE bool TransformFast16(const float* x, std::size_t stride, const HadamardFactors& factors,
                                const Sink& sink, VF* largest) {
  WordRange range = EmptyWordRange();
  const float* f = factors.of_elements;
  const Four g0 = FirstStages16(x, stride, f, &range);
  const Four g1 = FirstStages16(x + stride, stride, f + 1, &range);
  const Four g2 = FirstStages16(x + 2 * stride, stride, f + 2, &range);
  const Four g3 = FirstStages16(x + 3 * stride, stride, f + 3, &range);
  const Sixteen y = LastStages16(g0, g1, g2, g3);
  *largest = LargestOf(y);
  if (HWY_UNLIKELY(!AllExact<16>(range, *largest))) return false;
  PutSixteen(y, 0, sink);
  return true;
}

// TransformFast16 for groups of 32. The lower half of the outputs is kept in memory until the upper
// half is computed.
template <class Sink>
HWY_INLINE bool TransformFast32(const float* x, std::size_t stride, const HadamardFactors& factors,
                                const Sink& sink, VF* largest) {
  WordRange range = EmptyWordRange();
  Buffer buffer;
  const auto sums = [&](std::size_t b) HWY_ATTR {
    const auto row = [&](std::size_t k) HWY_ATTR {
      return FirstStage32(x, stride, factors.of_elements, k, &range, &buffer);
    };
    const VF a = row(b), c = row(b + 4), e = row(b + 8), f = row(b + 12);
    return Hadamard4({a, c, e, f});
  };
  const Four g0 = sums(0), g1 = sums(1), g2 = sums(2), g3 = sums(3);
  const Sixteen lower = LastStages16(g0, g1, g2, g3);
  for (std::size_t k = 0; k < 4; ++k) buffer.PutFour(4 * k, lower.rows[k]);
  const auto differences = [&](std::size_t b)
                               HWY_ATTR { return Hadamard4(buffer.GetFour(16 + b, 4)); };
  const Sixteen upper =
      LastStages16(differences(0), differences(1), differences(2), differences(3));
  const VF unscaled = LargerMagnitude(LargestOf(lower), LargestOf(upper));
  if (HWY_UNLIKELY(!AllExact<32>(range, unscaled))) return false;
  *largest = Scaled<32>(unscaled);
  PutSixteen({{ScaledFour<32>(upper.rows[0]), ScaledFour<32>(upper.rows[1]),
               ScaledFour<32>(upper.rows[2]), ScaledFour<32>(upper.rows[3])}},
             16, sink);
  for (std::size_t k = 0; k < 16; k += 4) {
    PutFourSums(ScaledFour<32>(buffer.GetFour(k, 1)), k, sink);
  }
  return true;
}

#endif

// Transforms one vector of groups of 16 or 32 into `sink`, which may overwrite x. Returns the
// largest magnitude of each lane, as binary32 bits; NaN is ignored.
template <int kSize, class Sink>
HWY_INLINE VI TransformVector(const float* x, std::size_t stride, const HadamardFactors& factors,
                              const Sink& sink) {
#if HWY_TARGET != HWY_SCALAR
  VF largest;
  bool exact;
  if constexpr (kSize == 16) {
    exact = TransformFast16(x, stride, factors, sink, &largest);
  } else {
    exact = TransformFast32(x, stride, factors, sink, &largest);
  }
  // Rounding is monotonic: the largest sum, rounded, is the largest output.
  if (HWY_LIKELY(exact)) return hn::BitCast(DI(), RoundPositiveZeroToBf16(largest));
#endif
  Buffer y;
  TransformAny<kSize>(x, stride, factors, &y);
  for (std::size_t k = 0; k < kSize; k += 2) sink.PutBf16(k, y.Get(k), y.Get(k + 1));
  return AmaxOf<kSize>(y);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TRANSFORM_BANDS_INL_H_
