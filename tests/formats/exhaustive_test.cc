// All 2^32 binary32 patterns, for every format: the scalar Encode and the kernel of the active SIMD
// target against the oracle. Run with `ctest -C Exhaustive -L exhaustive`; about 16 minutes on two
// cores (11 ns a conversion, 40 conversions, measured on slices).
// One format: formats_exhaustive_test -c e4m3.
#include <numeric>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "tests/formats/sweep.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE("All 2^32 floats convert to every format as the oracle says", "[formats][exhaustive]") {
  for (const NamedFormat& f : kFormats) {
    DYNAMIC_SECTION(std::string(f.short_name)) {
      const oracle::Grid grid(f.format);
      for (const Conversion& conversion : SweptConversions()) {
        if (conversion.format != f.id) continue;
        std::vector<std::size_t> wrong(0x10000);
        ParallelFor(wrong.size(), [&](std::size_t part) {
          wrong[part] = WrongCodes(conversion, grid, static_cast<std::uint32_t>(part));
        });
        INFO(f.name << ", rounding " << static_cast<int>(conversion.rounding) << ", overflow "
                    << static_cast<int>(conversion.overflow));
        CHECK(std::accumulate(wrong.begin(), wrong.end(), std::size_t{0}) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace fp4lab
