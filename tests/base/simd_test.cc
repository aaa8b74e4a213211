#include "fp4lab/base/simd/simd.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/least_targets.h"

namespace fp4lab {
namespace {

TEST_CASE("Every listed SIMD target can be pinned, and the pin holds", "[base]") {
  const std::vector<std::string> targets = SimdTargets();
  REQUIRE(targets.size() >= kLeastTargets);
  for (const std::string& target : targets) {
    PinSimdTarget(target);
    CHECK(ActiveSimdTarget() == target);
  }
  PinSimdTarget("best");
  CHECK(ActiveSimdTarget() == targets.front());
}

TEST_CASE("An unknown SIMD target is refused by name", "[base]") {
  CHECK_THROWS_AS(PinSimdTarget("avx9000"), Error);
}

}  // namespace
}  // namespace fp4lab
