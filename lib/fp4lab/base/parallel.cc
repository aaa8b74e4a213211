#include "fp4lab/base/parallel.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/interrupt.h"
#include "fp4lab/base/limits.h"
#include "fp4lab/base/memory/aligned.h"

#include <hwy/cache_control.h>

namespace fp4lab {
namespace {

// Polls of a waiting thread before it sleeps: a few microseconds, about the cost of waking it.
constexpr int kLooks = 200;

thread_local bool inside_loop = false;

// Waits until `number` is no longer `old`; returns the new value.
std::uint32_t WaitForChange(const std::atomic<std::uint32_t>& number, std::uint32_t old) {
  for (int i = 0; i < kLooks; ++i) {
    const std::uint32_t now = number.load(std::memory_order_acquire);
    if (now != old) return now;
    hwy::Pause();
  }
  number.wait(old, std::memory_order_acquire);
  return number.load(std::memory_order_acquire);
}

// The worker threads that share the loops of one calling thread.
class Team {
 public:
  // Starts `helpers` threads, or fewer if the system refuses more.
  explicit Team(int helpers) : wanted_(helpers) {
    try {
      for (int i = 0; i < helpers; ++i) helpers_.emplace_back([this] { Help(); });
    } catch (const std::system_error&) {  // loops run on the threads started so far
    }
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() {
    if (::getpid() != process_) {  // a child of fork: it has none of the threads, so none is joined
      new std::vector<std::thread>(std::move(helpers_));
      return;
    }
    ending_ = true;
    Announce(helpers_.size());
    for (std::thread& helper : helpers_) helper.join();
  }

  int Wanted() const { return wanted_; }

  void Run(std::size_t count, LoopBody body, void* context) {
    count_ = count;
    body_ = body;
    context_ = context;
    next_.store(0, std::memory_order_relaxed);
    state_.store(0, std::memory_order_release);
    Announce(count - 1);
    Work(CheckInterrupt);
    std::uint32_t state = state_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
    while (state != kClosed) state = WaitForChange(state_, state);
    if (failed_.exchange(false)) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  // Announces a loop and wakes up to `parts` helpers.
  void Announce(std::size_t parts) {
    loops_.fetch_add(1);
    if (parts >= helpers_.size()) return loops_.notify_all();
    for (std::size_t i = 0; i < parts; ++i) loops_.notify_one();
  }

  void Help() {
    const IeeeArithmetic ieee;  // for the whole thread: a new one has the state of its creator
    inside_loop = true;
    for (std::uint32_t seen = 0; !ending_;) {
      seen = WaitForChange(loops_, seen);
      if (!Enter()) continue;
      Work([] {});
      if (state_.fetch_sub(1, std::memory_order_acq_rel) == (kClosed | 1)) state_.notify_one();
    }
  }

  bool Enter() {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    while ((state & kClosed) == 0) {
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

  // Runs iterations of the current loop until none is left, and calls poll before each.
  template <class Poll>
  void Work(Poll poll) {
    try {
      for (std::size_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
        poll();
        body_(context_, i);
      }
    } catch (...) {
      next_.store(count_);
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }

  static constexpr std::uint32_t kClosed = 0x80000000u;

  const int wanted_;
  const pid_t process_ = ::getpid();
  std::vector<std::thread> helpers_;
  std::atomic<bool> ending_{false};
  alignas(kCacheLine) std::atomic<std::uint32_t> loops_{0};  // loops announced so far
  // The number of helpers inside the loop, with the bit kClosed once no more may enter. count_,
  // body_ and context_ change only while no helper is inside.
  alignas(kCacheLine) std::atomic<std::uint32_t> state_{kClosed};
  std::size_t count_ = 0;
  LoopBody body_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  alignas(kCacheLine) std::atomic<std::size_t> next_{0};
};

}  // namespace

int Threads() {
  if (inside_loop || omp_get_active_level() >= omp_get_max_active_levels()) return 1;
  return std::min(omp_get_max_threads(), kMostThreads);
}

void SetThreads(int threads) { omp_set_num_threads(std::clamp(threads, 1, kMostThreads)); }

int DefaultThreads() {
  const char* const asked = std::getenv("OMP_NUM_THREADS");
  if (asked == nullptr || *asked == '\0') return std::min(Processors(), kMostThreads);
  if (omp_get_max_threads() <= kMostThreads) return omp_get_max_threads();
  throw Error("OMP_NUM_THREADS=" + std::string(asked),
              "must be at most " + std::to_string(kMostThreads));
}

void RunOnThreads(std::size_t count, LoopBody body, void* context) {
  thread_local std::unique_ptr<Team> team;
  const int helpers = Threads() - 1;
  if (!team || team->Wanted() != helpers) {
    team.reset();
    team = std::make_unique<Team>(helpers);
  }
  inside_loop = true;
  struct Outside {
    ~Outside() { inside_loop = false; }
  } outside;
  team->Run(count, body, context);
}

}  // namespace fp4lab
