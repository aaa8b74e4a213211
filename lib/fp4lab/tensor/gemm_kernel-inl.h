// The inner loop of the GEMM: a tile of c in registers.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_GEMM_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_TENSOR_GEMM_KERNEL_INL_H_
#undef FP4LAB_TENSOR_GEMM_KERNEL_INL_H_
#else
#define FP4LAB_TENSOR_GEMM_KERNEL_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>

#include <hwy/highway.h>

#include "fp4lab/base/simd/fma-inl.h"
#include "fp4lab/tensor/gemm_pack-inl.h"
#include "fp4lab/tensor/repeat-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// The work of one register tile: kRows x (kVectors * kLanes) elements of c over k in [0, depth).
struct TileWork {
  const float* a;  // element (0, 0) of the rows
  std::size_t a_row_stride, a_k_stride;
  const float* b;  // packed, PanelWidth(cols) floats a step of k
  std::size_t depth;
  std::size_t block;  // 0: one chain of fused multiply-adds
  TileOutput to;
};

template <std::size_t kRows, std::size_t kVectors>
struct RegisterTile : SumTile<kRows, kVectors, kPanelCols> {
  HWY_INLINE RegisterTile() {}

  using SumTile<kRows, kVectors, kPanelCols>::ForEach;
  using SumTile<kRows, kVectors, kPanelCols>::sum;

  HWY_INLINE void AddTo(const float* y) {  // sum = y + sum
    ForEach([this, y](auto i, auto j, auto at)
                HWY_ATTR { sum[i][j] = hn::Add(hn::Load(GemmTag(), y + at), sum[i][j]); });
  }
  HWY_INLINE void AddToZero() {  // +0 + -0 = +0
    ForEach([this](auto i, auto j, auto)
                HWY_ATTR { sum[i][j] = hn::Add(hn::Zero(GemmTag()), sum[i][j]); });
  }

  // sum(i, j) = fma(a(i, k), b(j, k), sum(i, j)) for `depth` ascending k.
  HWY_INLINE void MultiplyAdd(const float* HWY_RESTRICT a, std::size_t row_stride,
                              std::size_t k_stride, const float* HWY_RESTRICT b,
                              std::size_t depth) {
    const GemmTag d;
    const float* rows[kRows];
    rows[0] = a;
    Repeat<kRows - 1>([&](auto i) HWY_ATTR { rows[i + 1] = rows[i] + row_stride; });
    std::size_t at = 0;
    for (std::size_t k = 0; k < depth; ++k) {
      GemmVec bk[kVectors];
      Repeat<kVectors>([&](auto j) HWY_ATTR { bk[j] = hn::Load(d, b + j * kLanes); });
      Repeat<kRows>([&](auto i) HWY_ATTR {
        const GemmVec ak = hn::Set(d, rows[i][at]);
        Repeat<kVectors>([&](auto j) HWY_ATTR { sum[i][j] = Fma(d, ak, bk[j], sum[i][j]); });
      });
      at += k_stride;
      b += kVectors * kLanes;
    }
  }
};

template <std::size_t kRows, std::size_t kVectors>
HWY_INLINE void ComputeOneBlock(const TileWork& w) {
  RegisterTile<kRows, kVectors> tile;
  tile.Start(w.to);
  tile.MultiplyAdd(w.a, w.a_row_stride, w.a_k_stride, w.b, w.depth);
  tile.Finish(w.to);
}

template <std::size_t kRows, std::size_t kVectors>
HWY_INLINE void ComputeBlocks(const TileWork& w) {
  for (std::size_t k = 0; k < w.depth; k += w.block) {
    RegisterTile<kRows, kVectors> tile;
    tile.Clear();
    tile.MultiplyAdd(w.a + k * w.a_k_stride, w.a_row_stride, w.a_k_stride,
                     w.b + k * kVectors * kLanes, std::min(w.block, w.depth - k));
    if (w.to.first && k == 0) {
      tile.AddToZero();
    } else {
      tile.AddTo(w.to.state);
    }
    if (k + w.block >= w.depth) return tile.Finish(w.to);
    tile.Store(w.to.state);
  }
}

template <std::size_t kRows, std::size_t kVectors>
HWY_NOINLINE void ComputeTile(const TileWork& w) {
  if (w.block == 0) return ComputeOneBlock<kRows, kVectors>(w);
  ComputeBlocks<kRows, kVectors>(w);
}

using ComputeTileFunction = void (*)(const TileWork&);

template <std::size_t kRows>
constexpr std::array<ComputeTileFunction, 4> TilesOfRows() {
  return {ComputeTile<kRows, 1>, ComputeTile<kRows, 2>, ComputeTile < kRows,
          kMaxVectors == 4 ? 3 : 2 >, ComputeTile<kRows, kMaxVectors>};
}

// The rows that ComputeRows computes at once for `cols` columns. With only one vector of columns, 8
// rows are needed: 8 sums hide the latency at two multiply-adds a cycle.
inline constexpr std::size_t kMostRows = 8;
constexpr std::size_t RowsAtOnce(std::size_t cols) {
  return cols <= kLanes ? kMostRows : kTileRows;
}

// Computes `rows` <= RowsAtOnce(w.to.cols) rows as tiles of 8, 6, 4, 2 and 1 rows.
HWY_INLINE void ComputeRows(TileWork w, std::size_t rows) {
  static constexpr std::array<std::array<ComputeTileFunction, 4>, kTileRows + 1> kTiles = {
      {{}, TilesOfRows<1>(), TilesOfRows<2>(), {}, TilesOfRows<4>(), {}, TilesOfRows<6>()}};
  if (rows == kMostRows) return ComputeTile<kMostRows, 1>(w);
  const std::size_t vectors = PanelWidth(w.to.cols) / kLanes;
  while (rows > 0) {
    const std::size_t step = rows >= 6 ? 6 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
    kTiles[step][vectors - 1](w);
    w.a += step * w.a_row_stride;
    w.to.c += step * w.to.c_row_stride;
    w.to.state += step * kPanelCols;
    rows -= step;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_GEMM_KERNEL_INL_H_
