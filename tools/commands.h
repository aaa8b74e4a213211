// The subcommands of fp4lab: one function each, in the file of its name.
#pragma once

#include <CLI/CLI.hpp>

namespace fp4lab::tools {

// Each adds its subcommand to `app`. What it finds wrong it throws (base/error.h); an exit code
// other than 0 that is no error goes to *exit_code.
void AddBench(CLI::App& app, int* exit_code);
void AddCases(CLI::App& app, int* exit_code);
void AddConvert(CLI::App& app, int* exit_code);
void AddCrosscheck(CLI::App& app, int* exit_code);
void AddData(CLI::App& app, int* exit_code);
void AddDequantize(CLI::App& app, int* exit_code);
void AddDialects(CLI::App& app, int* exit_code);
void AddExplain(CLI::App& app, int* exit_code);
void AddFormats(CLI::App& app, int* exit_code);
void AddGemm(CLI::App& app, int* exit_code);
void AddIdentify(CLI::App& app, int* exit_code);
void AddInspect(CLI::App& app, int* exit_code);
void AddPack(CLI::App& app, int* exit_code);
void AddQuantize(CLI::App& app, int* exit_code);
void AddRecipes(CLI::App& app, int* exit_code);
void AddStudy(CLI::App& app, int* exit_code);
// Adds "report" to the subcommand "study": call it after that one's.
void AddStudyReport(CLI::App& app);
void AddTrain(CLI::App& app, int* exit_code);
void AddVerify(CLI::App& app, int* exit_code);
// Adds "gemm" to the subcommand "verify": call it after that one's.
void AddVerifyGemm(CLI::App& app, int* exit_code);

}  // namespace fp4lab::tools
