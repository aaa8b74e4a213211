// The options that `gemm` and `verify gemm` share: two operands, alpha, the model, the output.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "fp4lab/judge/products/gemm_file.h"
#include "fp4lab/tensor/accumulation.h"

namespace fp4lab::tools {

struct ProductFiles {
  std::string a, b;            // FILE or FILE#NAME
  std::string operand;         // for plain numbers: the format they are rounded to
  std::string under;           // the name of an accumulation
  std::string alpha = "1";     // a number, or the name of a rule that makes it of the amaxes
  std::string output = "f32";  // a name of kGemmOutputs
};

// Adds A, B and the options above. `under` is the default of --under.
void AddProductOptions(CLI::App* command, ProductFiles* files, const std::string& under);

// The output type of a name of kGemmOutputs. Throws Error with a suggestion for another name.
GemmOutput GemmOutputNamed(const std::string& name);

struct LoadedProduct {
  GemmOperandFile a, b;
  float alpha = 1.0f;
  GemmOutput output = GemmOutput::kFp32;
};
// Reads both operands. Throws Error if their K differ, or for an alpha or output that is not known.
LoadedProduct Load(const ProductFiles& files);

// --alpha as a number, for these operands. Throws Error for what is neither a number nor a rule,
// and for a rule where an operand has no amax.
float ReadAlpha(const ProductFiles& files, const LoadedProduct& product);

// The accumulation `name`. Throws Error for an unknown name, with a suggestion, and for an
// accumulation that does not take the operands, with the reason.
const Accumulation& RequireAccumulation(const std::string& name, const LoadedProduct& product);

}  // namespace fp4lab::tools
