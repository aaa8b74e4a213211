// TensorAmax: the largest magnitude. Any order gives the same bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/block/amax.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DI = hn::ScalableTag<std::int32_t>;
using VI = hn::Vec<DI>;

// The bits of |x|, 0 for NaN.
HWY_INLINE VI Magnitude(const float* x) {
  const DI d;
  const hn::RebindToFloat<DI> df;
  const VI bits = hn::And(hn::BitCast(d, hn::LoadU(df, x)), hn::Set(d, 0x7FFFFFFF));
  return hn::IfThenZeroElse(hn::Gt(bits, hn::Set(d, 0x7F800000)), bits);
}

// The largest magnitude of n elements in a row.
float AmaxOfRow(const float* x, std::size_t n) {
  const DI d;
  const std::size_t lanes = hn::Lanes(d);
  VI a = hn::Zero(d), b = a, c = a, e = a;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Max(a, Magnitude(x + i));
    b = hn::Max(b, Magnitude(x + i + lanes));
    c = hn::Max(c, Magnitude(x + i + 2 * lanes));
    e = hn::Max(e, Magnitude(x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a = hn::Max(a, Magnitude(x + i));
  const VI all = hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e)));
  float amax = std::bit_cast<float>(hn::GetLane(all));
  for (; i < n; ++i) {
    const float magnitude = std::fabs(x[i]);
    if (magnitude > amax) amax = magnitude;
  }
  return amax;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(AmaxOfRow);

}  // namespace

float TensorAmax(MatrixView<const float> x) {
  const IeeeArithmetic ieee;
  if (x.size() == 0) return 0.0f;
  const Matrix<float> copy = CopyUnlessUnitStride(x);
  if (!copy.values.empty()) x = copy.View();
  if (!HasUnitRows(x)) x = x.Transposed();
  if (x.IsRowMajor()) x = MatrixView<const float>(x.data, 1, x.size());
  // Rows in pieces of 32768 elements, pieces of short rows together in one part.
  constexpr std::size_t kPart = 32768;
  const std::size_t pieces = DivideUp(x.cols, kPart);
  const std::size_t group = 1 + kPart / x.cols;
  std::vector<float> partial(pieces * DivideUp(x.rows, group), 0.0f);
  ParallelFor(partial.size(), [&](std::size_t i) {
    const std::size_t c = i % pieces * kPart, first = i / pieces * group;
    for (std::size_t r = first; r < std::min(first + group, x.rows); ++r) {
      const float amax = HWY_DYNAMIC_DISPATCH(AmaxOfRow)(&x(r, c), std::min(kPart, x.cols - c));
      partial[i] = std::max(partial[i], amax);
    }
  });
  return *std::max_element(partial.begin(), partial.end());
}

}  // namespace fp4lab
#endif  // HWY_ONCE
