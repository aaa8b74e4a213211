#include "tools/options/status_line.h"

#include <unistd.h>

#include <cstdio>

#include "fp4lab/base/simd/simd.h"
#include "fp4lab/base/text/printable.h"
#include "tools/help/terminal.h"
#include "tools/help/working.h"

namespace fp4lab::tools {
namespace {

// "845", "34.2k", "1.20M"
std::string Rate(double per_second) {
  char text[32];
  if (per_second >= 1e6) {
    std::snprintf(text, sizeof(text), "%.2fM", per_second / 1e6);
  } else if (per_second >= 1e4) {
    std::snprintf(text, sizeof(text), "%.1fk", per_second / 1e3);
  } else {
    std::snprintf(text, sizeof(text), "%.0f", per_second);
  }
  return text;
}

}  // namespace

StatusLine::StatusLine(std::chrono::seconds first, std::chrono::seconds log_every)
    : terminal_(::isatty(STDERR_FILENO) != 0),
      log_every_(log_every),
      next_(std::chrono::steady_clock::now() + first) {
  EndWorking();
}

void NoteSlowTarget() {
  if (HasFusedMultiplyAdd()) return;
  std::fprintf(stderr,
               "note: the SIMD target %s has no fused multiply-add: training takes 7 (FP4) to 40 "
               "(BF16) times as long as on avx2\n",
               ActiveSimdTarget().c_str());
}

StatusLine::~StatusLine() { Clear(); }

void StatusLine::Clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

void StatusLine::Show(const std::string& text) {
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s",
                 Printable(text).substr(0, TerminalWidth(STDERR_FILENO).value_or(80) - 1).c_str());
    std::fflush(stderr);
    shown_ = true;
  } else if (const auto now = std::chrono::steady_clock::now(); now >= next_) {
    std::fprintf(stderr, "%s\n", Printable(text).c_str());
    next_ = now + log_every_;
  }
}

void StatusLine::Print(const std::string& line) {
  Clear();
  std::fprintf(stderr, "%s\n", Printable(line).c_str());
}

std::string ProgressText(const study::Progress& progress) {
  std::string text;
  if (progress.runs > 1) {
    text = std::to_string(progress.runs_done) + "/" + std::to_string(progress.runs) + " runs | ";
  }
  text += Rate(progress.tokens_per_second) + " tokens/s";
  if (progress.seconds_left >= 0.0) text += " | " + Duration(progress.seconds_left) + " left";
  for (const study::RunningJob& job : progress.running) {
    char step[96];
    std::snprintf(step, sizeof(step), "step %lld/%lld, loss %.4f", static_cast<long long>(job.step),
                  static_cast<long long>(job.steps), job.loss);
    text += " | ";
    if (!job.arm.empty()) text += job.arm + " s" + std::to_string(job.seed) + " ";
    text += step;
  }
  return text;
}

}  // namespace fp4lab::tools
