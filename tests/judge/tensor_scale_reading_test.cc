// InterpretTensorScale: the kinds of wrong tensor scales.
#include "fp4lab/judge/kernels/tensor_scale_reading.h"

#include <cmath>
#include <vector>

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr float kC = 2688.0f;

std::string KindOf(TensorScaleConvention convention, std::vector<float> amax,
                   std::vector<float> got, std::vector<OtherAmax> others = {}) {
  const auto reading = InterpretTensorScale(
      {.convention = convention, .constant = kC, .largest_element = 6.0f, .amax = amax, .got = got},
      others);
  return reading ? reading->kind : "right";
}

TEST_CASE("Right tensor scales have no reading, one a row as one a tensor", "[judge]") {
  for (const TensorScaleConvention convention :
       {TensorScaleConvention::kAmax, TensorScaleConvention::kMultiplier,
        TensorScaleConvention::kDivisor}) {
    const std::vector<float> amax = {3.1f, 0.7f, 1e-20f};
    std::vector<float> stored;
    for (const float a : amax) {
      stored.push_back(ConvertTensorScale(a, TensorScaleConvention::kAmax, convention, kC));
    }
    CHECK(KindOf(convention, amax, stored) == "right");
    stored[1] = std::nextafter(stored[1], 1e30f);
    CHECK_THAT(KindOf(convention, amax, stored),
               Catch::Matchers::Equals("one-ulp") || Catch::Matchers::Equals("other-roundings"));
    stored.pop_back();
    CHECK(KindOf(convention, amax, stored) == "count");
  }
}

TEST_CASE("A reading holds for every row, and names the first that differs", "[judge]") {
  const std::vector<float> amax = {1.0f, 3.0f, 5.0f}, got = {1.0f, 1.0f / 3.0f, 1.0f / 5.0f};
  const auto reading = InterpretTensorScale({.convention = TensorScaleConvention::kAmax,
                                             .constant = kC,
                                             .largest_element = 6.0f,
                                             .amax = amax,
                                             .got = got});
  REQUIRE(reading);
  CHECK(reading->kind == "reciprocal");
  CHECK(reading->index == 1);
  CHECK(reading->expected == 3.0f);
  CHECK(KindOf(TensorScaleConvention::kAmax, amax, {1.0f, 1.0f / 3.0f, 0.3f}) == "unknown");
}

// Amaxes for which amax * (1 / C) or C * (1 / amax) rounds unlike the quotient.
TEST_CASE("Other roundings of the multiplier and the divisor are told from wrong numbers",
          "[judge]") {
  std::size_t multipliers = 0, divisors = 0;
  for (int i = 1; i < 200; ++i) {
    const float amax = 0.37f * static_cast<float>(i);
    const float multiplier = amax * (1.0f / kC), divisor = kC * (1.0f / amax);
    if (multiplier != amax / kC) {
      CHECK(KindOf(TensorScaleConvention::kMultiplier, {amax}, {multiplier}) == "other-roundings");
      ++multipliers;
    }
    if (divisor != kC / amax) {
      CHECK(KindOf(TensorScaleConvention::kDivisor, {amax}, {divisor}) == "other-roundings");
      ++divisors;
    }
  }
  CHECK(multipliers > 10);
  CHECK(divisors > 10);
}

TEST_CASE("The amax of a part of the tensor is recognised, under any convention", "[judge]") {
  Matrix<float> x(2, 32, 0.25f);
  x(0, 3) = 1.0f;
  x(0, 20) = 1.5f;
  x(1, 5) = -7.0f;
  x(1, 9) = 2.0f;
  const std::vector<OtherAmax> parts = PartialAmaxes(x.View(), 16);
  const auto kind = [&](float got) {
    return KindOf(TensorScaleConvention::kAmax, {7.0f}, {got}, parts);
  };
  CHECK(kind(2.0f) == "other-amax");  // the largest signed value
  CHECK(kind(1.5f) == "other-amax");  // the first row
  CHECK(kind(1.0f) == "other-amax");  // the first block
  CHECK(kind(2.0f / kC) == "other-amax");
  CHECK(kind(7.5f) == "unknown");
}

}  // namespace
}  // namespace fp4lab
