// The diagnostics of the operands of a training step.
#pragma once

#include <string>

#include "fp4lab/io/json.h"
#include "fp4lab/nn/linear_recipe.h"
#include "fp4lab/quantize/statistics.h"

namespace fp4lab {

// One quantized operand, measured on the batch of the next step.
struct TensorStatistics {
  std::string name;    // "blocks.0.mlp.up.fprop.input"
  std::string format;  // a dialect's name, or its JSON
  DiagnosticValues values;
};

// Measures the quantization of an operand, from the tensor that was quantized (rounded,
// transformed) to the operand of the GEMM. `linear`: "blocks.0.mlp.up".
TensorStatistics MeasureOperand(const std::string& linear, const ObservedOperand& operand);

// An object with name, format, and the key of each diagnostic that was measured. Exact:
// ReadTensorStatistics gives every number back with the same bits.
Json ToJson(const TensorStatistics& tensor);
// Reads the object of ToJson. Diagnostics that are absent or null were not measured; unknown
// members are passed over. Throws Error at `where` for any other JSON.
TensorStatistics ReadTensorStatistics(const Json& json, const std::string& where);

// The object of ToJson with the step, under the names of training logs.
Json LogLine(std::int64_t step, const TensorStatistics& tensor);

}  // namespace fp4lab
