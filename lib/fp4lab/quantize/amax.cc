// The amaxes of the tensor scale. Any order of the maxima gives the same bits.
#include <algorithm>
#include <cstddef>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/quantize/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/quantize/amax.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/quantize/kernels/row_amax-inl.h"

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(AmaxOfRow);

// The larger one, or a NaN.
float Larger(float a, float b) { return a != a || a > b ? a : b; }

}  // namespace

std::vector<float> TensorAmaxes(const Dialect& dialect, MatrixView<const float> x,
                                const DialectOptions& options) {
  const IeeeArithmetic ieee;
  if (!HasTensorScale(dialect)) return {};
  if (!options.amax.empty()) return options.amax;
  const bool keeps_nan = dialect.nan == NanRule::kTensor;
  if (!dialect.row_scaled && !HasUnitRows(x)) x = x.Transposed();
  Matrix<float> copy;
  if (!HasUnitRows(x)) {
    copy = Matrix<float>(x.rows, x.cols);
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) copy(r, c) = x(r, c);
    }
    x = copy.View();
  }
  std::vector<float> amax(x.rows);
  if (x.size() == 0) return dialect.row_scaled ? amax : std::vector{0.0f};
  constexpr std::size_t kElements = 32768;  // per parallel piece
  const std::size_t rows = 1 + kElements / x.cols;
  ParallelFor(DivideUp(x.rows, rows), [&](std::size_t i) {
    for (std::size_t r = i * rows; r < std::min((i + 1) * rows, x.rows); ++r) {
      amax[r] = HWY_DYNAMIC_DISPATCH(AmaxOfRow)(&x(r, 0), x.cols, keeps_nan);
    }
  });
  if (dialect.row_scaled) return amax;
  float largest = 0.0f;
  for (const float a : amax) largest = Larger(largest, a);
  return {largest};
}

}  // namespace fp4lab
#endif  // HWY_ONCE
