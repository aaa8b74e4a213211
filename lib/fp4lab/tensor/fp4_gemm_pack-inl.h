// Packing for the FP4 GEMM: the four bytes of a quad (four steps of k) are adjacent, then columns.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_FP4_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_TENSOR_FP4_GEMM_PACK_INL_H_
#undef FP4LAB_TENSOR_FP4_GEMM_PACK_INL_H_
#else
#define FP4LAB_TENSOR_FP4_GEMM_PACK_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/matrix.h"

#include <hwy/highway.h>

#include "fp4lab/tensor/fp4_gemm_dot-inl.h"
#include "fp4lab/tensor/repeat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

using Fp4Codes = MatrixView<const std::uint8_t>;

// The width of a panel of `cols` columns: whole vectors.
constexpr std::size_t Fp4PanelWidth(std::size_t cols) { return RoundUp(cols, kLanes); }
// Bytes of one block of k in a panel of `width` columns: the codes, then for each column the start
// of its sum and its scale, 4 bytes each.
constexpr std::size_t Fp4PanelBlockBytes(std::size_t block, std::size_t width) {
  return (block + 8) * width;
}

// Rows r, ..., r + kLanes - 1 and steps k, ..., k + 15 of x as four vectors: lane n of vector q
// holds the bytes x(r + n, k + 4 q), ..., x(r + n, k + 4 q + 3).
struct FourQuads {
  HWY_INLINE FourQuads() {}  // on Arm an implicit constructor has no target
  HWY_INLINE FourQuads(Fp4IntVec a, Fp4IntVec b, Fp4IntVec c, Fp4IntVec e) : quad{a, b, c, e} {}

  Fp4IntVec quad[4];
};

#if HWY_TARGET != HWY_SCALAR
// Part q (128 bits) of the result is the 16 bytes at from + 4 * q * stride.
template <class D>
HWY_INLINE hn::Vec<D> GatherRows(D d, const std::uint8_t* from, std::size_t stride) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return hn::LoadU(d, reinterpret_cast<const std::int32_t*>(from));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, GatherRows(half, from + hn::MaxLanes(half) * stride, stride),
                       GatherRows(half, from, stride));
  }
}

// FourQuads of an x with unit stride along k; `stride`: from one row to the next.
HWY_INLINE FourQuads QuadsFromRows(const std::uint8_t* from, std::size_t stride) {
  const Fp4IntTag d;
  const hn::Repartition<std::uint64_t, Fp4IntTag> pairs;
  const Fp4IntVec r0 = GatherRows(d, from, stride);
  const Fp4IntVec r1 = GatherRows(d, from + stride, stride);
  const Fp4IntVec r2 = GatherRows(d, from + 2 * stride, stride);
  const Fp4IntVec r3 = GatherRows(d, from + 3 * stride, stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  return {hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)),
          hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)),
          hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)),
          hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23))};
}
#else
HWY_INLINE FourQuads QuadsFromRows(const std::uint8_t* from, std::size_t /*stride*/) {
  return {BroadcastQuad(from), BroadcastQuad(from + 4), BroadcastQuad(from + 8),
          BroadcastQuad(from + 12)};
}
#endif

// FourQuads of an x with unit stride from row to row; `stride`: from one k to the next.
HWY_INLINE FourQuads QuadsFromColumns(const std::uint8_t* from, std::size_t stride) {
  const hn::Rebind<std::uint8_t, Fp4IntTag> bytes;
  const Fp4IntTag d;
  FourQuads quads;
  Repeat<4>([&](auto q) HWY_ATTR {
    const std::uint8_t* const at = from + 4 * q * stride;
    const Fp4IntVec k0 = hn::PromoteTo(d, hn::LoadU(bytes, at));
    const Fp4IntVec k1 = hn::PromoteTo(d, hn::LoadU(bytes, at + stride));
    const Fp4IntVec k2 = hn::PromoteTo(d, hn::LoadU(bytes, at + 2 * stride));
    const Fp4IntVec k3 = hn::PromoteTo(d, hn::LoadU(bytes, at + 3 * stride));
    quads.quad[q] = hn::Or(hn::Or(k0, hn::ShiftLeft<8>(k1)),
                           hn::Or(hn::ShiftLeft<16>(k2), hn::ShiftLeft<24>(k3)));
  });
  return quads;
}

// FourQuads at the edges of x, which starts at (r, k): bytes beyond the edges are 12, a zero.
HWY_NOINLINE FourQuads QuadsAtEdge(Fp4Codes x) {
  alignas(64) std::uint8_t padded[kLanes][16];
  const std::size_t rows = std::min(x.rows, kLanes), cols = std::min<std::size_t>(x.cols, 16);
  std::memset(padded, 12, sizeof(padded));
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t k = 0; k < cols; ++k) padded[r][k] = x(r, k);
  }
  return QuadsFromRows(padded[0], 16);
}

HWY_INLINE FourQuads LoadFourQuads(Fp4Codes x, std::size_t r, std::size_t k) {
  if (r + kLanes > x.rows || k + 16 > x.cols) {
    return QuadsAtEdge(x.Block(r, k, x.rows - r, k < x.cols ? x.cols - k : 0));
  }
  return x.col_stride == 1 ? QuadsFromRows(&x(r, k), x.row_stride)
                           : QuadsFromColumns(&x(r, k), x.col_stride);
}

