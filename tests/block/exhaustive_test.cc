// Block scales of all BF16 amaxes: every block amax under every tensor amax, which is more than
// every exponent of it. Run with `ctest -C Exhaustive -L exhaustive`; about 40 seconds
// on two cores (66 ns a pair of amaxes, by slices).
#include <numeric>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "tests/block/scale_sweep.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE(
    "NVFP4's block scale is the oracle's for every BF16 block amax under every BF16 tensor "
    "amax",
    "[block][exhaustive]") {
  const BlockFormat nvfp4 = *FindBlockFormat("nvfp4");
  std::vector<std::size_t> wrong(kBf16Amaxes);
  ParallelFor(wrong.size(), [&](std::size_t pattern) {
    wrong[pattern] = WrongScales(nvfp4, Bf16Amax(static_cast<std::uint32_t>(pattern)));
  });
  CHECK(std::accumulate(wrong.begin(), wrong.end(), std::size_t{0}) == 0);
}

TEST_CASE("Every other block format's scale is the oracle's for every BF16 amax",
          "[block][exhaustive]") {
  for (const NamedBlockFormat& named : kBlockFormats) {
    if (named.format.rule == ScaleRule::kNvfp4) continue;
    INFO(named.name);
    if (named.format.rule != ScaleRule::kTensor) {
      CHECK(WrongScales(named.format, 0.0f) == 0);
      continue;
    }
    std::size_t wrong = 0;
    for (std::uint32_t pattern = 0; pattern < kBf16Amaxes; ++pattern) {
      wrong += WrongScales(named.format, Bf16Amax(pattern), 0, kBf16Amaxes);
    }
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace fp4lab
