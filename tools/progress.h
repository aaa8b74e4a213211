// A line on stderr that says how far a run is: rewritten in place on a terminal, now and then
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fp4lab::tools {

class Progress {
 public:
  // `first` of `total` steps are done already; `tokens_per_step` makes tokens/s.
  Progress(std::int64_t first, std::int64_t total, std::int64_t tokens_per_step);
  ~Progress() { End(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // After step number `step` (counting from 1).
  void Show(std::int64_t step, double loss);
  // Finishes the line, so that others can print.
  void End();

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t first_, total_, tokens_per_step_;
  bool terminal_, open_ = false;
  Clock::time_point start_, shown_;
};

}  // namespace fp4lab::tools
