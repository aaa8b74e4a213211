#include "fp4lab/base/parallel.h"

#include <cstddef>
#include <vector>

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

}  // namespace
}  // namespace fp4lab
