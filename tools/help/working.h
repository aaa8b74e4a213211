// The line on a terminal's standard error that a long command is at work.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <thread>

namespace fp4lab::tools {

// While it lives: a command that is silent for a second shows "fp4lab identify: 0:04". The line
// ends when the command prints, and gives way to a status line of the command's own. Nothing is
// shown in a log, nor where standard output is a pipe, whose other programs may write to the
// terminal.
class Working {
 public:
  explicit Working(const std::string& command);
  ~Working();
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  std::thread thread_;
};

// Adds to the line what is done: "35 of 171 dialects". From any thread.
void SayDone(std::size_t done, std::size_t all, std::string_view of_what);

// Takes the line away, for a moment or for good.
void HideWorking();
void EndWorking();

}  // namespace fp4lab::tools
