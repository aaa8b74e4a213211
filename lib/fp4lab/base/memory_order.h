// Views as kernels want them: unit stride along memory rows.
#pragma once

#include <functional>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// Whether rows (columns) of x lie in memory without gaps between their elements.
constexpr bool HasUnitRows(MatrixView<const float> x) { return x.col_stride == 1 || x.cols <= 1; }
constexpr bool HasUnitColumns(MatrixView<const float> x) {
  return x.row_stride == 1 || x.rows <= 1;
}

// A copy of x if it has unit stride in no direction, else empty.
Matrix<float> CopyUnlessUnitStride(MatrixView<const float> x);

// Calls run(x, out, transposed) with both views in memory order (both transposed or none), through
// copies where the two do not lie in memory alike.
void RunInMemoryOrder(
    MatrixView<const float> x, MatrixView<float> out,
    const std::function<void(MatrixView<const float>, MatrixView<float>, bool)>& run);

}  // namespace fp4lab
