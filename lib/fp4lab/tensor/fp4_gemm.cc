#include "fp4lab/tensor/fp4_gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/tensor/fp4_gemm.cc"
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/tensor/scratch.h"
#include "fp4lab/tensor/tile_loop.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/tensor/fp4_gemm_kernel-inl.h"
#include "fp4lab/tensor/fp4_gemm_pack-inl.h"

#ifndef FP4LAB_TENSOR_FP4_GEMM_CC_ONCE_
#define FP4LAB_TENSOR_FP4_GEMM_CC_ONCE_
namespace fp4lab {
namespace {

// Multiply-adds, and elements of b to pack, below which a second thread costs more than it saves.
constexpr std::size_t kParallelWork = std::size_t{1} << 21, kParallelPacking = std::size_t{1} << 17;
// Elements of b packed at a time.
constexpr std::size_t kPackedCodes = std::size_t{1} << 22;

}  // namespace
}  // namespace fp4lab
#endif  // FP4LAB_TENSOR_FP4_GEMM_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// Steps of k that are computed for a whole tile of c at a time: a panel of b of this depth fits a
// first-level cache.
inline constexpr std::size_t kFp4Depth = 512;
inline constexpr std::size_t kFp4MaxTileRows = 43 * kFp4TileRows, kFp4MaxTileCols = 256;

// The functions of one way to multiply bytes.
struct Fp4Routines {
  void (*pack)(Fp4Codes b, std::size_t block, std::uint8_t* out);
  void (*pack_rows)(Fp4Codes a, std::size_t block, std::size_t row_count, std::uint8_t* out);
  std::size_t packed_row_bytes;
  bool reads_rows_in_place;  // of codes whose quads are adjacent
  ComputeFp4TileFunction (*tile)(std::size_t block, std::size_t rows, std::size_t cols);
};
template <class DotsUsed>
constexpr Fp4Routines RoutinesOf() {
  return {PackFp4Panel<DotsUsed>, PackFp4Rows<DotsUsed>, kPackedRowBytes<DotsUsed>,
          !kSquares<DotsUsed>, Fp4TileFunction<DotsUsed>};
}
Fp4Routines BestFp4Routines() {
#if HWY_TARGET != HWY_SCALAR && HWY_ARCH_ARM_A64
  if (HasMatrixMultiply()) return RoutinesOf<SmmlaDots>();
  if (HasDotProduct()) return RoutinesOf<SdotDots>();
#endif
  return RoutinesOf<Dots>();
}

// A product, cut into tiles of c. c has unit stride along its rows.
struct Fp4Product {
  Fp4Operand a, b;
  MatrixView<float> c;
  std::size_t block;
  float alpha;
  bool accumulate;
  Fp4Routines routines = BestFp4Routines();
  TileGrid tiles = {c.rows, c.cols, kFp4MaxTileRows, kFp4MaxTileCols};
  const std::uint8_t* packed = nullptr;  // b's panels

  std::size_t Blocks() const { return DivideUp(a.codes.cols, block); }
  // The packed panel whose first column is n, from block `first_block` of k on; `width`: its
  // columns.
  const std::uint8_t* Panel(std::size_t n, std::size_t width, std::size_t first_block) const {
    return packed + Fp4PanelBlockBytes(block, n) * Blocks() +
           Fp4PanelBlockBytes(block, width) * first_block;
  }
};

// The part of a thread's scratch memory that one tile of c needs.
struct Fp4TileMemory {
  float *state, *scales;
  std::uint8_t* codes;
  std::size_t row_count;  // of packed rows

  Fp4TileMemory(const Fp4Product& p, MatrixView<float> c) : row_count(RoundUp(c.rows, kLanes)) {
    const std::size_t state_size = RoundUp(c.rows, kFp4TileRows) * RoundUp(c.cols, kFp4PanelCols);
    const std::size_t scales_size = row_count * (kFp4Depth / p.block);
    state = tile_scratch.Get<float>(state_size + scales_size + row_count * kFp4Depth / 4);
    scales = state + state_size;
    codes = reinterpret_cast<std::uint8_t*>(scales + scales_size);
  }
};

