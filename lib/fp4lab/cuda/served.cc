// What the kernels can do, in builds with and without them.
#include "fp4lab/cuda/quantize.h"

namespace fp4lab::cuda {

bool HasElement(FormatId element) {
  return element == FormatId::kE2M1 || element == FormatId::kE4M3 || element == FormatId::kE5M2;
}

bool CanQuantizeAs(const Dialect& d) {
  const bool scale_fits = d.element == FormatId::kE2M1
                              ? d.scale == FormatId::kE4M3 || d.scale == FormatId::kE8M0
                              : d.scale == FormatId::kE8M0;
  return HasElement(d.element) && scale_fits && !IsApproximate(d);
}

}  // namespace fp4lab::cuda
