// How commands refuse options that contradict each other or would have no effect.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string>

namespace fp4lab::tools {

// Refuses a command line: main.cc prints "option: problem" on one line and ends with exit code 2,
// as for an option that is not known.
[[noreturn]] inline void RefuseUsage(const std::string& option, const std::string& problem) {
  throw CLI::ValidationError(option, problem);
}

// Refuses the first of `options` that the command line gives, since `why`: "has no effect ...".
inline void RefuseGiven(const CLI::App& command, std::initializer_list<const char*> options,
                        const std::string& why) {
  for (const char* option : options) {
    if (command.count(option) != 0) RefuseUsage(option, why);
  }
}

}  // namespace fp4lab::tools
