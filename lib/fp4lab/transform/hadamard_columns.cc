// RandomHadamard with groups down the memory columns: one group a lane.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/transform/hadamard_columns.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/transform/sizes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

// The last `cols` columns, padded with zeros to a whole vector.
template <int kSize>
HWY_INLINE RowBuffer<kSize> LastColumns(const float* x, std::size_t stride, std::size_t cols) {
  RowBuffer<kSize> part = {};
  for (std::size_t k = 0; k < kSize; ++k) std::copy_n(x + k * stride, cols, part.rows + k * kLanes);
  return part;
}

template <int kSize, class Sink>
HWY_INLINE VI TransformGroups(const float* x, std::size_t stride, const HadamardFactors& factors,
                              const Sink& sink) {
  if constexpr (kSize == 16 || kSize == 32) {
    return TransformVector<kSize>(x, stride, factors, sink);
  } else {
    return TransformVectorOfSize<kSize>(x, stride, factors, sink);
  }
}

// Transforms a band of `cols` groups and returns the largest magnitude of its outputs. sink_at(c)
// is the sink of the vector of groups from column c on; the last sink gets all lanes, padding
// included.
template <int kSize, class SinkAt>
HWY_INLINE float TransformBand(const float* x, std::size_t stride, std::size_t cols,
                               const HadamardFactors& factors, const SinkAt& sink_at) {
  const std::size_t lanes = hn::Lanes(DF());
  VI max = hn::Zero(DI());
  std::size_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    max = hn::Max(max, TransformGroups<kSize>(x + c, stride, factors, sink_at(c)));
  }
  if (c < cols) {
    const RowBuffer<kSize> part = LastColumns<kSize>(x + c, stride, cols - c);
    max = hn::Max(max, TransformGroups<kSize>(part.rows, kLanes, factors, sink_at(c)));
  }
  return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(DI(), max)));
}

template <class SinkAt>
HWY_INLINE float TransformBand(const float* x, std::size_t stride, std::size_t cols,
                               const HadamardFactors& factors, const SinkAt& sink_at) {
  switch (factors.transform.size) {
    case 2:
      return TransformBand<2>(x, stride, cols, factors, sink_at);
    case 4:
      return TransformBand<4>(x, stride, cols, factors, sink_at);
    case 8:
      return TransformBand<8>(x, stride, cols, factors, sink_at);
    case 16:
      return TransformBand<16>(x, stride, cols, factors, sink_at);
    case 32:
      return TransformBand<32>(x, stride, cols, factors, sink_at);
    case 64:
      return TransformBand<64>(x, stride, cols, factors, sink_at);
    default:
      return TransformBand<128>(x, stride, cols, factors, sink_at);
  }
}

float HadamardBandAmax(const float* x, std::size_t stride, std::size_t cols,
                       const HadamardFactors& factors) {
  return TransformBand(x, stride, cols, factors, [](std::size_t) HWY_ATTR { return NoRows{}; });
}

float HadamardBandWords(const float* x, std::size_t stride, std::size_t cols,
                        const HadamardFactors& factors, std::uint32_t* out,
                        std::size_t out_stride) {
  return TransformBand(x, stride, cols, factors, [=](std::size_t c) HWY_ATTR {
    return WordRows{out + c, out_stride};
  });
}

// Transforms a band of `size` memory rows and `cols` columns.
void HadamardBand(const float* x, std::size_t stride, std::size_t cols,
                  const HadamardFactors& factors, float* out, std::size_t out_stride) {
  const std::size_t whole = cols / hn::Lanes(DF()) * hn::Lanes(DF());
  TransformBand(x, stride, whole, factors, [=](std::size_t c) HWY_ATTR {
    return FloatRows{out + c, out_stride};
  });
  if (whole == cols) return;
  RowBuffer<kMaxHadamardSize> y;
  TransformBand(x + whole, stride, cols - whole, factors, [&](std::size_t) HWY_ATTR {
    return FloatRows{y.rows, kLanes};
  });
  for (std::size_t k = 0; k < factors.size(); ++k) {
    std::copy_n(y.rows + k * kLanes, cols - whole, out + k * out_stride + whole);
  }
}

void WidenRows(const std::uint32_t* words, std::size_t word_stride, MatrixView<float> to) {
  const DU d;
  for (std::size_t r = 0; r < to.rows; r += 2, words += word_stride) {
    float *even = &to(r, 0), *odd = &to(r + 1, 0);
    for (std::size_t c = 0; c < to.cols; c += hn::Lanes(d)) {
      const VU both = hn::LoadU(d, words + c);
      hn::StoreU(hn::BitCast(DF(), hn::ShiftLeft<16>(both)), DF(), even + c);
      hn::StoreU(hn::BitCast(DF(), hn::And(both, hn::Set(d, 0xFFFF0000u))), DF(), odd + c);
    }
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
HWY_EXPORT(HadamardBandWords);
HWY_EXPORT(WidenRows);

float HadamardColumnsAmax(const float* x, std::size_t x_stride, std::size_t cols,
                          const HadamardFactors& factors) {
  return HWY_DYNAMIC_DISPATCH(HadamardBandAmax)(x, x_stride, cols, factors);
}

float HadamardColumnsToWords(const float* x, std::size_t x_stride, std::size_t cols,
                             const HadamardFactors& factors, std::uint32_t* words,
                             std::size_t word_stride) {
  return HWY_DYNAMIC_DISPATCH(HadamardBandWords)(x, x_stride, cols, factors, words, word_stride);
}

void FloatsOfWords(const std::uint32_t* words, std::size_t word_stride, MatrixView<float> to) {
  HWY_DYNAMIC_DISPATCH(WidenRows)(words, word_stride, to);
}

void HadamardColumns(const float* x, std::size_t x_stride, std::size_t cols,
                     const HadamardFactors& factors, float* out, std::size_t out_stride) {
  HWY_DYNAMIC_DISPATCH(HadamardBand)(x, x_stride, cols, factors, out, out_stride);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
