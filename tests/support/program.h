// Runs the program fp4lab as a user would.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/catch.h"

namespace fp4lab {

struct ProgramRun {
  int exit_code = -1;
  std::string output;  // both streams, as they came
};

// `arguments` as a shell reads them. The program is that of the environment variable
// FP4LAB_PROGRAM, which ctest sets.
inline ProgramRun RunProgram(const std::string& arguments) {
  const char* program = std::getenv("FP4LAB_PROGRAM");
  REQUIRE(program != nullptr);
  const std::string command = "\"" + std::string(program) + "\" " + arguments + " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  ProgramRun run;
  std::array<char, 4096> buffer;
  std::size_t got = 0;
  while ((got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) {
    run.output.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

}  // namespace fp4lab
