#include "tools/progress.h"

#include <unistd.h>

#include <cstdio>

namespace fp4lab::tools {
namespace {

std::string Duration(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  char text[64];
  if (s >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
  }
  return text;
}

}  // namespace

Progress::Progress(std::int64_t first, std::int64_t total, std::int64_t tokens_per_step)
    : first_(first),
      total_(total),
      tokens_per_step_(tokens_per_step),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()) {}

void Progress::Show(std::int64_t step, double loss) {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> pause(terminal_ ? 0.2 : 10.0);
  if (step < total_ && now - shown_ < pause) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double steps_per_second = static_cast<double>(step - first_) / seconds;
  std::fprintf(stderr, "%sstep %lld/%lld  loss %.4f  %.0f tokens/s  ETA %s%s",
               terminal_ ? "\r" : "", static_cast<long long>(step), static_cast<long long>(total_),
               loss, steps_per_second * static_cast<double>(tokens_per_step_),
               Duration(static_cast<double>(total_ - step) / steps_per_second).c_str(),
               terminal_ ? "\x1b[K" : "\n");
  open_ = terminal_;
}

void Progress::End() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

}  // namespace fp4lab::tools
