// Operands of matrix products and their probes, from and to files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fp4lab/exchange/stored.h"
#include "fp4lab/judge/gemm_probe.h"
#include "fp4lab/tensor/mma_operand.h"

namespace fp4lab {

struct GemmOperandFile {
  MmaOperand operand;
  std::string what;           // "32x128 float4_e2m1fn, float8_e4m3fn scales of 16"
  std::optional<float> amax;  // the tensor's, where the file has one number that gives it
};

// path or path#name. A quantized matrix in any layout that exchange/stored_file.h reads; else plain
// numbers, rounded to `format` (a short name: "bf16") or, where that is empty, in the file's own
// narrow format. Error with the remedy where it is neither.
GemmOperandFile ReadGemmOperand(std::string_view place, std::string_view format = {});

MmaOperand MakeMmaOperand(const StoredMatrix& stored, std::string_view where);

// Operands "a" and "b" in one .safetensors file: quantized matrices, or tensors of plain numbers.
void WriteProbes(const ProbeSet& set, std::string_view path);

}  // namespace fp4lab
