// All 2^32 binary32 patterns: the scalar Encode and the kernel of the active SIMD target against
// the oracle. Minutes; run with `ctest -C Exhaustive -L exhaustive`.
#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/formats/encode.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/oracle/formats.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr std::uint32_t kPart = 1u << 16;  // patterns of one unit of work

// Patterns whose code is wrong among the kPart ones that start at `first`.
std::size_t WrongCodes(FormatId id, const oracle::Grid& grid, std::uint32_t first,
                       Overflow overflow) {
  std::vector<float> x(kPart);
  for (std::uint32_t i = 0; i < kPart; ++i) x[i] = std::bit_cast<float>(first + i);
  std::vector<std::uint8_t> codes(kPart);
  Encode(id, x, codes, {.overflow = overflow});
  std::size_t wrong = 0;
  for (std::uint32_t i = 0; i < kPart; ++i) {
    const std::uint32_t expected = grid.Round(x[i], Rounding::kNearestEven, 0, overflow);
    wrong +=
        codes[i] != expected || Encode(id, x[i], Rounding::kNearestEven, 0, overflow) != expected;
  }
  return wrong;
}

TEST_CASE("All 2^32 floats convert to E2M1, E4M3 and E5M2 as the oracle says",
          "[formats][exhaustive]") {
  const FormatId id = GENERATE(FormatId::kE2M1, FormatId::kE4M3, FormatId::kE5M2);
  const Overflow overflow = GENERATE(Overflow::kSaturate, Overflow::kSpecial);
  if (id == FormatId::kE2M1 && overflow == Overflow::kSpecial) return;  // the same: no Inf, no NaN
  const oracle::Grid grid(FormatOf(id));
  std::vector<std::size_t> wrong(0x10000);
  ParallelFor(wrong.size(), [&](std::size_t part) {
    wrong[part] = WrongCodes(id, grid, static_cast<std::uint32_t>(part) * kPart, overflow);
  });
  INFO(Named(id).name << ", overflow " << static_cast<int>(overflow));
  CHECK(std::accumulate(wrong.begin(), wrong.end(), std::size_t{0}) == 0);
}

}  // namespace
}  // namespace fp4lab
