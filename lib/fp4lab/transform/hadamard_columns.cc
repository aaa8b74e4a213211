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

// The lanes that `split` leaves to the reference, from a copy of x made before x was overwritten.
template <int kSize>
void TransformExactly(const Buffer& x, std::uint32_t sign_mask, const Split& split, float* out,
                      std::size_t stride) {
  HWY_ALIGN float exact[kLanes];
  hn::Store(hn::IfThenZeroElse(split.two, hn::Set(DF(), 1.0f)), DF(), exact);
  for (std::size_t lane = 0; lane < hn::Lanes(DF()); ++lane) {
    if (exact[lane] == 0.0f) continue;
    const MatrixView<const float> group(x.rows + lane, 1, kSize, 0, kLanes);
    reference::RandomHadamard(group, kSize, sign_mask,
                              MatrixView<float>(out + lane, 1, kSize, 0, stride));
  }
}

// One vector of groups. out may be x.
template <int kSize>
HWY_INLINE void TransformVector(const float* x, std::size_t x_stride, const HadamardSigns& signs,
                                float* out, std::size_t out_stride) {
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

void HadamardColumns(const float* x, std::size_t x_stride, std::size_t cols,
                     const HadamardSigns& signs, float* out, std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(HadamardBand)(x, x_stride, cols, signs, out, out_stride);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
