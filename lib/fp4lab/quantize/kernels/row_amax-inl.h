// The amax of a row.
#if defined(FP4LAB_QUANTIZE_ROW_AMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_QUANTIZE_ROW_AMAX_INL_H_
#undef FP4LAB_QUANTIZE_ROW_AMAX_INL_H_
#else
#define FP4LAB_QUANTIZE_ROW_AMAX_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "fp4lab/quantize/diagnostics/statistic.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// max |x| of n elements; NaN is ignored, or makes the result NaN if keeps_nan.
inline float AmaxOfRow(const float* x, std::size_t n, bool keeps_nan) {
  const DI di;
  const std::size_t lanes = hn::Lanes(di);
  VI max = hn::Zero(di), with_nan = max;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VI bits = AbsBits(hn::LoadU(DF(), x + i));
    with_nan = hn::Max(with_nan, bits);
    max = hn::Max(max, hn::IfThenZeroElse(hn::Gt(bits, hn::Set(di, kInfBits)), bits));
  }
  const float rest = MaxMagnitudeOf({x + i, 1, n - i}, keeps_nan);
  if (keeps_nan && (rest != rest || hn::GetLane(hn::MaxOfLanes(di, with_nan)) > kInfBits)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return std::max(rest, std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, max))));
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_ROW_AMAX_INL_H_
