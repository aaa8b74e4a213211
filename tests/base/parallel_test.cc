#include "fp4lab/base/parallel.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/interrupt.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE("A parallel loop calls its body once for each index, on any number of threads",
          "[base]") {
  const int before = Threads();
  for (const int threads : {1, 2, 5}) {
    SetThreads(threads);
    CHECK(Threads() == threads);
    std::vector<int> calls(100);
    ParallelFor(calls.size(), [&calls](std::size_t i) { ++calls[i]; });
    CHECK(calls == std::vector<int>(100, 1));
  }
  SetThreads(before);
}

TEST_CASE("Loops inside a parallel loop have one thread each", "[base]") {
  const int before = Threads();
  SetThreads(3);
  std::vector<int> threads(6), calls(60);
  ParallelFor(threads.size(), [&](std::size_t i) {
    threads[i] = Threads();
    ParallelFor(10, [&](std::size_t j) { ++calls[10 * i + j]; });
  });
  CHECK(threads == std::vector<int>(6, 1));
  CHECK(calls == std::vector<int>(60, 1));
  CHECK(Threads() == 3);
  SetThreads(before);
}

TEST_CASE(
    "An exception of a loop body on any thread leaves the loop, and the next loop runs all its "
    "indices",
    "[base]") {
  const int before = Threads();
  for (const int threads : {1, 4}) {
    SetThreads(threads);
    for (std::size_t bad = 0; bad < 50; ++bad) {
      const auto loop = [&] {
        ParallelFor(50, [&](std::size_t i) {
          if (i == bad) throw Error("place", "problem");
        });
      };
      CHECK_THROWS_AS(loop(), Error);
    }
    std::vector<int> calls(100);
    ParallelFor(calls.size(), [&calls](std::size_t i) { ++calls[i]; });
    CHECK(calls == std::vector<int>(100, 1));
    CHECK(Threads() == threads);
  }
  SetThreads(before);
}

TEST_CASE("Many parallel loops in a row, of any length, call each index once", "[base]") {
  const int before = Threads();
  SetThreads(4);
  std::vector<int> calls(9);
  for (std::size_t round = 0; round < 20'000; ++round) {
    ParallelFor(2 + round % 8, [&calls](std::size_t i) { ++calls[i]; });
  }
  CHECK(calls == std::vector<int>{20000, 20000, 17500, 15000, 12500, 10000, 7500, 5000, 2500});
  SetThreads(before);
}

TEST_CASE("Parallel loops started by several threads do not interfere", "[base]") {
  std::vector<std::vector<int>> calls(4, std::vector<int>(64));
  std::vector<std::thread> threads;
  for (std::vector<int>& mine : calls) {
    threads.emplace_back([&mine] {
      SetThreads(3);
      for (int round = 0; round < 500; ++round) {
        ParallelFor(mine.size(), [&mine](std::size_t i) { ++mine[i]; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<int>& mine : calls) CHECK(mine == std::vector<int>(64, 500));
}

double ProcessorSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST_CASE("Several threads share a loop whose calls take long", "[base]") {
  const int before = Threads();
  SetThreads(4);
  for (int round = 0; round < 3; ++round) {  // the first starts the threads, the others wake them
    std::mutex mutex;
    std::set<std::thread::id> threads;
    ParallelFor(16, [&](std::size_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
    CHECK(threads.size() > 1);
    CHECK(threads.size() <= 4);
  }
  SetThreads(before);
}

TEST_CASE("Threads that wait for the next loop sleep", "[base]") {
  const int before = Threads();
  SetThreads(8);
  std::vector<int> calls(64);
  ParallelFor(calls.size(), [&calls](std::size_t i) { ++calls[i]; });
  const double start = ProcessorSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(ProcessorSeconds() - start < 0.1);
  SetThreads(before);
}

TEST_CASE("A process that was forked runs its loops", "[base]") {
  const int before = Threads();
  SetThreads(4);
  std::vector<int> calls(64);
  ParallelFor(calls.size(), [&calls](std::size_t i) { ++calls[i]; });  // starts the threads
  const pid_t child = ::fork();
  if (child == 0) {
    ParallelFor(calls.size(), [&calls](std::size_t i) { ++calls[i]; });
    SetThreads(2);  // another number: the threads of the parent, which are not here, are given up
    ParallelFor(calls.size(), [&calls](std::size_t i) { ++calls[i]; });
    ::_exit(calls == std::vector<int>(64, 3) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  SetThreads(before);
}

std::atomic<int> polls{0};
const std::thread::id* poller = nullptr;
struct Interrupted {};

TEST_CASE("A loop polls for an interrupt before each iteration of its caller, and ends with it",
          "[base]") {
  const int before = Threads();
  const std::thread::id self = std::this_thread::get_id();
  poller = &self;
  SetInterruptCheck([] {
    if (std::this_thread::get_id() == *poller && ++polls == 3) throw Interrupted{};
  });
  for (const int threads : {1, 2, 3}) {
    SetThreads(threads);
    polls = 0;
    std::atomic<int> calls{0};
    CHECK_THROWS_AS(ParallelFor(100'000'000, [&](std::size_t) { ++calls; }), Interrupted);
    CHECK(polls == 3);
    CHECK(calls < 100'000'000);
  }
  SetInterruptCheck(nullptr);
  SetThreads(before);
}

TEST_CASE("SetThreads clamps to the range from 1 to kMostThreads", "[base]") {
  const int before = Threads();
  SetThreads(1 << 30);
  CHECK(Threads() == kMostThreads);
  SetThreads(-5);
  CHECK(Threads() == 1);
  SetThreads(before);
}

}  // namespace
}  // namespace fp4lab
