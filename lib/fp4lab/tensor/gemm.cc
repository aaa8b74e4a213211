#include "fp4lab/tensor/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/tensor/gemm.cc"
#include <algorithm>
#include <cstddef>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/tensor/scratch.h"
#include "fp4lab/tensor/tile_loop.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/tensor/gemm_kernel-inl.h"

#ifndef FP4LAB_TENSOR_GEMM_CC_ONCE_
#define FP4LAB_TENSOR_GEMM_CC_ONCE_
namespace fp4lab {
namespace {

// Multiply-adds, and elements of b to pack, below which a second thread costs more than it saves.
constexpr std::size_t kParallelWork = std::size_t{1} << 20, kParallelPacking = std::size_t{1} << 16;
// Floats of b packed at a time (8 MiB).
constexpr std::size_t kPackedFloats = std::size_t{1} << 21;

}  // namespace
}  // namespace fp4lab
#endif  // FP4LAB_TENSOR_GEMM_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// Steps of k that are computed for a whole tile of c at a time: a panel of b of this depth fits a
// first-level cache. kDirectDepth is for column-major a read in place, whose columns must stay in
// that cache, too.
inline constexpr std::size_t kDepth = 128, kDirectDepth = 64;
// The largest tile of c: its running sums (264 KiB) fit a second-level cache.
inline constexpr std::size_t kMaxTileRows = 43 * kTileRows, kMaxTileCols = 256;
inline constexpr std::size_t kPackDepth = 256;  // steps of k packed as one unit of work

// A product, cut into tiles of c. c has unit stride along its rows.
struct Product {
  MatrixView<const float> a, b;
  MatrixView<float> c;
  std::size_t block;  // steps of k in a block; 0: all of K is one block
  float alpha;
  bool accumulate;
  TileGrid tiles = {c.rows, c.cols, kMaxTileRows, kMaxTileCols};
  std::size_t depth = kDepth;  // steps of k at a time; a multiple of `block`
  // b in panels, panel p from p * kPanelCols * K on; nullptr: each tile packs its part of b.
  const float* packed = nullptr;
  bool pack_a = false;  // each tile packs its part of a
};

// The part of a thread's scratch memory that one tile of c needs.
struct TileMemory {
  float *state, *b, *a;

  explicit TileMemory(const Product& p) {
    const std::size_t state_size =
        p.a.cols > p.depth ? p.tiles.tile_rows * p.tiles.tile_cols : kMostRows * kPanelCols;
    const std::size_t b_size = p.packed == nullptr ? p.depth * kPanelCols : 0;
    const std::size_t a_size = p.pack_a ? p.depth * p.tiles.tile_rows : 0;
    state = tile_scratch.Get<float>(state_size + b_size + a_size);
    b = state + state_size;
    a = b + b_size;
  }
};

// Adds the steps of k of `a` and of the panel w.b to the w.to.cols columns `c` of a tile. The first
// packed_rows rows of a are read from packed_a.
HWY_INLINE void ComputePanel(TileWork w, MatrixView<const float> a, const float* packed_a,
                             std::size_t packed_rows, MatrixView<float> c, bool one_pass) {
  const std::size_t step = packed_rows == 0 ? RowsAtOnce(w.to.cols) : kTileRows;
  for (std::size_t i = 0; i < c.rows; i += step) {
    const bool packed = i < packed_rows;
    w.a = packed ? packed_a + i * a.cols : a.data + i * a.row_stride;
    w.a_row_stride = packed ? 1 : a.row_stride;
    w.a_k_stride = packed ? kTileRows : a.col_stride;
    w.to.c = c.data + i * c.row_stride;
    ComputeRows(w, std::min(step, c.rows - i));
    if (!one_pass) w.to.state += step * kPanelCols;
  }
}

// Adds up to p.depth steps of k, from `k` on, to the tile of c at (row, col).
void ComputeDepth(const Product& p, MatrixView<float> c, std::size_t row, std::size_t col,
                  std::size_t k, const TileMemory& memory) {
  const std::size_t depth = std::min(p.depth, p.a.cols - k);
  const bool first = k == 0, last = k + depth == p.a.cols;
  MatrixView<const float> a = p.a.Block(row, k, c.rows, depth);
  if (depth == 0) a = {memory.state, c.rows, 0};  // a may have no memory; nothing is read
  if (p.pack_a) PackStrips(a, memory.a);
  for (std::size_t j = 0; j < c.cols; j += kPanelCols) {
    const std::size_t cols = std::min(kPanelCols, c.cols - j);
    if (p.packed == nullptr) PackPanel(p.b.Block(col + j, k, cols, depth), memory.b);
    const float* b =
        p.packed == nullptr ? memory.b : p.packed + (col + j) * p.a.cols + k * PanelWidth(cols);
    const TileWork work = {
        .a = nullptr,
        .a_row_stride = 0,
        .a_k_stride = 0,
        .b = b,
        .depth = depth,
        .block = p.block,
        .to = {.state = memory.state + (first && last ? 0 : j * p.tiles.tile_rows),
               .first = first,
               .last = last,
               .c = nullptr,
               .c_row_stride = c.row_stride,
               .c_col_stride = c.col_stride,
               .cols = cols,
               .alpha = p.alpha,
               .accumulate = p.accumulate}};
    ComputePanel(work, a, memory.a, p.pack_a ? c.rows / kTileRows * kTileRows : 0,
                 c.Block(0, j, c.rows, cols), first && last);
  }
}

