// RandomHadamard with groups down the memory columns: one group a lane.
#include <algorithm>
#include <bit>
#include <cstddef>

#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/transform/hadamard_columns.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/transform/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

constexpr std::size_t kLanes = hn::MaxLanes(DF());

// kSize rows of one vector each.
struct Buffer {
  HWY_ALIGN float rows[32 * kLanes];
  HWY_INLINE VF Get(std::size_t k) const { return hn::Load(DF(), rows + k * kLanes); }
  HWY_INLINE void Put(std::size_t k, VF x) { hn::Store(x, DF(), rows + k * kLanes); }
};

// Which terms a pass takes.
enum class Terms { kAll, kHigh, kLow };

// Term k of the sums: x_k times its sign (and, for size 16, the exact factor 1/4).
template <Terms kTerms>
HWY_INLINE VF Term(const float* x, const float* signs, std::size_t k, const Split& split) {
  const VF value = hn::LoadU(DF(), x);
  const VF term = hn::Mul(value, hn::Set(DF(), signs[k]));
  if constexpr (kTerms == Terms::kHigh) return hn::IfThenElseZero(IsHigh(split, value), term);
  if constexpr (kTerms == Terms::kLow) return hn::IfThenZeroElse(IsHigh(split, value), term);
  return term;
}

