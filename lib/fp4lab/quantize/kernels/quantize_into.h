// The generic kernels, which quantize in any dialect (quantize/implementation.h chooses).
#pragma once

#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/implementation.h"

namespace fp4lab {

// Quantizes x into `out`: codes one a byte, integers with unit column stride, and no decoded
// numbers. `amax`: the result of TensorAmaxes(dialect, x, options).
void QuantizeInto(const Dialect& dialect, MatrixView<const float> x, const DialectOptions& options,
                  const std::vector<float>& amax, const QuantizeOutputs& out);

}  // namespace fp4lab
