#include "tools/options/stop_signals.h"

namespace fp4lab::tools {
namespace {

std::atomic<bool> asked{false};
std::atomic<int> last{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

extern "C" void NoteSignal(int signal) {
  last = signal;
  asked = true;
}

}  // namespace

StopSignals::StopSignals(int flags) {
  struct sigaction action {};
  action.sa_handler = NoteSignal;
  action.sa_flags = flags;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &before_[i], nullptr);
  }
}

const std::atomic<bool>& StopSignals::Asked() { return asked; }

int StopSignals::ExitCode() {
  const int signal = last;
  return 128 + (signal != 0 ? signal : SIGINT);
}

}  // namespace fp4lab::tools