// The Hadamard transform's stages of stride kSize / 4 and kSize / 2, which read x.
template <int kSize, Terms kTerms>
HWY_INLINE void FirstStages(const float* x, std::size_t stride, const float* signs,
                            const Split& split, Buffer* buffer) {
  constexpr std::size_t kQuarter = kSize / 4;
  for (std::size_t b = 0; b < kQuarter; ++b) {
    const auto term = [&](std::size_t i) HWY_ATTR {
      const std::size_t k = b + i * kQuarter;
      return Term<kTerms>(x + k * stride, signs, k, split);
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
HWY_INLINE void StoreRounded(VF y, float* out) {
  if constexpr (kSize == 32) y = hn::Mul(y, hn::Set(DF(), kInverseSqrt32));
  hn::StoreU(RoundLanesToBf16(y), DF(), out);
}

template <int kSize>
HWY_INLINE void StoreFour(const Four& y, std::size_t k, std::size_t stride, float* out) {
  StoreRounded<kSize>(y.a, out + k * stride);
  StoreRounded<kSize>(y.b, out + (k + 1) * stride);
  StoreRounded<kSize>(y.c, out + (k + 2) * stride);
  StoreRounded<kSize>(y.e, out + (k + 3) * stride);
}

// A vector of groups of which some need two sums.
template <int kSize>
void TransformSplit(const float* x, std::size_t x_stride, const float* signs, const Split& split,
                    float* out, std::size_t out_stride) {
  Buffer high, low;
  FirstStages<kSize, Terms::kHigh>(x, x_stride, signs, split, &high);
  FirstStages<kSize, Terms::kLow>(x, x_stride, signs, split, &low);
  if constexpr (kSize == 32) {
    MiddleStage(&high);
    MiddleStage(&low);
  }
  for (std::size_t k = 0; k < kSize; k += 4) {
    const Four h = LastStages(high, k), l = LastStages(low, k);
    StoreFour<kSize>({hn::Add(h.a, l.a), hn::Add(h.b, l.b), hn::Add(h.c, l.c), hn::Add(h.e, l.e)},
                     k, out_stride, out);
  }
}

// The lanes that `split` leaves over, from a copy of x made before x was overwritten.
template <int kSize>
void TransformExactly(const Buffer& x, std::uint32_t sign_mask, const Split& split, float* out,
                      std::size_t stride) {
  HWY_ALIGN float exact[kLanes];
  hn::Store(hn::IfThenZeroElse(split.two, hn::Set(DF(), 1.0f)), DF(), exact);
  for (std::size_t lane = 0; lane < hn::Lanes(DF()); ++lane) {
    if (exact[lane] == 0.0f) continue;
    const MatrixView<const float> group(x.rows + lane, 1, kSize, 0, kLanes);
    HadamardWideGroup(group, sign_mask, MatrixView<float>(out + lane, 1, kSize, 0, stride));
  }
}

#if HWY_TARGET != HWY_SCALAR

// BF16 magnitudes as 16-bit words: the largest, and the smallest less one (zeros wrap to the top).
using D16 = hn::Repartition<std::uint16_t, DF>;
using V16 = hn::Vec<D16>;
struct WordRange {
  V16 largest, smallest;
};
HWY_INLINE WordRange EmptyWordRange() { return {hn::Zero(D16()), hn::Set(D16(), 0xFFFF)}; }
HWY_INLINE void Widen(VF a, VF b, WordRange* range) {
  const DU d;
  const D16 d16;
  const VU joined = hn::Or(hn::BitCast(d, a), hn::ShiftRight<16>(hn::BitCast(d, b)));
  const V16 words = hn::And(hn::BitCast(d16, joined), hn::Set(d16, 0x7FFF));
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

// Rows b, b + 4, b + 8, b + 12 after the stages of strides 8 and 4.
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

HWY_INLINE VF LargestOf(const Four& y) {
  return LargerMagnitude(LargerMagnitude(y.a, y.b), LargerMagnitude(y.c, y.e));
}

// Outputs 4 k to 4 k + 3 are rows[k].
struct Sixteen {
  Four rows[4];
  VF largest;
  bool exact;
};

// Whether all lanes' sums were exact (see lanes-inl.h).
HWY_INLINE bool AllExact(const WordRange& range, VF largest_output) {
  const DU d;
  const DI di;
  const VU words = hn::BitCast(d, range.smallest), low = hn::Set(d, 0xFFFF);
  const VU least = hn::Min(hn::And(words, low), hn::ShiftRight<16>(words));  // less one
  const VU top_words = hn::BitCast(d, range.largest);
  const VU top = hn::Max(hn::And(top_words, low), hn::ShiftRight<16>(top_words));
  // The exponent field of the smallest nonzero term; a group of zeros gives the largest there is.
  const VU exponent = hn::ShiftRight<7>(hn::Min(hn::Add(least, hn::Set(d, 1)), hn::Set(d, 0x7F80)));
  const VU bound = hn::Add(hn::Max(exponent, hn::Set(d, 1)), hn::Set(d, 14));
  const VI y = hn::BitCast(di, largest_output);
  const auto exact = hn::Lt(hn::ShiftRight<23>(y), hn::BitCast(di, bound));
  const auto no_overflow = hn::Lt(hn::BitCast(di, top), hn::Set(di, (255 - 6) << 7));
  return hn::AllTrue(di, hn::And(exact, no_overflow));
}

HWY_INLINE Sixteen Transform16(const float* x, std::size_t stride, const HadamardSigns& signs) {
  WordRange range = EmptyWordRange();
  const Four g0 = FirstStages16(x, stride, signs.factors, &range);
  const Four g1 = FirstStages16(x + stride, stride, signs.factors + 1, &range);
  const Four g2 = FirstStages16(x + 2 * stride, stride, signs.factors + 2, &range);
  const Four g3 = FirstStages16(x + 3 * stride, stride, signs.factors + 3, &range);
  Sixteen y;
  y.rows[0] = Hadamard4({g0.a, g1.a, g2.a, g3.a});
  y.rows[1] = Hadamard4({g0.b, g1.b, g2.b, g3.b});
  y.rows[2] = Hadamard4({g0.c, g1.c, g2.c, g3.c});
  y.rows[3] = Hadamard4({g0.e, g1.e, g2.e, g3.e});
  y.largest = LargerMagnitude(LargerMagnitude(LargestOf(y.rows[0]), LargestOf(y.rows[1])),
                              LargerMagnitude(LargestOf(y.rows[2]), LargestOf(y.rows[3])));
  y.exact = AllExact(range, y.largest);
  return y;
}

HWY_INLINE void StoreSixteen(const Sixteen& y, float* out, std::size_t stride) {
  const auto store = [&](const Four& f, float* to) HWY_ATTR {
    hn::StoreU(RoundPositiveZeroToBf16(f.a), DF(), to);
    hn::StoreU(RoundPositiveZeroToBf16(f.b), DF(), to + stride);
    hn::StoreU(RoundPositiveZeroToBf16(f.c), DF(), to + 2 * stride);
    hn::StoreU(RoundPositiveZeroToBf16(f.e), DF(), to + 3 * stride);
  };
  store(y.rows[0], out);
  store(y.rows[1], out + 4 * stride);
  store(y.rows[2], out + 8 * stride);
  store(y.rows[3], out + 12 * stride);
}

#endif

// One vector of groups. out may be x.
template <int kSize>
HWY_INLINE void TransformVector(const float* x, std::size_t x_stride, const HadamardSigns& signs,
                                float* out, std::size_t out_stride) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kSize == 16) {
    const Sixteen y = Transform16(x, x_stride, signs);
    if (HWY_LIKELY(y.exact)) return StoreSixteen(y, out, out_stride);
  }
#endif
  Range range = EmptyRange();
  for (std::size_t k = 0; k < kSize; ++k) {
    range = Widen(range, hn::LoadU(DF(), x + k * x_stride));
  }
  const Split split = SplitOf(range, kSize);
  if (HWY_LIKELY(hn::AllTrue(DF(), split.one))) {
    Buffer buffer;
    FirstStages<kSize, Terms::kAll>(x, x_stride, signs.factors, split, &buffer);
    if constexpr (kSize == 32) MiddleStage(&buffer);
    for (std::size_t k = 0; k < kSize; k += 4) {
      StoreFour<kSize>(LastStages(buffer, k), k, out_stride, out);
    }
    return;
  }
  Buffer copy;
  for (std::size_t k = 0; k < kSize; ++k) copy.Put(k, hn::LoadU(DF(), x + k * x_stride));
  TransformSplit<kSize>(x, x_stride, signs.factors, split, out, out_stride);
  if (!hn::AllTrue(DF(), split.two)) {
    TransformExactly<kSize>(copy, signs.mask, split, out, out_stride);
  }
}

// The largest magnitude, NaN left out, of a buffer's rows.
template <int kSize>
HWY_INLINE VI AmaxOf(const Buffer& y) {
  const DI d;
  VI max = hn::Zero(d);
  for (std::size_t k = 0; k < kSize; ++k) {
    const VI magnitude = hn::And(hn::BitCast(d, y.Get(k)), hn::Set(d, 0x7FFFFFFF));
    const auto nan = hn::Gt(magnitude, hn::Set(d, 0x7F800000));
    max = hn::Max(max, hn::IfThenZeroElse(nan, magnitude));
  }
  return max;
}

// The amaxes of one vector of groups, as bits.
template <int kSize>
HWY_INLINE VI AmaxOfVector(const float* x, std::size_t stride, const HadamardSigns& signs) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kSize == 16) {
    const Sixteen y = Transform16(x, stride, signs);
    // Rounding keeps the order.
    if (HWY_LIKELY(y.exact)) return hn::BitCast(DI(), RoundPositiveZeroToBf16(y.largest));
  }
#endif
  Buffer y;
  TransformVector<kSize>(x, stride, signs, y.rows, kLanes);
  return AmaxOf<kSize>(y);
}

