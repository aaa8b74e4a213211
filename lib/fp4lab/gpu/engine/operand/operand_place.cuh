// Where an operand lies in memory, and the shapes of its scales.
#pragma once

#include <cstddef>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/quantize/scale_windows.cuh"
#include "fp4lab/nn/linear_recipe.h"

namespace fp4lab::gpu {

// The layout of an operand in memory: (rows, cols), with the reduction axis along cols or, if
// `along_rows`, along rows.
struct Place {
  std::size_t rows = 0, cols = 0;
  bool along_rows = false;
  std::size_t QuantizedRows() const { return along_rows ? cols : rows; }
  std::size_t Length() const { return along_rows ? rows : cols; }  // of the reduction axis
};

// The shape of the blocks' scales that QuantizeToValues keeps apart, as a matrix (blocks along the
// reduction axis, blocks of rows).
struct ScaleShape {
  std::size_t blocks = 0, rows = 0, block_rows = 1;
};
inline ScaleShape ScaleShapeOf(const Dialect& d, const Place& place) {
  const auto block_rows = static_cast<std::size_t>(d.block_rows);
  return {DivideUp(place.Length(), static_cast<std::size_t>(d.block_cols)),
          DivideUp(place.QuantizedRows(), block_rows), block_rows};
}

inline WindowShape WindowsOf(const OperandRecipe& recipe, const Place& place) {
  return {place.rows, place.cols, place.along_rows, static_cast<std::size_t>(recipe.scale_window)};
}

}  // namespace fp4lab::gpu
