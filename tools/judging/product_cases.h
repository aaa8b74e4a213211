// The subcommand `gemm` of `fp4lab cases`.
#pragma once

#include <CLI/CLI.hpp>

namespace fp4lab::tools {

void AddCasesGemm(CLI::App* cases);

}  // namespace fp4lab::tools
