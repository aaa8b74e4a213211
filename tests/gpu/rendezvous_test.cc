#include "fp4lab/gpu/rendezvous.h"

#include <array>
#include <thread>
#include <vector>

#include "fp4lab/base/error.h"
#include "tests/support/catch.h"

namespace fp4lab::gpu {
namespace {

constexpr int kPort = 29517;

TEST_CASE("Processes meet, whoever comes first, and get the first one's bytes", "[gpu]") {
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

TEST_CASE("A process that stays alone says so in one line", "[gpu]") {
  std::array<std::byte, 8> bytes{};
  CHECK_THROWS_WITH(
      ShareBytes({.rank = 1, .size = 2, .port = kPort + 1}, bytes, 0.2),
      Catch::Matchers::ContainsSubstring("process 1 of 2: the first process was not"));
  CHECK_THROWS_WITH(ShareBytes({.rank = 0, .size = 2, .port = kPort + 2}, bytes, 0.2),
                    Catch::Matchers::ContainsSubstring("the other processes did not come"));
}

}  // namespace
}  // namespace fp4lab::gpu
