// The dialects that the kernels compute, for builds with and without CUDA.
#include "fp4lab/block/tuned.h"
#include "fp4lab/cuda/quantize/dialect_values.h"
#include "fp4lab/cuda/quantize/implementation.h"
#include "fp4lab/cuda/quantize/quantize.h"
#include "fp4lab/dialect/adaptive.h"
#include "fp4lab/quantize/ms_eden.h"

namespace fp4lab::cuda {

bool HasElement(FormatId element) {
  return element == FormatId::kE2M1 || element == FormatId::kE4M3 || element == FormatId::kE5M2;
}

std::string_view WhyNotFast(const Dialect& d) {
  const bool rounds =
      d.rounding == ElementRounding::kNearestEven || d.rounding == ElementRounding::kStochastic16;
  return rounds ? WhyNotTuned(d) : "a rounding other than to nearest and with 16 random bits";
}

bool CanQuantizeAs(const Dialect& d) {
  const bool scale_fits = d.element == FormatId::kE2M1
                              ? d.scale == FormatId::kE4M3 || d.scale == FormatId::kE8M0
                              : d.scale == FormatId::kE8M0;
  const bool has_bytes = d.scale_encoding != ScaleEncoding::kBinary32 && d.unbias == Unbias::kNone;
  return HasElement(d.element) && scale_fits && has_bytes && d.statistic == BlockStatistic::kAmax &&
         !IsApproximate(d);
}

bool CanQuantizeToValues(const Dialect& d) {
  const int most_lines = static_cast<int>(kMostAdaptiveLines);
  const bool has_lines =
      d.adaptive == Adaptive::kNo || (d.block_rows >= 1 && d.block_rows <= most_lines);
  const bool has_groups =
      d.unbias == Unbias::kNone ||
      (d.block_rows == 1 && static_cast<int>(kMsEdenGroup) % d.block_cols == 0 &&
       d.scale_encoding != ScaleEncoding::kBinary32);
  return IsValueElement(d.element) && FormatOf(d.scale).bits <= 8 && has_lines && has_groups;
}

}  // namespace fp4lab::cuda
