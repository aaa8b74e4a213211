#include "fp4lab/base/memory/memory_order.h"

#include "fp4lab/base/parallel.h"

namespace fp4lab {

Matrix<float> RowMajorCopy(MatrixView<const float> x) {
  Matrix<float> copy(x.rows, x.cols);
  ParallelFor(x.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < x.cols; ++c) copy(r, c) = x(r, c);
  });
  return copy;
}

Matrix<float> CopyUnlessUnitStride(MatrixView<const float> x) {
  return HasUnitRows(x) || HasUnitColumns(x) ? Matrix<float>() : RowMajorCopy(x);
}

void RunInMemoryOrder(
    MatrixView<const float> x, MatrixView<float> out,
    const std::function<void(MatrixView<const float>, MatrixView<float>, bool)>& run) {
  if (HasUnitRows(x) && HasUnitRows(out)) return run(x, out, false);
  if (HasUnitColumns(x) && HasUnitColumns(out)) {
    return run(x.Transposed(), out.Transposed(), true);
  }
  const Matrix<float> copy = CopyUnlessUnitStride(x);
  if (!copy.values.empty()) x = copy.View();
  const bool transposed = !HasUnitRows(x);
  Matrix<float> y(transposed ? x.cols : x.rows, transposed ? x.rows : x.cols);
  run(transposed ? x.Transposed() : x, y.View(), transposed);
  const MatrixView<float> result = transposed ? y.View().Transposed() : y.View();
  for (std::size_t r = 0; r < out.rows; ++r) {
    for (std::size_t c = 0; c < out.cols; ++c) out(r, c) = result(r, c);
  }
}

}  // namespace fp4lab