template <int kSize>
float AmaxOfBand(const float* x, std::size_t stride, std::size_t cols, const HadamardSigns& signs) {
  const std::size_t lanes = hn::Lanes(DF());
  VI max = hn::Zero(DI());
  std::size_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    max = hn::Max(max, AmaxOfVector<kSize>(x + c, stride, signs));
  }
  if (c < cols) {
    Buffer part = {};
    for (std::size_t k = 0; k < kSize; ++k) {
      std::copy_n(x + k * stride + c, cols - c, part.rows + k * kLanes);
    }
    max = hn::Max(max, AmaxOfVector<kSize>(part.rows, kLanes, signs));
  }
  return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(DI(), max)));
}

float HadamardBandAmax(const float* x, std::size_t stride, std::size_t cols,
                       const HadamardSigns& signs) {
  return signs.size == 16 ? AmaxOfBand<16>(x, stride, cols, signs)
                          : AmaxOfBand<32>(x, stride, cols, signs);
}

template <int kSize>
void TransformBand(const float* x, std::size_t x_stride, std::size_t cols,
                   const HadamardSigns& signs, float* out, std::size_t out_stride) {
  const std::size_t lanes = hn::Lanes(DF());
  std::size_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    TransformVector<kSize>(x + c, x_stride, signs, out + c, out_stride);
  }
  if (c == cols) return;
  Buffer part = {};  // zeros beside the last columns
  for (std::size_t k = 0; k < kSize; ++k) {
    std::copy_n(x + k * x_stride + c, cols - c, part.rows + k * kLanes);
  }
  TransformVector<kSize>(part.rows, kLanes, signs, part.rows, kLanes);
  for (std::size_t k = 0; k < kSize; ++k) {
    std::copy_n(part.rows + k * kLanes, cols - c, out + k * out_stride + c);
  }
}

// `size` memory rows of `cols` columns.
void HadamardBand(const float* x, std::size_t x_stride, std::size_t cols,
                  const HadamardSigns& signs, float* out, std::size_t out_stride) {
  if (signs.size == 16) {
    TransformBand<16>(x, x_stride, cols, signs, out, out_stride);
  } else {
    TransformBand<32>(x, x_stride, cols, signs, out, out_stride);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {

HWY_EXPORT(HadamardBand);
HWY_EXPORT(HadamardBandAmax);

float HadamardColumnsAmax(const float* x, std::size_t x_stride, std::size_t cols,
                          const HadamardSigns& signs) {
  return HWY_DYNAMIC_DISPATCH(HadamardBandAmax)(x, x_stride, cols, signs);
}

void HadamardColumns(const float* x, std::size_t x_stride, std::size_t cols,
                     const HadamardSigns& signs, float* out, std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(HadamardBand)(x, x_stride, cols, signs, out, out_stride);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
