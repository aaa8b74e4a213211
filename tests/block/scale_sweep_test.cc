// A subset of block_exhaustive_test that takes about a second.
#include "tests/block/scale_sweep.h"

#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE(
    "NVFP4's block scale is the oracle's for BF16 block amaxes under tensor amaxes of every "
    "exponent",
    "[block][oracle]") {
  const Dialect nvfp4 = *FindDialect("nvfp4");
  std::size_t wrong = 0;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const std::uint32_t fraction : {0x00u, 0x2Bu, 0x7Fu}) {
      const std::uint32_t pattern = exponent << 7 | fraction;
      if (pattern >= kBf16Amaxes) continue;
      wrong += WrongScales(nvfp4, Bf16Amax(pattern), pattern % 29, 29);
      // Block amaxes up to 77 BF16 patterns below the tensor's amax.
      for (std::uint32_t near = 0; near < 12; ++near) {
        const std::uint32_t first = pattern > 7 * near ? pattern - 7 * near : 0;
        wrong += WrongScales(nvfp4, Bf16Amax(pattern), first, kBf16Amaxes);
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Every other block format's scale is the oracle's for BF16 amaxes", "[block][oracle]") {
  for (const Dialect& named : TunedRows()) {
    if (named.block_scale == BlockScale::kFolded) continue;
    INFO(named.name);
    if (named.block_scale != BlockScale::kOneBlock) {
      CHECK(WrongScales(named, 0.0f, 0, 23) == 0);
      continue;
    }
    for (std::uint32_t pattern = 0; pattern < kBf16Amaxes; pattern += 64) {
      REQUIRE(WrongScales(named, Bf16Amax(pattern), 0, kBf16Amaxes) == 0);
    }
  }
}

}  // namespace
}  // namespace fp4lab
