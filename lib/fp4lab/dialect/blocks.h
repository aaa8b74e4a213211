// What QuantizeAs, TraceAs and IsAllowed share: the grid of blocks, level 2, and one block.
#pragma once

#include <cstddef>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/dialect/stages.h"

namespace fp4lab {

// Which block an element lies in. One block for the tensor is cut into its rows: they share
// everything, and no scale is stored.
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

// The amax values: of the options, or of x. One, or one a row; none without level 2.
std::vector<float> LevelTwoAmax(const Dialect& dialect, MatrixView<const float> x,
                                const DialectOptions& options);

// The random bits of element i of rows that are `cols` long; 0 where rounding takes none.
inline std::uint32_t RandomBitsAt(const Dialect& dialect, const DialectOptions& options,
                                  std::size_t i, std::size_t cols) {
  const int bits = RandomBitsOf(dialect.rounding);
  if (bits == 0) return 0;
  if (options.source) return options.source->Bits(bits, i, cols);
  return options.random[i] & ((1u << bits) - 1);
}

// S and D that the elements of row r have.
Level LevelOfRow(const Dialect& dialect, const std::vector<float>& amax, std::size_t row);

// Gives q, whose rows and cols are set, the sizes of a result.
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
// The numbers of one block; of the better candidate where the dialect has two.
ChosenBlock ChooseBlock(const Dialect& dialect, const Level& level, MatrixView<const float> block);
// The same with b and t given.
ChosenBlock ChooseBlock(const Dialect& dialect, const Level& level, MatrixView<const float> block,
                        float b, float t);

// max |x|; NaN is left out, or makes the maximum NaN.
float MaxMagnitudeOf(MatrixView<const float> x, bool keeps_nan);

}  // namespace fp4lab
