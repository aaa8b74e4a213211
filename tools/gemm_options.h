// The options that `gemm` and `verify gemm` share: two operands, alpha, the model, the output.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "fp4lab/judge/gemm_file.h"
#include "fp4lab/tensor/accumulation.h"

namespace fp4lab::tools {

struct ProductFiles {
  std::string a, b;            // path or path:name
  std::string operand;         // for plain numbers: the format they are rounded to
  std::string under;           // an accumulation
  std::string alpha = "1";     // a number, or a convention of amax
  std::string output = "f32";  // kGemmOutputs
};

// `under`: the default.
void AddProductOptions(CLI::App* command, ProductFiles* files, const std::string& under);

struct LoadedProduct {
  GemmOperandFile a, b;
  float alpha = 1.0f;
  GemmOutput output = GemmOutput::kFp32;
};
LoadedProduct Load(const ProductFiles& files);

// Error with the names that there are, or with the reason why it does not take these operands.
const Accumulation& RequireAccumulation(const std::string& name, const LoadedProduct& product);

}  // namespace fp4lab::tools