// Points `w` at rows of a: in place, or at a packed copy in `memory` if the routines need one, the
// four bytes of a quad are not adjacent or the last block is not whole.
void SetFp4Rows(const Fp4Product& p, std::size_t row, std::size_t rows, std::size_t k,
                std::size_t depth, const Fp4TileMemory& memory, Fp4Work* w) {
  if (depth == 0) {  // a may have no memory; the tiles read nothing, but step over it
    w->a = memory.codes;
    w->a_scales = memory.scales;
    return;
  }
  const Fp4Codes a = p.a.codes.Block(row, k, rows, depth);
  w->a = a.data;
  w->a_row_stride = a.row_stride;
  w->a_quad_stride = 4;
  if (!p.routines.reads_rows_in_place || a.col_stride != 1 || depth % p.block != 0) {
    p.routines.pack_rows(a, p.block, memory.row_count, memory.codes);
    w->a = memory.codes;
    w->a_row_stride = p.routines.packed_row_bytes;
    w->a_quad_stride = 4 * memory.row_count;
  }
  const MatrixView<const float> scales = p.a.scales;
  const std::size_t block = k / p.block;
  w->a_scales = scales.data + row * scales.row_stride + block * scales.col_stride;
  w->a_scale_row_stride = scales.row_stride;
  w->a_scale_block_stride = scales.col_stride;
  if (p.a.block_rows == 1) return;
  for (std::size_t i = 0; i < w->blocks; ++i) {
    for (std::size_t r = 0; r < rows; ++r) {
      memory.scales[i * memory.row_count + r] = scales((row + r) / p.a.block_rows, block + i);
    }
  }
  w->a_scales = memory.scales;
  w->a_scale_row_stride = 1;
  w->a_scale_block_stride = memory.row_count;
}

// Adds up to kFp4Depth steps of k, from `k` on, to the tile of c at (row, col).
void ComputeFp4Depth(const Fp4Product& p, MatrixView<float> c, std::size_t row, std::size_t col,
                     std::size_t k, const Fp4TileMemory& memory) {
  const std::size_t depth = std::min(kFp4Depth, p.a.codes.cols - k);
  Fp4Work rows = {};
  rows.blocks = DivideUp(depth, p.block);
  rows.to.first = k == 0;
  rows.to.last = k + depth == p.a.codes.cols;
  rows.to.c_row_stride = c.row_stride;
  rows.to.c_col_stride = c.col_stride;
  rows.to.alpha = p.alpha;
  rows.to.accumulate = p.accumulate;
  SetFp4Rows(p, row, c.rows, k, depth, memory, &rows);
  for (std::size_t j = 0; j < c.cols; j += kFp4PanelCols) {
    Fp4Work w = rows;
    w.to.cols = std::min(kFp4PanelCols, c.cols - j);
    w.b = p.Panel(col + j, Fp4PanelWidth(w.to.cols), k / p.block);
    w.to.state = memory.state + j * RoundUp(c.rows, kFp4TileRows);
    for (std::size_t i = 0; i < c.rows; i += kFp4TileRows) {
      w.to.c = &c(i, j);
      const std::size_t tile_rows = std::min(kFp4TileRows, c.rows - i);
      p.routines.tile(p.block, tile_rows, w.to.cols)(w);
      w.a += kFp4TileRows * w.a_row_stride;
      w.a_scales += kFp4TileRows * w.a_scale_row_stride;
      w.to.state += kFp4TileRows * kFp4PanelCols;
    }
  }
}

void ComputeFp4TileOfC(const Fp4Product& p, std::size_t index) {
  const TileGrid::Tile t = p.tiles.At(index);
  const MatrixView<float> c = p.c.Block(t.row, t.col, t.rows, t.cols);
  const Fp4TileMemory memory(p, c);
  ForEachDepth(p.a.codes.cols, kFp4Depth,
               [&](std::size_t k) { ComputeFp4Depth(p, c, t.row, t.col, k, memory); });
}

// Packs all of b into panels, in the calling thread's scratch memory.
const std::uint8_t* PackFp4Whole(const Fp4Product& p, bool parallel) {
  const std::size_t panels = DivideUp(p.b.codes.rows, kFp4PanelCols), depth = p.b.codes.cols;
  const std::size_t panel_bytes = Fp4PanelBlockBytes(p.block, kFp4PanelCols) * p.Blocks();
  auto* packed = packed_scratch.Get<std::uint8_t>(panels * panel_bytes);
  if (depth == 0) return packed;  // nothing to pack: the codes may have no memory
  ForEachPiece(parallel && p.b.codes.size() > kParallelPacking, panels, [&](std::size_t i) {
    const std::size_t n = i * kFp4PanelCols, cols = std::min(kFp4PanelCols, p.b.codes.rows - n);
    p.routines.pack(p.b.codes.Block(n, 0, cols, depth), p.block, packed + i * panel_bytes);
    PackFp4PanelScales(p.b.scales, p.b.block_rows, n, cols, p.block, packed + i * panel_bytes);
  });
  return packed;
}

