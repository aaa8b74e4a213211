#include "tools/help/working.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "fp4lab/base/text/printable.h"
#include "tools/help/duration.h"
#include "tools/help/terminal.h"

namespace fp4lab::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Guarded by the mutex, but for `on`, which spares commands that are not watched the lock.
struct WorkingLine {
  std::mutex mutex;
  std::condition_variable ended;
  std::atomic<bool> on = false;
  bool shown = false;
  std::string command, done;
  Clock::time_point start;
};

WorkingLine& TheLine() {
  static WorkingLine line;
  return line;
}

void Hide(WorkingLine& line) {
  if (line.shown) std::fputs("\r\033[K", stderr);
  line.shown = false;
}

void Show(WorkingLine& line) {
  const std::chrono::duration<double> passed = Clock::now() - line.start;
  std::string text = line.command + ": " + Duration(passed.count());
  if (!line.done.empty()) text += " | " + line.done;
  const std::size_t width = TerminalWidth(STDERR_FILENO).value_or(80);
  std::fprintf(stderr, "\r\033[K%s", Printable(text).substr(0, width - 1).c_str());
  std::fflush(stderr);
  line.shown = true;
}

void ShowUntilEnd(WorkingLine& line) {
  std::unique_lock lock(line.mutex);
  const auto ended = [&line] { return !line.on; };
  auto pause = std::chrono::milliseconds(1000);
  while (!line.ended.wait_for(lock, pause, ended)) {
    Show(line);
    pause = std::chrono::milliseconds(250);
  }
}

bool IsPipe(int descriptor) {
  struct stat facts {};
  return ::fstat(descriptor, &facts) == 0 && (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode));
}

// A thread that no signal interrupts: they are for the thread that works.
std::thread WithoutSignals(void (*work)(WorkingLine&), WorkingLine& line) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(work, std::ref(line));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

Working::Working(const std::string& command) {
  if (::isatty(STDERR_FILENO) == 0 || IsPipe(STDOUT_FILENO)) return;
  WorkingLine& line = TheLine();
  line.command = command;
  line.done.clear();
  line.start = Clock::now();
  line.on = true;
  thread_ = WithoutSignals(ShowUntilEnd, line);
}

Working::~Working() {
  EndWorking();
  if (thread_.joinable()) thread_.join();
}

void SayDone(std::size_t done, std::size_t all, std::string_view of_what) {
  WorkingLine& line = TheLine();
  if (!line.on) return;
  const std::lock_guard lock(line.mutex);
  line.done = std::to_string(done) + " of " + std::to_string(all) + " " + std::string(of_what);
}

void HideWorking() {
  WorkingLine& line = TheLine();
  if (!line.on) return;
  const std::lock_guard lock(line.mutex);
  Hide(line);
}

void EndWorking() {
  WorkingLine& line = TheLine();
  if (!line.on) return;
  const std::lock_guard lock(line.mutex);
  Hide(line);
  line.on = false;
  line.ended.notify_all();
}

}  // namespace fp4lab::tools
