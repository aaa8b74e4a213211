// Runs the program fp4lab as a user does.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/io/process.h"

namespace fp4lab {

// The path of the program, from the environment of ctest.
inline std::string Program() {
  const char* program = std::getenv("FP4LAB_PROGRAM");
  Expects(program != nullptr, "FP4LAB_PROGRAM names the program (ctest sets it)");
  return program;
}

// The longest run that is not taken for one that hangs; sanitizers on a loaded machine are slow.
inline constexpr double kProgramSeconds = 300;

// Runs `fp4lab arguments...`, by default for at most kProgramSeconds.
inline ProcessResult RunProgram(const std::vector<std::string>& arguments,
                                ProcessOptions options = {}) {
  std::vector<std::string> all{Program()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  if (options.timeout_seconds == 0) options.timeout_seconds = kProgramSeconds;
  return RunProcess(all, options);
}

// Runs `fp4lab cases ARGUMENTS | KERNEL | fp4lab verify VERIFY_ARGUMENTS`; the exit code is
// verify's.
inline ProcessResult PipeCases(const std::string& arguments, const std::string& kernel,
                               const std::string& verify_arguments) {
  const std::string command = "'" + Program() + "' cases " + arguments + " | " + kernel + " | '" +
                              Program() + "' verify " + verify_arguments;
  ProcessOptions options;
  options.timeout_seconds = kProgramSeconds;
  return RunProcess({"sh", "-c", command}, options);
}

// Whether `text` is one line, ended by a newline.
inline bool IsOneLine(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

}  // namespace fp4lab
