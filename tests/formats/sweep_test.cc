// A subset of formats_exhaustive_test that takes a second: 17 runs of 65536 neighbouring patterns.
#include "tests/formats/sweep.h"

#include <numeric>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE("Runs of binary32 patterns convert to every format as the oracle says",
          "[formats][oracle]") {
  // Runs at every 8168th part, and the parts in which the formats' ranges begin and end.
  std::vector<std::uint32_t> parts = {0x0000, 0x0040, 0x3F80, 0x43E8,
                                      0x4780, 0x7F7F, 0x7F80, 0xFF80};
  for (std::uint32_t part = 1; part < 0x10000; part += 8 * 1021) parts.push_back(part);
  for (const Conversion& conversion : SweptConversions()) {
    const oracle::Grid grid(FormatOf(conversion.format));
    std::vector<std::size_t> wrong(parts.size());
    ParallelFor(parts.size(),
                [&](std::size_t i) { wrong[i] = WrongCodes(conversion, grid, parts[i]); });
    INFO(Named(conversion.format).name << ", rounding " << static_cast<int>(conversion.rounding)
                                       << ", overflow " << static_cast<int>(conversion.overflow));
    CHECK(std::accumulate(wrong.begin(), wrong.end(), std::size_t{0}) == 0);
  }
}

}  // namespace
}  // namespace fp4lab