void ComputeTileOfC(const Product& p, std::size_t index) {
  const TileGrid::Tile t = p.tiles.At(index);
  const MatrixView<float> c = p.c.Block(t.row, t.col, t.rows, t.cols);
  const TileMemory memory(p);
  ForEachDepth(p.a.cols, p.depth,
               [&](std::size_t k) { ComputeDepth(p, c, t.row, t.col, k, memory); });
}

// Divides a small c into one tile for each thread. Each thread packs its own part of b, so that the
// threads share nothing and no thread waits for another. Columns are divided if their panels split
// evenly, because b is then packed only once.
void DivideSmall(TileGrid& tiles, std::size_t threads) {
  const std::size_t panels = DivideUp(tiles.cols, kPanelCols);
  const std::size_t col_tiles = std::min(panels, threads);
  if (panels % col_tiles == 0) tiles.tile_cols = panels / col_tiles * kPanelCols;
  const std::size_t row_tiles = std::max<std::size_t>(1, threads / tiles.ColTiles());
  tiles.tile_rows = std::max(2 * kTileRows, DivideUp(tiles.rows, 2 * row_tiles) * 2);
}

void DivideAmongThreads(TileGrid& tiles) {
  const auto threads = static_cast<std::size_t>(Threads());
  tiles.FitTo(kTileRows, kPanelCols);
  if (tiles.Count() == 1) return DivideSmall(tiles, threads);
  tiles.ShrinkFor(threads, kTileRows, kPanelCols);
}

// Packs all of b into panels, in the calling thread's scratch memory.
const float* PackWhole(MatrixView<const float> b, bool parallel) {
  const std::size_t depth = b.cols;
  const std::size_t panels = DivideUp(b.rows, kPanelCols), chunks = DivideUp(depth, kPackDepth);
  float* packed = packed_scratch.Get<float>(panels * kPanelCols * depth);
  const auto pack = [b, packed, chunks, depth](std::size_t i) {
    const std::size_t n = i / chunks * kPanelCols, k = i % chunks * kPackDepth;
    const std::size_t cols = std::min(kPanelCols, b.rows - n);
    PackPanel(b.Block(n, k, cols, std::min(kPackDepth, depth - k)),
              packed + n * depth + k * PanelWidth(cols));
  };
  ForEachPiece(parallel && b.size() > kParallelPacking, panels * chunks, pack);
  return packed;
}

void ComputeProduct(Product p, bool parallel) {
  if (parallel) DivideAmongThreads(p.tiles);
  if (p.block > 0) p.depth = std::max(p.block, kDepth / p.block * p.block);
  p.pack_a = p.a.row_stride == 1 && p.c.cols > kPanelCols && p.depth <= kDepth;
  if (p.a.row_stride == 1 && !p.pack_a && p.block <= kDirectDepth) {
    p.depth = p.block > 0 ? kDirectDepth / p.block * p.block : kDirectDepth;
  }
  const std::size_t tiles = p.tiles.Count();
  const bool is_shared =
      p.tiles.RowTiles() > 1 && !(parallel && tiles <= static_cast<std::size_t>(Threads()));
  if (is_shared || p.depth > kDepth) p.packed = PackWhole(p.b, parallel);
  ForEachPiece(parallel, tiles, [&p](std::size_t i) { ComputeTileOfC(p, i); });
}

void GemmKernel(MatrixView<const float> a, MatrixView<const float> b, const GemmOptions& options,
                MatrixView<float> c) {
  const std::size_t depth = a.cols;
  const auto block = static_cast<std::size_t>(options.block);
  const bool parallel = Threads() > 1 && a.rows * b.rows * depth >= kParallelWork;
  const std::size_t step = ColumnsAtOnce(kPackedFloats, depth, kMaxTileCols);
  for (std::size_t n = 0; n < b.rows; n += step) {
    const std::size_t cols = std::min(step, b.rows - n);
    ComputeProduct({.a = a,
                    .b = b.Block(n, 0, cols, depth),
                    .c = c.Block(0, n, c.rows, cols),
                    .block = block >= depth ? 0 : block,
                    .alpha = options.alpha,
                    .accumulate = options.accumulate},
                   parallel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(GemmKernel);

}  // namespace

void Gemm(MatrixView<const float> a, MatrixView<const float> b, const GemmOptions& options,
          MatrixView<float> c) {
  const IeeeArithmetic ieee;
  Expects(a.cols == b.cols && c.rows == a.rows && c.cols == b.rows, "a (M, K), b (N, K), c (M, N)");
  Expects(HasUnitStride(a) && HasUnitStride(b) && HasUnitStride(c), "a unit stride in each view");
  Expects(options.block >= 0, "block >= 0");
  if (c.size() == 0) return;
  if (c.cols > 1 && c.col_stride != 1) {  // c^T = b a^T: each product commutes, so the same bits
    std::swap(a, b);
    c = c.Transposed();
  }
  HWY_DYNAMIC_DISPATCH(GemmKernel)(a, b, options, c);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
