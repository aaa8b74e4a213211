// The subcommands `gemm`, `grouped-gemm` and `attention` of `fp4lab cases`.
#pragma once

#include <CLI/CLI.hpp>

namespace fp4lab::tools {

void AddCasesGemm(CLI::App* cases);
void AddCasesGrouped(CLI::App* cases);
void AddCasesAttention(CLI::App* cases);

}  // namespace fp4lab::tools
