// Brings views into the form that kernels need: unit stride along rows.
#pragma once

#include <functional>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// Whether the elements of each row (column) of x are contiguous in memory.
constexpr bool HasUnitRows(MatrixView<const float> x) { return x.col_stride == 1 || x.cols <= 1; }
constexpr bool HasUnitColumns(MatrixView<const float> x) {
  return x.row_stride == 1 || x.rows <= 1;
}

// A row-major copy of x.
Matrix<float> RowMajorCopy(MatrixView<const float> x);

// A row-major copy of x if x has unit stride in neither direction, else an empty matrix.
Matrix<float> CopyUnlessUnitStride(MatrixView<const float> x);

// Calls run(x, out, transposed) with views that have unit stride along their rows: both transposed
// or neither, and copies if x and out do not have the same order in memory.
void RunInMemoryOrder(
    MatrixView<const float> x, MatrixView<float> out,
    const std::function<void(MatrixView<const float>, MatrixView<float>, bool)>& run);

}  // namespace fp4lab
