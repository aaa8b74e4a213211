// Block scales for every BF16 block amax under every BF16 tensor amax. Run with
// `ctest -C Exhaustive -L exhaustive`; about 40 seconds on two cores (66 ns a pair of amaxes,
// measured on slices).
#include <numeric>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "tests/block/cases.h"
#include "tests/block/scale_sweep.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE(
    "NVFP4's block scale is the oracle's for every BF16 block amax under every BF16 tensor "
    "amax",
    "[block][exhaustive]") {
  const Dialect nvfp4 = *FindDialect("nvfp4");
  std::vector<std::size_t> wrong(kBf16Amaxes);
  ParallelFor(wrong.size(), [&](std::size_t pattern) {
    wrong[pattern] = WrongScales(nvfp4, Bf16Amax(static_cast<std::uint32_t>(pattern)));
  });
  CHECK(std::accumulate(wrong.begin(), wrong.end(), std::size_t{0}) == 0);
}

TEST_CASE("Every other block format's scale is the oracle's for every BF16 amax",
          "[block][exhaustive]") {
  for (const Dialect& named : TunedRows()) {
    if (named.block_scale == BlockScale::kFolded) continue;
    INFO(named.name);
    if (named.block_scale != BlockScale::kOneBlock) {
      CHECK(WrongScales(named, 0.0f) == 0);
      continue;
    }
    std::size_t wrong = 0;
    for (std::uint32_t pattern = 0; pattern < kBf16Amaxes; ++pattern) {
      wrong += WrongScales(named, Bf16Amax(pattern), 0, kBf16Amaxes);
    }
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace fp4lab