// Stores x of rows r, ... and steps k, ... into packed memory of `row_count` rows: the quad of row
// r at step k lies at out + (k / 4 * row_count + r) * 4; for squares, the octet at out + (k / 8 *
// row_count + r) * 8.
template <class DotsUsed>
HWY_INLINE void StoreFourQuads(const FourQuads& x, std::size_t k, std::size_t r,
                               std::size_t row_count, std::uint8_t* HWY_RESTRICT out) {
  const Fp4IntTag d;
  if constexpr (kSquares<DotsUsed>) {
    Repeat<2>([&](auto o) HWY_ATTR {
      auto* const to = reinterpret_cast<std::int32_t*>(out + ((k / 8 + o) * row_count + r) * 8);
      hn::Store(DotsUsed::FirstOctets(x.quad[2 * o], x.quad[2 * o + 1]), d, to);
      hn::Store(DotsUsed::LastOctets(x.quad[2 * o], x.quad[2 * o + 1]), d, to + 4);
    });
  } else {
    Repeat<4>([&](auto q) HWY_ATTR {
      auto* const to = reinterpret_cast<std::int32_t*>(out + ((k / 4 + q) * row_count + r) * 4);
      hn::Store(x.quad[q], d, to);
    });
  }
}

// The bytes from a packed row to the next.
template <class DotsUsed>
inline constexpr std::size_t kPackedRowBytes = kSquares<DotsUsed> ? 8 : 4;

// Packs rows of a (StoreFourQuads). row_count is a multiple of kLanes; rows beyond those of a are
// zeros. The quads fill whole blocks.
template <class DotsUsed>
HWY_NOINLINE void PackFp4Rows(Fp4Codes a, std::size_t block, std::size_t row_count,
                              std::uint8_t* HWY_RESTRICT out) {
  const std::size_t depth = RoundUp(a.cols, block);
  for (std::size_t k = 0; k < depth; k += 16) {
    for (std::size_t r = 0; r < row_count; r += kLanes) {
      StoreFourQuads<DotsUsed>(LoadFourQuads(a, r, k), k, r, row_count, out);
    }
  }
}

// Subtracts 12 from each byte, for bytes below 128; bit 7, set before the subtraction, keeps the
// borrow from the next byte.
HWY_INLINE Fp4IntVec Signed(Fp4IntVec codes) {
  const Fp4IntTag d;
  const Fp4IntVec top = hn::Set(d, static_cast<std::int32_t>(0x80808080u));
  return hn::Xor(hn::Sub(hn::Or(codes, top), hn::Set(d, 0x0C0C0C0C)), top);
}

// Packs one block of k, from step k of b on, for the vector of columns of a panel from column n on.
template <class DotsUsed>
HWY_INLINE void PackFp4Block(Fp4Codes b, std::size_t n, std::size_t k, std::size_t block,
                             std::size_t width, std::uint8_t* HWY_RESTRICT out) {
  const Fp4IntTag d;
  const Fp4IntVec ones = hn::Set(d, 0x01010101);
  Fp4IntVec total = hn::Zero(d);
  for (std::size_t i = 0; i < block; i += 16) {
    FourQuads x = LoadFourQuads(b, n, k + i);
    Repeat<4>([&](auto q) HWY_ATTR {
      x.quad[q] = Signed(x.quad[q]);
      total = DotsUsed::Add(total, ones, x.quad[q]);
    });
    StoreFourQuads<DotsUsed>(x, i, n, width, out);
  }
  const Fp4IntVec start = hn::Mul(DotsUsed::Whole(total), hn::Set(d, -12));
  hn::Store(DotsUsed::Start(start), d, reinterpret_cast<std::int32_t*>(out + block * width) + n);
}

// Packs columns of b as a panel. For each block of k the panel holds the codes less 12
// (StoreFourQuads); then -12 times their sum, at which the block's sum starts, so that a's offset
// of 12 cancels; then scale / 4 (from PackFp4PanelScales).
template <class DotsUsed>
HWY_NOINLINE void PackFp4Panel(Fp4Codes b, std::size_t block, std::uint8_t* HWY_RESTRICT out) {
  const std::size_t width = Fp4PanelWidth(b.rows);
  for (std::size_t k = 0; k < b.cols; k += block) {
    for (std::size_t n = 0; n < width; n += kLanes) {
      PackFp4Block<DotsUsed>(b, n, k, block, width, out);
    }
    out += Fp4PanelBlockBytes(block, width);
  }
}

// Packs the scales of a panel, times 1/4: column n has scales((first_row + n) / block_rows, .).
HWY_NOINLINE void PackFp4PanelScales(MatrixView<const float> scales, std::size_t block_rows,
                                     std::size_t first_row, std::size_t cols, std::size_t block,
                                     std::uint8_t* HWY_RESTRICT out) {
  const GemmTag d;
  const std::size_t width = Fp4PanelWidth(cols), block_bytes = Fp4PanelBlockBytes(block, width);
  const GemmVec quarter = hn::Set(d, 0.25f);
  float line[kFp4PanelCols] = {};
  std::size_t rows[kFp4PanelCols];
  for (std::size_t n = 0; n < cols; ++n) {
    rows[n] = (first_row + n) / block_rows * scales.row_stride;
  }
  const bool in_line = block_rows == 1 && scales.row_stride == 1 && cols == width;
  for (std::size_t i = 0; i < scales.cols; ++i) {
    const float* const from = scales.data + i * scales.col_stride;
    float* const to = reinterpret_cast<float*>(out + i * block_bytes + (block + 4) * width);
    for (std::size_t n = 0; !in_line && n < cols; ++n) line[n] = from[rows[n]];
    for (std::size_t n = 0; n < width; n += kLanes) {
      const GemmVec scale = hn::LoadU(d, in_line ? from + first_row + n : line + n);
      hn::Store(hn::Mul(quarter, scale), d, to + n);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_FP4_GEMM_PACK_INL_H_
