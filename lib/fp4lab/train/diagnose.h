// What quantization does to one operand, in numbers.
#pragma once

#include <string>

#include "fp4lab/base/matrix.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab {

// `x` before quantization, `values` after it, the tensor's scale left out (QuantizeToValues).
TensorStatistics MeasureOperand(std::string name, MatrixView<const float> x,
                                MatrixView<const float> values, const QuantizeOptions& options);

}  // namespace fp4lab
