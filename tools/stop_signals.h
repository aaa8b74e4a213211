// Signals that ask a long command to stop where it can go on later.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>

namespace fp4lab::tools {

// While it lives, SIGINT, SIGTERM and SIGHUP are noted and end nothing. A signal that was ignored
// before stays ignored, as nohup leaves SIGHUP and a shell SIGINT in the background.
class StopSignals {
 public:
  // As in sigaction. By default the second signal of a kind ends the process.
  explicit StopSignals(int flags = static_cast<int>(SA_RESETHAND) | SA_RESTART);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  // Whether any has come.
  static const std::atomic<bool>& Asked();
  // 128 + the signal, as shells count; SIGINT's if none has come to this process.
  static int ExitCode();

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace fp4lab::tools
