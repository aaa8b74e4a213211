// Runs another program, without a shell.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace fp4lab {

struct ProcessOptions {
  std::string input = {};  // standard input of the program
  // Variables that are added to this process's environment or replace its values.
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::filesystem::path folder = {};        // working folder; empty: that of this process
  double timeout_seconds = 0;               // 0: no timeout
  const std::atomic<bool>* stop = nullptr;  // the program is ended once *stop is true
};

struct ProcessResult {
  int exit_code = 0;  // 128 + signal if a signal ended the program
  std::string output = {}, error = {};
  bool timed_out = false;
  bool stopped = false;  // by options.stop
};

// Runs `arguments` (the program first, looked up in PATH) and waits until the program has ended and
// its output is closed. A program that overruns the timeout or is stopped gets SIGTERM, 2 s later
// SIGKILL. Throws Error if the program cannot be started.
ProcessResult RunProcess(const std::vector<std::string>& arguments,
                         const ProcessOptions& options = {});

}  // namespace fp4lab
