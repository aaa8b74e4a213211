// The program fp4lab. Every subcommand has a file of its own; this file parses the command line and
// catches exceptions. Exit codes: 0 done, 1 an error, 2 an invalid command line, 128 + signal
// interrupted (130 by Ctrl-C). Commands that compare have the exit codes of cmp instead
// (tools/options/comparing.h): 0 equal, 1 different, 2 an error.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/limits.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/base/text/suggest.h"
#include "tools/file_faults.h"
#include "tools/help/formatter.h"
#include "tools/help/terminal.h"
#include "tools/help/working.h"
#include "tools/options/commands.h"
#include "tools/options/print.h"
#include "tools/options/version.h"

namespace {

// The names of the options or subcommands of `command`, to suggest instead of an unknown word.
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

// The program and the subcommands given on the command line, from the outermost.
std::vector<const CLI::App*> Given(const CLI::App& app) {
  std::vector<const CLI::App*> given = {&app};
  while (!given.back()->get_subcommands().empty()) {
    given.push_back(given.back()->get_subcommands().back());
  }
  return given;
}

// The names of a subcommand and its parents: "fp4lab study run".
std::string PathOf(const std::vector<const CLI::App*>& given) {
  std::string path = "fp4lab";
  for (std::size_t i = 1; i < given.size(); ++i) path += " " + given[i]->get_name();
  return path;
}

// The subcommands below `command` with this name, as they are typed: "fp4lab study watch".
std::vector<std::string> Elsewhere(const CLI::App& command, const std::string& path,
                                   const std::string& name) {
  std::vector<std::string> found;
  for (const CLI::App* sub : command.get_subcommands({})) {
    const std::string own = path + " " + sub->get_name();
    if (sub->get_name() == name) found.push_back(own);
    for (std::string& below : Elsewhere(*sub, own, name)) found.push_back(std::move(below));
  }
  return found;
}

// One line about the error of the command line. CLI11 reports a missing subcommand before the
// unknown word in its place, so unknown words are reported first.
std::string Problem(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> given = Given(app);
  const CLI::App* const command = given.back();
  const std::string help = "see " + PathOf(given) + " --help";
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) return std::string(error.what()) + "; " + help;
  const std::string& word = unknown.front();
  const bool wants_command = !command->get_subcommands({}).empty();
  const std::vector<std::string> found = Elsewhere(app, "fp4lab", word);
  if (wants_command && !found.empty()) {
    return "\"" + word + "\" is not known here; did you mean \"" + found.front() + "\"?";
  }
  return "\"" + word + "\" is not known here; " +
         fp4lab::DidYouMean(word.substr(0, word.find('=')),
                            NamesIn(*command, word.starts_with('-')), help);
}

// Reports on standard error that memory does not suffice. Returns the exit code.
int SayOutOfMemory(const CLI::App& app, int exit_code) {
  const fp4lab::MemoryRoom room = fp4lab::AvailableMemory();
  fp4lab::tools::PrintError(PathOf(Given(app)) + ": out of memory: " + room.of + " has " +
                            std::to_string(room.bytes >> 20) + " MiB left; use a smaller input");
  return std::max(exit_code, 1);
}

// Parses the command line and runs the command. Returns the exit code; commands throw their errors.
int Run(int argc, char** argv) {
  CLI::App app{"fp4lab: the numerics of 4-bit LLM training"};
  app.formatter(std::make_shared<fp4lab::tools::FittedFormatter>(
      fp4lab::tools::TerminalWidth(STDOUT_FILENO)));
  app.require_subcommand(1);
  app.set_version_flag("--version", fp4lab::tools::VersionText,
                       "Print version, SIMD targets, CUDA and compiler, and end");
  int exit_code = 0;
  std::optional<fp4lab::tools::Working> working;
  app.parse_complete_callback([&] { working.emplace(PathOf(Given(app))); });
  fp4lab::tools::AddBench(app, &exit_code);
  fp4lab::tools::AddCases(app, &exit_code);
  fp4lab::tools::AddCheck(app, &exit_code);
  fp4lab::tools::AddCompare(app, &exit_code);
  fp4lab::tools::AddCompletion(app, &exit_code);
  fp4lab::tools::AddConvert(app, &exit_code);
  fp4lab::tools::AddCrosscheck(app, &exit_code);
  fp4lab::tools::AddData(app, &exit_code);
  fp4lab::tools::AddDequantize(app, &exit_code);
  fp4lab::tools::AddDialects(app, &exit_code);
  fp4lab::tools::AddDraw(app, &exit_code);
  fp4lab::tools::AddEvaluate(app, &exit_code);
  fp4lab::tools::AddExplain(app, &exit_code);
  fp4lab::tools::AddExport(app, &exit_code);
  fp4lab::tools::AddFormats(app, &exit_code);
  fp4lab::tools::AddGemm(app, &exit_code);
  fp4lab::tools::AddIdentify(app, &exit_code);
  fp4lab::tools::AddImport(app, &exit_code);
  fp4lab::tools::AddInspect(app, &exit_code);
  fp4lab::tools::AddKeys(app, &exit_code);
  fp4lab::tools::AddMan(app, &exit_code);
  fp4lab::tools::AddPack(app, &exit_code);
  fp4lab::tools::AddParity(app, &exit_code);
  fp4lab::tools::AddPresets(app, &exit_code);
  fp4lab::tools::AddQuantize(app, &exit_code);
  fp4lab::tools::AddRecipes(app, &exit_code);
  fp4lab::tools::AddStudy(app, &exit_code);
  fp4lab::tools::AddStudyReport(app);
  fp4lab::tools::AddStudySeveral(app);
  fp4lab::tools::AddStudyCluster(app, &exit_code);
  fp4lab::tools::AddStudyPlan(app);
  fp4lab::tools::AddStudyWatch(app);
  fp4lab::tools::AddTrain(app, &exit_code);
  fp4lab::tools::AddVerify(app, &exit_code);
  fp4lab::tools::AddVerifyGemm(app, &exit_code);
  fp4lab::tools::AddVerifyGrouped(app, &exit_code);
  fp4lab::tools::AddVerifyAttention(app, &exit_code);
  fp4lab::tools::AddWhatIf(app, &exit_code);
  try {
    fp4lab::SetThreads(fp4lab::DefaultThreads());
    fp4lab::PinSimdTargetFromEnvironment();
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) {
      fp4lab::tools::PrintError(Problem(app, e));
      return 2;
    }
    app.exit(e);  // --help, --version
  } catch (const std::bad_alloc&) {
    return SayOutOfMemory(app, exit_code);
  } catch (const std::length_error&) {  // an allocation larger than any memory
    return SayOutOfMemory(app, exit_code);
  }
  fp4lab::tools::FlushStandardOutput();
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const fp4lab::IeeeArithmetic ieee;  // a preloaded library may have changed the state
  fp4lab::tools::NameFilesThatFault();
  try {
    return Run(argc, argv);
  } catch (const std::exception& e) {
    fp4lab::tools::PrintError(fp4lab::tools::TextOf(e));
    return 1;
  }
}
