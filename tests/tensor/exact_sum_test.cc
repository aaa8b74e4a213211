#include "fp4lab/tensor/exact_sum.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fp4lab/base/random.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TEST_CASE("ExactSum keeps 2^-480 beside 2^400", "[tensor]") {
  ExactSum sum;
  sum.Add(0x1p400);
  sum.Add(1, -480);
  sum.Add(-0x1p400);
  CHECK(sum.Sign() == 1);
  CHECK(sum.MagnitudeUp() == 0x1p-480);
  sum.Add(-1, -480);
  CHECK(sum.Sign() == 0);
  CHECK(sum.MagnitudeUp() == 0.0);
  CHECK(std::bit_cast<std::uint32_t>(sum.ToFloat()) == 0u);
}

TEST_CASE("An exact sum rounds once, to nearest even", "[tensor]") {
  const auto rounded = [](double x, double y) {
    ExactSum sum;
    sum.Add(x);
    sum.Add(y);
    return sum.ToFloat();
  };
  CHECK(rounded(1, 0x1p-24) == 1.0f);                      // a tie, to even
  CHECK(rounded(0x1.000002p0, 0x1p-24) == 0x1.000004p0f);  // a tie, to even
  CHECK(rounded(1, 0x1.000002p-24) == 0x1.000002p0f);
  CHECK(rounded(-1, 0x1p-400) == -1.0f);
  CHECK(rounded(-1, -0x1.8p-24) == -0x1.000002p0f);
  CHECK(rounded(0x1p-149, 0x1p-150) == 0x1p-148f);  // subnormal, a tie
  CHECK(rounded(0x1p-150, 0) == 0.0f);
  CHECK(rounded(0x1p-150, 0x1p-300) == 0x1p-149f);
  CHECK(rounded(0x1.fffffep127, 0x1p102) == 0x1.fffffep127f);
  CHECK(rounded(-0x1.fffffep127, -0x1p103) == -std::numeric_limits<float>::infinity());
}

TEST_CASE("An exact sum of integers is the integer", "[tensor]") {
  const RandomStream stream{.seed = 1};
  ExactSum sum;
  std::int64_t expected = 0;
  for (std::uint32_t i = 0; i < 20000; ++i) {
    const auto x = static_cast<std::int64_t>(stream.Bits32(2 * i)) - 0x80000000LL;
    const int shift = static_cast<int>(stream.Bits32(2 * i + 1) % 16);
    expected += x * (std::int64_t{1} << shift);
    sum.Add(x, shift);
  }
  CHECK(sum.ToFloat() == static_cast<float>(expected));
  CHECK(sum.Sign() == (expected > 0) - (expected < 0));
  sum.Add(static_cast<double>(-(expected >> 20)) * 0x1p20);
  sum.Add(-(expected & 0xFFFFF), 0);
  CHECK(sum.Sign() == 0);
}

TEST_CASE("The upper bound of an exact sum is the next binary64 number or itself", "[tensor]") {
  ExactSum sum;
  sum.Add(-1);
  CHECK(sum.MagnitudeUp() == 1.0);
  sum.Add(-1, -300);
  CHECK(sum.MagnitudeUp() == std::nextafter(1.0, 2.0));
}

}  // namespace
}  // namespace fp4lab
