#include "fp4lab/gpu/world/rendezvous.h"

#include <array>
#include <thread>
#include <vector>

#include "fp4lab/base/error.h"
#include "tests/support/catch.h"

namespace fp4lab::gpu {
namespace {

constexpr int kPort = 29517;

TEST_CASE("ShareBytes gives every process rank 0's bytes in any order of arrival", "[gpu]") {
  constexpr int kSize = 4;
  std::vector<std::array<std::byte, 128>> bytes(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    bytes[static_cast<std::size_t>(rank)].fill(static_cast<std::byte>(rank + 7));
  }
  std::vector<std::thread> processes;
  for (const int rank : {3, 1, 0, 2}) {
    processes.emplace_back([&, rank] {
      ShareBytes({.rank = rank, .size = kSize, .port = kPort},
                 bytes[static_cast<std::size_t>(rank)], 30.0);
    });
  }
  for (std::thread& process : processes) process.join();
  for (const auto& own : bytes) CHECK(own == bytes[0]);
  CHECK(bytes[0][0] == std::byte{7});
}

TEST_CASE("ShareBytes fails with one line if the other processes do not come", "[gpu]") {
  std::array<std::byte, 8> bytes{};
  CHECK_THROWS_WITH(
      ShareBytes({.rank = 1, .size = 2, .port = kPort + 1}, bytes, 0.2),
      Catch::Matchers::ContainsSubstring("process 1 of 2: the first process was not"));
  CHECK_THROWS_WITH(ShareBytes({.rank = 0, .size = 2, .port = kPort + 2}, bytes, 0.2),
                    Catch::Matchers::ContainsSubstring("the other processes did not connect"));
}

}  // namespace
}  // namespace fp4lab::gpu
