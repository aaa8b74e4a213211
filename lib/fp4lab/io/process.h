// Runs another program, without a shell.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace fp4lab {

struct ProcessOptions {
  std::string input = {};                                             // its standard input
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to ours, or replaced
  std::filesystem::path folder = {};                                  // to run in; empty: ours
  double timeout_seconds = 0;                                         // 0: none
  const std::atomic<bool>* stop = nullptr;                            // ends it once this is true
};

struct ProcessResult {
  int exit_code = 0;  // 128 + signal where one ended it
  std::string output = {}, error = {};
  bool timed_out = false;
  bool stopped = false;  // by options.stop
};

// Waits for the end of `arguments` (the program first, looked up in PATH) and of its output. A
// program that overruns the timeout or is stopped gets SIGTERM, 2 s later SIGKILL. Error where it
// cannot be started.
ProcessResult RunProcess(const std::vector<std::string>& arguments,
                         const ProcessOptions& options = {});

}  // namespace fp4lab
