#include "tests/judge/coverage_support.h"

namespace fp4lab {
namespace {

TEST_CASE("The quick cases of every deterministic dialect catch every wrong kernel that applies",
          "[judge]") {
  CHECK(DeterministicDialects().size() >= 70);
  for (const Dialect* dialect : DeterministicDialects()) CheckCatchesAll(*dialect);
}

}  // namespace
}  // namespace fp4lab
