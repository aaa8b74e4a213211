// Transposing floats in registers, for kernels.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_BASE_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BASE_TRANSPOSE_INL_H_
#undef FP4LAB_BASE_TRANSPOSE_INL_H_
#else
#define FP4LAB_BASE_TRANSPOSE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

using TransposeTag = hwy::HWY_NAMESPACE::CappedTag<float, 16>;

#if HWY_TARGET != HWY_SCALAR
// Part q (128 bits) of the result is the four floats at from + 4 * q * stride.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> GatherQuads(D d, const float* from, std::size_t stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (hn::MaxLanes(d) <= 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, GatherQuads(half, from + hn::MaxLanes(half) * stride, stride),
                       GatherQuads(half, from, stride));
  }
}

// out[k * width + n] = from[n * stride + k] for n < Lanes(TransposeTag()), k < 4: a 4 x 4
// transposition in each 128-bit part. The rows of `out` are aligned to a vector.
HWY_INLINE void TransposeQuads(const float* from, std::size_t stride, float* HWY_RESTRICT out,
                               std::size_t width) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TransposeTag d;
  const hn::Repartition<std::uint64_t, TransposeTag> pairs;
  const auto r0 = GatherQuads(d, from, stride);
  const auto r1 = GatherQuads(d, from + stride, stride);
  const auto r2 = GatherQuads(d, from + 2 * stride, stride);
  const auto r3 = GatherQuads(d, from + 3 * stride, stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, out);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, out + width);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, out + 2 * width);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, out + 3 * width);
}
#endif

// out[c * out_stride + r] = from[r * stride + c] for r, c < 16. The rows of `out` start at
// multiples of 64 bytes.
HWY_INLINE void Transpose16x16(const float* from, std::size_t stride, float* HWY_RESTRICT out,
                               std::size_t out_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t c = 0; c < 16; ++c) {
    for (std::size_t r = 0; r < 16; ++r) out[c * out_stride + r] = from[r * stride + c];
  }
#else
  for (std::size_t r = 0; r < 16; r += hwy::HWY_NAMESPACE::Lanes(TransposeTag())) {
    for (std::size_t c = 0; c < 16; c += 4) {
      TransposeQuads(from + r * stride + c, stride, out + c * out_stride + r, out_stride);
    }
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BASE_TRANSPOSE_INL_H_