// Rows [first, first + count) of an operand; `first` is a multiple of its block_rows.
Fp4Operand RowsOf(const Fp4Operand& x, std::size_t first, std::size_t count) {
  return {.codes = x.codes.Block(first, 0, count, x.codes.cols),
          .scales =
              x.scales.Block(first / x.block_rows, 0, DivideUp(count, x.block_rows), x.scales.cols),
          .block_rows = x.block_rows};
}

void ComputeFp4Product(Fp4Product p, bool parallel);

// Divides a small c into one part for each thread. Each thread packs its own part of b, so that no
// thread waits for another. Columns are divided if they split evenly, else rows.
void DivideFp4Product(const Fp4Product& p) {
  constexpr std::size_t kCols = 32;  // a multiple of every panel and block_rows
  const auto threads = static_cast<std::size_t>(Threads());
  const std::size_t units = DivideUp(p.c.cols, kCols);
  const std::size_t col_parts = units % threads == 0 ? threads : 1;
  const std::size_t cols = units / col_parts * kCols;
  const std::size_t rows =
      RoundUp(DivideUp(p.c.rows, threads / col_parts), std::max<std::size_t>(p.a.block_rows, 2));
  ParallelFor(DivideUp(p.c.rows, rows) * col_parts, [&](std::size_t i) {
    const std::size_t row = i / col_parts * rows, col = i % col_parts * cols;
    Fp4Product part = p;
    part.c = p.c.Block(row, col, std::min(rows, p.c.rows - row), std::min(cols, p.c.cols - col));
    part.tiles = {part.c.rows, part.c.cols, kFp4MaxTileRows, kFp4MaxTileCols};
    part.a = RowsOf(p.a, row, part.c.rows);
    part.b = RowsOf(p.b, col, part.c.cols);
    ComputeFp4Product(part, false);
  });
}

void ComputeFp4Product(Fp4Product p, bool parallel) {
  if (parallel && p.tiles.Count() == 1) return DivideFp4Product(p);
  if (parallel) {
    p.tiles.FitTo(kFp4TileRows, kFp4PanelCols);
    p.tiles.ShrinkFor(static_cast<std::size_t>(Threads()), kFp4TileRows, kFp4PanelCols);
  }
  p.packed = PackFp4Whole(p, parallel);
  ForEachPiece(parallel, p.tiles.Count(), [&p](std::size_t i) { ComputeFp4TileOfC(p, i); });
}

void Fp4GemmKernel(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
                   MatrixView<float> c) {
  const std::size_t depth = a.codes.cols;
  const bool parallel = Threads() > 1 && c.size() * depth >= kParallelWork;
  // A multiple of every block_rows.
  const std::size_t step = ColumnsAtOnce(kPackedCodes, depth, kFp4MaxTileCols);
  for (std::size_t n = 0; n < c.cols; n += step) {
    const std::size_t cols = std::min(step, c.cols - n);
    ComputeFp4Product({.a = a,
                       .b = RowsOf(b, n, cols),
                       .c = c.Block(0, n, c.rows, cols),
                       .block = static_cast<std::size_t>(options.block),
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

HWY_EXPORT(Fp4GemmKernel);

}  // namespace

void Fp4Gemm(const Fp4Operand& a, const Fp4Operand& b, const GemmOptions& options,
             MatrixView<float> c) {
  const IeeeArithmetic ieee;
  ExpectFp4Product(a, b, options, c);
  if (c.size() == 0) return;
  if (c.cols > 1 && c.col_stride != 1) {  // c^T = b a^T: each product commutes, so the same bits
    return HWY_DYNAMIC_DISPATCH(Fp4GemmKernel)(b, a, options, c.Transposed());
  }
  HWY_DYNAMIC_DISPATCH(Fp4GemmKernel)(a, b, options, c);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
