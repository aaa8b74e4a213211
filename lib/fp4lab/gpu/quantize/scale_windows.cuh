// Windows of outer scales (OperandRecipe::scale_window) on the device: an operand as the matrix of
// its windows, and back.
#pragma once

#include <cstddef>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/engine/memory.cuh"

namespace fp4lab::gpu {

// An operand in memory (rows, cols), its reduction axis along cols or, if `along_rows`, along rows.
struct WindowShape {
  std::size_t rows = 0, cols = 0;
  bool along_rows = false;
  std::size_t window = 0;  // elements along the reduction axis

  std::size_t Quantized() const { return along_rows ? cols : rows; }
  std::size_t Length() const { return along_rows ? rows : cols; }
  std::size_t WindowsOfRow() const { return DivideUp(Length(), window); }
  // The windows of all rows: (Lines(), window), those of the operand's first row first. The last
  // window of a row is filled up with zeros.
  std::size_t Lines() const { return Quantized() * WindowsOfRow(); }
  // Whether the operand's memory is that matrix.
  bool LiesAsLines() const { return !along_rows && cols % window == 0; }
};

// lines = the matrix of x's windows. T: float or Bf16.
template <class T>
void ToLines(const WindowShape& shape, const T* x, T* lines, cudaStream_t stream);

// x = the operand of the matrix, each line multiplied by its decode scale. x may be `lines` if the
// shape lies as lines.
void FromLines(const WindowShape& shape, const float* lines, const float* decode, float* x,
               cudaStream_t stream);

}  // namespace fp4lab::gpu
