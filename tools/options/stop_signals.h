// Signals that ask a long command to stop at a point from which it can be resumed.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>

namespace fp4lab::tools {

// During the life of a StopSignals, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 (which schedulers
// of clusters send before a job's time is over) set Asked() and do not end the process. A signal
// that was ignored before stays ignored, as SIGHUP under nohup, and SIGINT in the background of a
// shell.
class StopSignals {
 public:
  // `flags` are those of sigaction. By default the second signal of a kind ends the process.
  explicit StopSignals(int flags = static_cast<int>(SA_RESETHAND) | SA_RESTART);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // Whether any of the signals has come to this process.
  static const std::atomic<bool>& Asked();
  // 128 + the last signal, as shells count; 128 + SIGINT if none has come to this process.
  static int ExitCode();

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace fp4lab::tools
