// The program: one subcommand a file; this one catches what they throw. Exit codes: 0 done, 1 an
// error, 2 a command line that makes no sense, 130 (128 + signal) interrupted.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/simd.h"
#include "fp4lab/base/suggest.h"
#include "tools/commands.h"
#include "tools/version.h"

namespace {

// What might have stood in the place of a word that `command` does not know: an option, or a
// subcommand.
std::vector<std::string> NamesIn(const CLI::App& command, bool options) {
  std::vector<std::string> names;
  if (options) {
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  } else {
    for (const CLI::App* sub : command.get_subcommands({})) names.push_back(sub->get_name());
  }
  return names;
}

// What is wrong with the command line. CLI11 misses a subcommand before it sees what stands in its
// place, so unknown words come first.
std::string Problem(const CLI::App& app, const CLI::ParseError& error) {
  std::string path = "fp4lab";
  const CLI::App* command = &app;  // the innermost subcommand that was given
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().back();
    path += " " + command->get_name();
  }
  const std::string help = "see " + path + " --help";
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) return std::string(error.what()) + "; " + help;
  const std::string& word = unknown.front();
  return "\"" + word + "\" is not known here; " +
         fp4lab::DidYouMean(word.substr(0, word.find('=')),
                            NamesIn(*command, word.starts_with('-')), help);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"fp4lab: the numerics of 4-bit LLM training"};
  app.require_subcommand(1);
  app.set_version_flag("--version", fp4lab::tools::VersionText,
                       "Print version, SIMD targets, CUDA and compiler, and end");
  int exit_code = 0;
  fp4lab::tools::AddBench(app, &exit_code);
  fp4lab::tools::AddCases(app, &exit_code);
  fp4lab::tools::AddConvert(app, &exit_code);
  fp4lab::tools::AddCrosscheck(app, &exit_code);
  fp4lab::tools::AddData(app, &exit_code);
  fp4lab::tools::AddDequantize(app, &exit_code);
  fp4lab::tools::AddDialects(app, &exit_code);
  fp4lab::tools::AddExplain(app, &exit_code);
  fp4lab::tools::AddFormats(app, &exit_code);
  fp4lab::tools::AddGemm(app, &exit_code);
  fp4lab::tools::AddIdentify(app, &exit_code);
  fp4lab::tools::AddInspect(app, &exit_code);
  fp4lab::tools::AddPack(app, &exit_code);
  fp4lab::tools::AddQuantize(app, &exit_code);
  fp4lab::tools::AddStudy(app, &exit_code);
  fp4lab::tools::AddStudyReport(app);
  fp4lab::tools::AddTrain(app, &exit_code);
  fp4lab::tools::AddVerify(app, &exit_code);
  fp4lab::tools::AddVerifyGemm(app, &exit_code);
  try {
    fp4lab::PinSimdTargetFromEnvironment();
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    std::fprintf(stderr, "error: %s\n", Problem(app, e).c_str());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return exit_code;
}
