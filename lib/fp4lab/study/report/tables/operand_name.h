// The names of quantized operands and their diagnostics in figures and tables.
#pragma once

#include <cstddef>
#include <string>

#include "fp4lab/quantize/statistics.h"

namespace fp4lab::study {

// "blocks.0.mlp.up.fprop.input": block "0", linear "mlp.up", GEMM "fprop", operand "input". Outside
// the blocks ("head.fprop.input") `block` is empty.
struct OperandName {
  std::string block, linear, gemm, operand;
};
OperandName ParseOperandName(const std::string& name);

// The rank of a GEMM in tables and figures: fprop 0, dgrad 1, wgrad 2, any other 3.
std::size_t PlaceOfGemm(const std::string& gemm);

// "SQNR, dB"
std::string LabelWithUnit(const Diagnostic& diagnostic);

}  // namespace fp4lab::study
