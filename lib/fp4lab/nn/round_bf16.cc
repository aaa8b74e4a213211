#include "fp4lab/nn/round_bf16.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
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

constexpr std::uint32_t kMagnitude = 0x7FFFFFFFu, kInfinity = 0x7F800000u;

// The bits of the rounded value, for all but NaN: adds just under half of the last kept place, plus
// that place's bit (ties to even), and cuts. An overflow carries into the exponent of infinity.
HWY_INLINE Bits Round(Tag d, Bits x) {
  const Bits kept_bit = hn::And(hn::ShiftRight<16>(x), hn::Set(d, 1u));
  return hn::And(hn::Add(hn::Add(x, hn::Set(d, 0x7FFFu)), kept_bit), hn::Set(d, 0xFFFF0000u));
}

// Rounds elements one by one: fewer than 4 vectors of them, or vectors with a NaN. NaN does not
// count for the maximum.
std::uint32_t RoundEach(const float* in, float* out, std::size_t n) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(in[i]) & kMagnitude;
    if (magnitude <= kInfinity) largest = std::max(largest, magnitude);
    out[i] = RoundToBf16(in[i]);
  }
  return largest;
}

// Rounds n elements; returns the largest magnitude before rounding, as bits. As unsigned integers,
// magnitudes order as the floats do, with NaN above infinity.
std::uint32_t RoundRow(const float* in, float* out, std::size_t n) {
  const Tag d;
  const hn::RebindToFloat<Tag> df;
  const std::size_t lanes = hn::Lanes(d);
  const Bits mask = hn::Set(d, kMagnitude), infinity = hn::Set(d, kInfinity);
  Bits largest = hn::Zero(d);
  std::uint32_t special = 0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto load = [&](std::size_t k)
                          HWY_ATTR { return hn::BitCast(d, hn::LoadU(df, in + i + k * lanes)); };
    const Bits x0 = load(0), x1 = load(1), x2 = load(2), x3 = load(3);
    const Bits m = hn::Max(hn::Max(hn::And(x0, mask), hn::And(x1, mask)),
                           hn::Max(hn::And(x2, mask), hn::And(x3, mask)));
    if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(m, infinity)))) {
      special = std::max(special, RoundEach(in + i, out + i, 4 * lanes));
      continue;
    }
    largest = hn::Max(largest, m);
    hn::StoreU(hn::BitCast(df, Round(d, x0)), df, out + i);
    hn::StoreU(hn::BitCast(df, Round(d, x1)), df, out + i + lanes);
    hn::StoreU(hn::BitCast(df, Round(d, x2)), df, out + i + 2 * lanes);
    hn::StoreU(hn::BitCast(df, Round(d, x3)), df, out + i + 3 * lanes);
  }
  HWY_ALIGN std::uint32_t partial[hn::MaxLanes(d)];
  hn::Store(largest, d, partial);
  special = std::max(special, *std::max_element(partial, partial + lanes));
  return std::max(special, RoundEach(in + i, out + i, n - i));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
HWY_EXPORT(RoundRow);

float RoundBf16(MatrixView<const float> x, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  Expects(x.col_stride == 1 && out.col_stride == 1 && x.rows == out.rows && x.cols == out.cols,
          "RoundBf16: equal shapes, unit column stride");
  if (x.size() == 0) return 0.0f;
  const bool flat = x.IsRowMajor() && out.IsRowMajor();
  const std::size_t rows = flat ? 1 : x.rows, cols = flat ? x.size() : x.cols;
  // A piece is a whole row, or 16,384 elements of a dense matrix. The maximum does not depend on
  // the order of the pieces.
  constexpr std::size_t kPiece = 16384;
  const std::size_t pieces = flat ? DivideUp(cols, kPiece) : rows;
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
    return RoundToBf16(std::bit_cast<float>(amax));  // rounding is monotonic
  }
  std::atomic<std::uint32_t> shared{0};
  ParallelFor(pieces, [&](std::size_t p) {
    const std::uint32_t mine = piece(p);
    std::uint32_t seen = shared.load(std::memory_order_relaxed);
    while (seen < mine && !shared.compare_exchange_weak(seen, mine, std::memory_order_relaxed)) {
    }
  });
  return RoundToBf16(std::bit_cast<float>(shared.load()));
}

namespace reference {

float RoundBf16(MatrixView<const float> x, MatrixView<float> out) {
  const IeeeArithmetic ieee;
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
