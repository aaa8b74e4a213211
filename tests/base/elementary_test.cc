#include "fp4lab/base/elementary.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp4lab/base/random.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

// Error of `got` in units in the last place of the long double result of libm.
double UlpError(double got, long double exact) {
  const double e = std::abs(static_cast<double>(exact));
  const double ulp = std::nextafter(e, std::numeric_limits<double>::infinity()) - e;
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact)) / ulp;
}

constexpr int kSamples = 200'000;

double Uniform(int i, double low, double high) {
  return low + (high - low) * UniformOpen(RandomStream{.seed = 9}.Bits32(i));
}

TEST_CASE("Exp and Log are within 2 units in the last place of libm's long double", "[base]") {
  double exp_error = 0, log_error = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double x = Uniform(i, -700, 700);
    exp_error = std::max(exp_error, UlpError(Exp(x), std::exp(static_cast<long double>(x))));
    const double near_one = Uniform(i, 0.5, 2), wide = std::exp(x);
    log_error = std::max(log_error, UlpError(Log(wide), std::log(static_cast<long double>(wide))));
    log_error =
        std::max(log_error, UlpError(Log(near_one), std::log(static_cast<long double>(near_one))));
  }
  CAPTURE(exp_error, log_error);
  CHECK(exp_error < 2);
  CHECK(log_error < 2);
}

TEST_CASE("Exp and Log give the limits at the ends of their range", "[base]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  STATIC_REQUIRE(Exp(0.0) == 1.0);
  STATIC_REQUIRE(Log(1.0) == 0.0);
  CHECK(Exp(kInfinity) == kInfinity);
  CHECK(Exp(710.0) == kInfinity);
  CHECK(Exp(-kInfinity) == 0.0);
  CHECK(Exp(-745.0) == 0x1p-1074);
  CHECK(Log(0.0) == -kInfinity);
  CHECK(Log(kInfinity) == kInfinity);
  CHECK(std::isnan(Log(-1.0)));
  CHECK(std::isnan(Exp(std::nan(""))));
  CHECK(std::isnan(Log(std::nan(""))));
  CHECK(Log(0x1p-1074) == Catch::Approx(-744.44007192138121).epsilon(1e-15));
}

TEST_CASE("Sine and cosine are within 2^-52 of libm's long double up to 1e6", "[base]") {
  double error = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double x = i % 2 == 0 ? Uniform(i, -1e6, 1e6) : Uniform(i, -10, 10);
    const SinCos got = SineCosine(x);
    const auto exact = static_cast<long double>(x);
    error = std::max(error, static_cast<double>(std::abs(got.sin - std::sin(exact))));
    error = std::max(error, static_cast<double>(std::abs(got.cos - std::cos(exact))));
  }
  CAPTURE(error);
  CHECK(error < 0x1p-52);
}

TEST_CASE("IntegerPower multiplies", "[base]") {
  STATIC_REQUIRE(IntegerPower(3.0, 0) == 1.0);
  STATIC_REQUIRE(IntegerPower(3.0, 13) == 1594323.0);
  CHECK(IntegerPower(0.95, 1000) == Catch::Approx(std::pow(0.95, 1000)).epsilon(1e-12));
}

}  // namespace
}  // namespace fp4lab
