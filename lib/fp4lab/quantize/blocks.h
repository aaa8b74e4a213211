// Shared by QuantizeAs, TraceAs and IsAllowed: the grid of blocks, the tensor scale, and a single
// block.
#pragma once

#include <cstddef>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// The grid of blocks of a matrix. A dialect with one block for the tensor gets one block per row:
// the rows share all numbers, and no scale is stored.
struct BlockGrid {
  std::size_t block_rows = 1, block_cols = 1;
  std::size_t rows = 0, cols = 0;  // in blocks
  bool stores_scales = true;

  BlockGrid(const Dialect& dialect, std::size_t matrix_rows, std::size_t matrix_cols);
  // The elements of block (i, j).
  MatrixView<const float> Block(MatrixView<const float> x, std::size_t i, std::size_t j) const;
};

// Throws std::logic_error (Expects) where the options do not fit x.
void CheckOptions(const Dialect& dialect, MatrixView<const float> x, const DialectOptions& options);

// The tensor scale's amax: options.amax, or computed from x. One value, or one per row; none
// without a tensor scale.
std::vector<float> TensorAmaxes(const Dialect& dialect, MatrixView<const float> x,
                                const DialectOptions& options);

// The random bits of element i (row-major) of a matrix (rows, cols); 0 if the rounding takes none.
inline std::uint32_t RandomBitsAt(const Dialect& dialect, const DialectOptions& options,
                                  std::size_t i, std::size_t rows, std::size_t cols) {
  const int bits = RandomBitsOf(dialect.rounding);
  if (bits == 0) return 0;
  if (options.source) return options.source->Bits(bits, i, rows, cols);
  return options.random[i] & ((1u << bits) - 1);
}

// S and D of the elements of row `row`.
TensorScale TensorScaleOfRow(const Dialect& dialect, const std::vector<float>& amax,
                             std::size_t row);

// Resizes the arrays of q, whose rows and cols are set, for a result.
void ShapeQuantized(const Dialect& dialect, const BlockGrid& grid, Quantized* q);

// The block scale of element (r, c).
inline float ScaleAt(const Dialect& dialect, const BlockGrid& grid, const Quantized& q,
                     std::size_t r, std::size_t c) {
  const std::size_t block = r / grid.block_rows * grid.cols + c / grid.block_cols;
  if (!q.scale_values.empty()) return q.scale_values[block];
  return ScaleValueOf(dialect, grid.stores_scales ? q.scales[block] : std::uint8_t{0});
}

struct ChosenBlock {
  BlockNumbers numbers;
  bool maps_to_four = false;
};
// The numbers of one block; with two candidates, those of the better one.
ChosenBlock ChooseBlock(const Dialect& dialect, const TensorScale& tensor,
                        MatrixView<const float> block);
// ChooseBlock for given b and t.
ChosenBlock ChooseBlock(const Dialect& dialect, const TensorScale& tensor,
                        MatrixView<const float> block, float b, float t);

}  // namespace fp4lab
