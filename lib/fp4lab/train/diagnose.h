// What quantization does to one operand, in numbers.
#pragma once

#include <string>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab {

// `x` is the operand before quantization. The figures are those of dialect/statistics.h.
TensorStatistics MeasureOperand(std::string name, MatrixView<const float> x, const Dialect& dialect,
                                const DialectOptions& options);

}  // namespace fp4lab
