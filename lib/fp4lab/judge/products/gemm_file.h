// Operands of matrix products and their probes, from and to files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/products/gemm_probe.h"
#include "fp4lab/judge/products/scaled_product.h"
#include "fp4lab/tensor/mma/mma_operand.h"

namespace fp4lab {

struct GemmOperandFile {
  MmaOperand operand;
  std::string what;           // "32x128 float4_e2m1fn, float8_e4m3fn scales of 16"
  std::optional<float> amax;  // the tensor's amax, if the file has a single tensor scale
};

// Reads an operand from path or path#name: a quantized matrix in any layout that
// exchange/stored_file.h reads, or plain numbers. Plain numbers are rounded to `format` (a short
// name: "bf16"); if that is empty, the file must hold a narrow format. Throws Error with the remedy
// if the file has neither.
GemmOperandFile ReadGemmOperand(std::string_view place, std::string_view format = {});

// Whether a place names a quantized matrix, or part of one, and not plain numbers.
bool HoldsStored(std::string_view place);

// Throws Error(where, ...) for block scales that are numbers.
MmaOperand MakeMmaOperand(const StoredMatrix& stored, std::string_view where);

// An operand with its scales of any kind, as judge/products/scaled_product.h takes it: a quantized
// matrix, or FP8 numbers with the scale 1 as ReadGemmOperand reads them. `amax`: the tensor's, of
// FP4 under a single tensor scale, which the operand leaves to alpha. Throws Error for elements
// that MakeScaledOperand does not take.
struct ScaledOperandFile {
  ScaledOperand operand;
  std::string what;
  std::optional<float> amax = {};
};
ScaledOperandFile ReadScaledOperand(std::string_view place, std::string_view format = {});
// Whether the file holds a quantized matrix for which IsScaledFp8 is true.
bool HoldsScaledFp8(std::string_view place);

// Adds an operand to a file: an NVFP4 or MXFP4 matrix with linear scales, or a tensor of plain
// numbers.
void AddOperand(const MmaOperand& x, const std::string& name, SafetensorsFile* file);

// Writes operands "a" and "b" to one .safetensors file: quantized matrices, or tensors of plain
// numbers.
void WriteProbes(const ProbeSet& set, std::string_view path);

}  // namespace fp4lab
