// The one line on stderr that says how far a long command is.
#pragma once

#include <chrono>
#include <string>

namespace fp4lab::tools {

// On a terminal the line is rewritten in place; elsewhere (a log) it is printed every 30 s.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine();  // clears it
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void Show(const std::string& text);
  // A line that stays, above the status line.
  void Print(const std::string& line);

 private:
  void Clear();

  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

std::string Duration(double seconds);  // "4:05", "1:02:33"
std::string Rate(double per_second);   // "845", "34.2k", "1.20M"

// One line on stderr where the SIMD target has no fused multiply-add: what follows takes long.
void NoteSlowTarget();

}  // namespace fp4lab::tools
