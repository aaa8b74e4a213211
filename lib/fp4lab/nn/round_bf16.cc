#include "fp4lab/nn/round_bf16.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/formats/format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/nn/round_bf16.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<std::uint32_t>;
using Bits = hn::Vec<Tag>;

// The rounded value's bits: add just under half of the last kept place, plus that place's bit (ties
// to even), and cut. An overflow carries into the exponent of infinity by itself.
HWY_INLINE Bits Round(Tag d, Bits x) {
  const Bits kept_bit = hn::And(hn::ShiftRight<16>(x), hn::Set(d, 1u));
  const Bits up = hn::Add(hn::Add(x, hn::Set(d, 0x7FFFu)), kept_bit);
  const auto magnitude = hn::And(x, hn::Set(d, 0x7FFFFFFFu));
  return hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7F800000u)), hn::Set(d, 0x7FC00000u),
                        hn::And(up, hn::Set(d, 0xFFFF0000u)));
}

// As unsigned integers, magnitudes order as the floats do; NaN does not count.
HWY_INLINE Bits MaxMagnitude(Tag d, Bits amax, Bits rounded) {
  const Bits magnitude = hn::And(rounded, hn::Set(d, 0x7FFFFFFFu));
  const auto is_nan = hn::Gt(magnitude, hn::Set(d, 0x7F800000u));
  return hn::Max(amax, hn::IfThenZeroElse(is_nan, magnitude));
}

std::uint32_t RoundRow(const float* in, float* out, std::size_t n) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const hn::RebindToFloat<Tag> df;
  Bits amax = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const Bits rounded = Round(d, hn::BitCast(d, hn::LoadU(df, in + i)));
    amax = MaxMagnitude(d, amax, rounded);
    hn::StoreU(hn::BitCast(df, rounded), df, out + i);
  }
  HWY_ALIGN std::uint32_t partial[hn::MaxLanes(d)];
  hn::Store(amax, d, partial);
  std::uint32_t result = *std::max_element(partial, partial + lanes);
  for (; i < n; ++i) {
    out[i] = RoundToBf16(in[i]);
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(out[i]) & 0x7FFFFFFFu;
    if (magnitude <= 0x7F800000u) result = std::max(result, magnitude);
  }
  return result;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
HWY_EXPORT(RoundRow);

float RoundBf16(MatrixView<const float> x, MatrixView<float> out) {
  Expects(x.col_stride == 1 && out.col_stride == 1 && x.rows == out.rows && x.cols == out.cols,
          "RoundBf16: equal shapes, unit column stride");
  if (x.size() == 0) return 0.0f;
  const bool flat = x.IsRowMajor() && out.IsRowMajor();
  const std::size_t rows = flat ? 1 : x.rows, cols = flat ? x.size() : x.cols;
  // Pieces: whole rows, or 16,384 elements of a dense matrix. A maximum has no order.
  constexpr std::size_t kPiece = 16384;
  const std::size_t pieces = flat ? (cols + kPiece - 1) / kPiece : rows;
  std::uint32_t amax = 0;
  const auto piece = [&](std::size_t p) {
    if (!flat) {
      return HWY_DYNAMIC_DISPATCH(RoundRow)(x.data + p * x.row_stride,
                                            out.data + p * out.row_stride, cols);
    }
    const std::size_t first = p * kPiece;
    return HWY_DYNAMIC_DISPATCH(RoundRow)(x.data + first, out.data + first,
                                          std::min(kPiece, cols - first));
  };
  if (Threads() == 1) {
    for (std::size_t p = 0; p < pieces; ++p) amax = std::max(amax, piece(p));
    return std::bit_cast<float>(amax);
  }
  std::atomic<std::uint32_t> shared{0};
  ParallelFor(pieces, [&](std::size_t p) {
    const std::uint32_t mine = piece(p);
    std::uint32_t seen = shared.load(std::memory_order_relaxed);
    while (seen < mine && !shared.compare_exchange_weak(seen, mine, std::memory_order_relaxed)) {
    }
  });
  return std::bit_cast<float>(shared.load());
}

namespace reference {

float RoundBf16(MatrixView<const float> x, MatrixView<float> out) {
  float amax = 0.0f;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      out(r, c) = RoundToBf16(x(r, c));
      const float magnitude = std::fabs(out(r, c));
      if (magnitude > amax) amax = magnitude;
    }
  }
  return amax;
}

}  // namespace reference
}  // namespace fp4lab
#endif  // HWY_ONCE
