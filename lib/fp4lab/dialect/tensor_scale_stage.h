// S and D of a tensor or row under a dialect.
#pragma once

#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

constexpr TensorScale TensorScaleOf(const Dialect& d, float amax) {
  TensorScale l = WithFormula<TensorScale>(
      d.tensor_scale,
      TensorScaleFromAmax{{amax, TensorScaleConstant(d), d.scale_max, TargetOf(d), d.element}});
  l.amax = amax;
  return l;
}

}  // namespace fp4lab
