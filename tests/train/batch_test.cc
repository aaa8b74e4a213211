#include "fp4lab/train/batch.h"

#include <set>
#include <vector>

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE("An epoch visits every window once, inside the tokens", "[train]") {
  for (const std::uint64_t tokens : {33u, 100u, 1000u, 12345u}) {
    const DataOrder order{7, tokens, 16};
    const std::uint64_t windows = WindowCount(order);
    REQUIRE(windows == tokens / 16 - 1);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::uint64_t> starts;
      for (std::uint64_t i = 0; i < windows; ++i) {
        const std::uint64_t start = WindowStart(order, epoch * windows + i);
        CHECK(start + 16 < tokens);
        starts.insert(start);
      }
      CHECK(starts.size() == windows);
      CHECK(*starts.rbegin() - *starts.begin() == (windows - 1) * 16);
    }
  }
}

TEST_CASE("The order depends on seed and epoch, and looks shuffled", "[train]") {
  const DataOrder order{1, 100000, 100}, other{2, 100000, 100};
  const std::uint64_t windows = WindowCount(order);
  std::size_t same_seed = 0, same_epoch = 0, ascending = 0;
  for (std::uint64_t i = 0; i + 1 < windows; ++i) {
    const std::uint64_t window = WindowStart(order, i) / 100;
    same_seed += window == WindowStart(other, i) / 100;
    same_epoch += window == WindowStart(order, windows + i) / 100;
    ascending += WindowStart(order, i) < WindowStart(order, i + 1);
  }
  CHECK(same_seed < 10);
  CHECK(same_epoch < 10);
  CHECK(ascending > 450);
  CHECK(ascending < 550);
}

TEST_CASE("A window's targets are its tokens one further", "[train]") {
  const std::vector<std::uint16_t> tokens = {10, 11, 12, 13, 14, 15};
  std::vector<std::uint16_t> inputs(3), targets(3);
  CopyWindow(tokens, 2, inputs, targets);
  CHECK(inputs == std::vector<std::uint16_t>{12, 13, 14});
  CHECK(targets == std::vector<std::uint16_t>{13, 14, 15});
  CHECK_THROWS_AS(CopyWindow(tokens, 3, inputs, targets), std::logic_error);
}

}  // namespace
}  // namespace fp4lab
