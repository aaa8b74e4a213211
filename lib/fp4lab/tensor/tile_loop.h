// How the GEMMs cut a product c (M, N) into tiles and share them among threads. No result depends
// on the tiles.
#pragma once

#include <algorithm>
#include <cstddef>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/interrupt.h"
#include "fp4lab/base/parallel.h"

namespace fp4lab {

// Calls body(i) for i < count: in parallel, or one after the other in the calling thread.
template <class Body>
void ForEachPiece(bool parallel, std::size_t count, const Body& body) {
  const auto piece = [&](std::size_t i) {
    CheckInterrupt();
    body(i);
  };
  if (parallel) return ParallelFor(count, piece);
  for (std::size_t i = 0; i < count; ++i) piece(i);
}

// The tiles of c, all of one size but for the last row and column of tiles.
struct TileGrid {
  std::size_t rows, cols;  // of c
  std::size_t tile_rows, tile_cols;

  std::size_t RowTiles() const { return DivideUp(rows, tile_rows); }
  std::size_t ColTiles() const { return DivideUp(cols, tile_cols); }
  std::size_t Count() const { return RowTiles() * ColTiles(); }

  struct Tile {
    std::size_t row, col, rows, cols;
  };
  // Tiles are counted along the columns first.
  Tile At(std::size_t index) const {
    const std::size_t row = index / ColTiles() * tile_rows, col = index % ColTiles() * tile_cols;
    return {row, col, std::min(tile_rows, rows - row), std::min(tile_cols, cols - col)};
  }

  // Makes tiles no larger than c: multiples of kernel_rows (rows of c that the kernel computes at
  // once) and of panel_cols (columns of a packed panel of b).
  void FitTo(std::size_t kernel_rows, std::size_t panel_cols) {
    tile_rows = std::min(tile_rows, RoundUp(rows, kernel_rows));
    tile_cols = std::min(tile_cols, RoundUp(cols, panel_cols));
  }
  // Halves tiles, rows first, until every thread has two, or they are a panel wide and two kernels
  // high.
  void ShrinkFor(std::size_t threads, std::size_t kernel_rows, std::size_t panel_cols) {
    while (Count() < 2 * threads) {
      if (tile_rows > (tile_cols > panel_cols ? 4 : 2) * kernel_rows) {
        tile_rows = DivideUp(tile_rows, 2 * kernel_rows) * kernel_rows;
      } else if (tile_cols > panel_cols) {
        tile_cols = DivideUp(tile_cols, 2 * panel_cols) * panel_cols;
      } else {
        return;
      }
    }
  }
};

// Calls body(k) for k = 0, step, 2 step ... below depth; once for depth 0, where c gets alpha * 0.
template <class Body>
void ForEachDepth(std::size_t depth, std::size_t step, const Body& body) {
  std::size_t k = 0;
  do {
    body(k);
    k += step;
  } while (k < depth);
}

// Columns of c whose part of b is packed at once: a multiple of tile_cols, `packed` elements of b
// in all if that is more than one tile.
constexpr std::size_t ColumnsAtOnce(std::size_t packed, std::size_t depth, std::size_t tile_cols) {
  return std::max(tile_cols, packed / (depth + 1) / tile_cols * tile_cols);
}

}  // namespace fp4lab
