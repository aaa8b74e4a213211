// A line on stderr with the progress of a long command.
#pragma once

#include <chrono>
#include <string>

#include "fp4lab/study/run/progress.h"
#include "tools/help/duration.h"

namespace fp4lab::tools {

// On a terminal the line is rewritten in place; in a log it is printed at intervals.
class StatusLine {
 public:
  // In a log the first line is printed after `first`, the next ones every `log_every`.
  explicit StatusLine(std::chrono::seconds first = std::chrono::seconds(30),
                      std::chrono::seconds log_every = std::chrono::seconds(30));
  ~StatusLine();  // clears the line
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void Show(const std::string& text);
  // Prints a line that stays, above the status line.
  void Print(const std::string& line);

 private:
  void Clear();

  bool terminal_;
  bool shown_ = false;
  std::chrono::seconds log_every_;
  std::chrono::steady_clock::time_point next_;
};

// "845 tokens/s | 4:05 left | step 5/400, loss 5.4123" of one run; of a study "3/8 runs | " comes
// first, and each run that trains has its arm and seed, as in "nvfp4 s2 step 5/400, loss 5.4123".
std::string ProgressText(const study::Progress& progress);

// Warns on stderr if the SIMD target has no fused multiply-add, without which commands that train
// take 7 (recipes of FP4) to 40 times (bf16) as long.
void NoteSlowTarget();

}  // namespace fp4lab::tools
