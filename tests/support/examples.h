// The worked examples of a help text, run as a reader would run them.
//
// In the text a command follows "  $ " and continues in the next line if it ends in | or \; its
// output comes next, indented by two spaces.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "fp4lab/io/process.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"

namespace fp4lab {

struct Example {
  std::string command;
  std::string output;  // lines without their indentation
};

inline std::string WithoutIndentation(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    result += (first == std::string::npos ? "" : line.substr(first)) + "\n";
  }
  return result;
}

inline std::vector<Example> ExamplesOf(const std::string& help) {
  std::vector<Example> examples;
  std::istringstream lines(help);
  bool goes_on = false, open = false;
  for (std::string line; std::getline(lines, line);) {
    const bool starts = line.rfind("  $ ", 0) == 0;
    if (starts) {
      examples.push_back({line.substr(4), ""});
    } else if (goes_on) {
      examples.back().command += "\n" + line;
    } else if (open && line.rfind("  ", 0) == 0) {
      examples.back().output += WithoutIndentation(line);
    } else {
      open = false;
      continue;
    }
    open = true;
    goes_on = (starts || goes_on) && (line.back() == '|' || line.back() == '\\');
  }
  return examples;
}

// Runs an example by sh, in `folder`, with the program fp4lab first in PATH.
inline ProcessResult RunExample(const Example& example, const std::filesystem::path& folder) {
  const std::string program_folder = std::filesystem::path(Program()).parent_path().string();
  const char* path = std::getenv("PATH");
  ProcessOptions options;
  options.environment = {{"PATH", program_folder + ":" + (path == nullptr ? "" : path)}};
  options.folder = folder;
  options.timeout_seconds = 300;  // sanitizers are slow
  return RunProcess({"sh", "-ec", example.command}, options);
}

// Checks that `fp4lab command... --help` has examples and that each prints the output it shows.
inline void CheckHelpExamples(std::vector<std::string> command) {
  CAPTURE(command);
  command.push_back("--help");
  const std::vector<Example> examples = ExamplesOf(RunProgram(command).output);
  CHECK(!examples.empty());
  const TemporaryFolder folder;
  for (const Example& example : examples) {
    CAPTURE(example.command);
    const ProcessResult run = RunExample(example, folder.path());
    CHECK(run.exit_code == 0);
    CHECK(run.error.empty());
    CHECK(WithoutIndentation(run.output) == example.output);
  }
}

}  // namespace fp4lab
