// The subcommands of fp4lab: one function each, in the file of its name.
#pragma once

#include <CLI/CLI.hpp>

namespace fp4lab::tools {

// Each function adds its subcommand to `app`. The subcommand throws Error (base/error.h) for an
// error, and sets *exit_code to an exit code other than 0 that is no error.
void AddBench(CLI::App& app, int* exit_code);
void AddCases(CLI::App& app, int* exit_code);
void AddCheck(CLI::App& app, int* exit_code);
// Must be called on the app of the whole program, whose commands it prints.
void AddCompare(CLI::App& app, int* exit_code);
void AddCompletion(CLI::App& app, int* exit_code);
void AddConvert(CLI::App& app, int* exit_code);
void AddCrosscheck(CLI::App& app, int* exit_code);
void AddData(CLI::App& app, int* exit_code);
void AddDequantize(CLI::App& app, int* exit_code);
void AddDialects(CLI::App& app, int* exit_code);
void AddDraw(CLI::App& app, int* exit_code);
void AddEvaluate(CLI::App& app, int* exit_code);
void AddExplain(CLI::App& app, int* exit_code);
void AddExport(CLI::App& app, int* exit_code);
void AddFormats(CLI::App& app, int* exit_code);
void AddGemm(CLI::App& app, int* exit_code);
void AddIdentify(CLI::App& app, int* exit_code);
void AddImport(CLI::App& app, int* exit_code);
void AddInspect(CLI::App& app, int* exit_code);
void AddKeys(CLI::App& app, int* exit_code);
// As AddCompletion.
void AddMan(CLI::App& app, int* exit_code);
void AddPack(CLI::App& app, int* exit_code);
void AddParity(CLI::App& app, int* exit_code);
void AddPresets(CLI::App& app, int* exit_code);
void AddQuantize(CLI::App& app, int* exit_code);
void AddRecipes(CLI::App& app, int* exit_code);
void AddStudy(CLI::App& app, int* exit_code);
// Add the commands of clusters, "plan", "report", "watch" and the commands of several studies to
// the subcommand "study". Must be called after AddStudy.
void AddStudyCluster(CLI::App& app, int* exit_code);  // "runs", "submit", "collect"
void AddStudyPlan(CLI::App& app);
void AddStudyReport(CLI::App& app);
void AddStudySeveral(CLI::App& app);  // "surface", "law", "league", ...
void AddStudyWatch(CLI::App& app);
void AddTrain(CLI::App& app, int* exit_code);
void AddVerify(CLI::App& app, int* exit_code);
// Add "gemm", "grouped-gemm" and "attention" to the subcommand "verify". Must be called after
// AddVerify.
void AddVerifyGemm(CLI::App& app, int* exit_code);
void AddVerifyGrouped(CLI::App& app, int* exit_code);
void AddVerifyAttention(CLI::App& app, int* exit_code);
void AddWhatIf(CLI::App& app, int* exit_code);

}  // namespace fp4lab::tools
