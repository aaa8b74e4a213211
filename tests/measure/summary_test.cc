#include "fp4lab/measure/summary.h"

#include <vector>

#include "tests/support/catch.h"

namespace fp4lab::measure {
namespace {

TEST_CASE("The median and quartiles of a handful are those of R's type 7", "[measure]") {
  const std::vector<double> values = {9, 1, 5, 3};
  CHECK(Quantile(values, 0) == 1);
  CHECK(Quantile(values, 0.25) == 2.5);
  CHECK(Quantile(values, 0.5) == 4);
  CHECK(Quantile(values, 1) == 9);
  CHECK(Summarize(values) == Summary{4, 2.5, 6, 4});
  CHECK(Summarize(std::vector<double>{7}) == Summary{7, 7, 7, 1});
  CHECK_THROWS_AS(Quantile({}, 0.5), std::logic_error);
}

TEST_CASE("A disturbed repetition does not move a median", "[measure]") {
  CHECK(Summarize(std::vector<double>{1, 1, 1, 1, 1000}).median == 1);
}

TEST_CASE("RateOf keeps quartiles ordered although rates invert times", "[measure]") {
  const Summary rate = RateOf(8, std::vector<double>{1, 2, 4});
  CHECK(rate == Summary{4, 3, 6, 3});
}

TEST_CASE("A ratio is that of repetitions made together, so that drift cancels", "[measure]") {
  const std::vector<double> a = {2, 20, 200}, b = {1, 10, 100};
  CHECK(RatioOf(a, b) == Summary{2, 2, 2, 3});
  CHECK_THROWS_AS(RatioOf(a, std::vector<double>{1}), std::logic_error);
}

}  // namespace
}  // namespace fp4lab::measure
