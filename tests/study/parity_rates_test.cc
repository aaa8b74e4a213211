// The error rates of fp4lab parity over a grid of curves: minutes of simulation.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/study/parity/parity.h"
#include "tests/study/support/curves.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

constexpr std::size_t kRepeats = 2000;

struct Rates {
  double holds = 0, different = 0, equivalent = 0;  // shares of the repeats
};

Rates RatesOf(const CurveOptions& curve, int seeds, double gap) {
  std::vector<char> holds(kRepeats), different(kRepeats), equivalent(kRepeats);
  ParallelFor(kRepeats, [&](std::size_t r) {
    const Json document = ParityDocument(MadeArms(curve, seeds, gap, 1000 * (r + 1)));
    const Json& interval = document["gap"]["interval"];
    holds[r] = interval[0].get<double>() <= gap && gap <= interval[1].get<double>();
    different[r] = document["status"] == kDifferent;
    equivalent[r] = document["status"] == kEquivalent;
  });
  const auto share = [](const std::vector<char>& is) {
    return static_cast<double>(std::count(is.begin(), is.end(), 1)) / kRepeats;
  };
  return {share(holds), share(different), share(equivalent)};
}

TEST_CASE("Intervals hold the gap, and both wrong answers are rare, over a grid", "[parity]") {
  for (const int seeds : {1, 2, 3, 5}) {
    for (const double correlation : {0.0, 0.5, 0.8}) {
      for (const std::size_t steps : {300, 900}) {
        // Noise that makes the error of a gap about a third of the margin.
        CurveOptions curve{.steps = steps, .correlation = correlation};
        const double runs = static_cast<double>(seeds * steps) / 300;
        curve.noise = 0.012 * std::sqrt(runs * (1 - correlation) / (1 + correlation));
        curve.seed_noise = seeds > 1 ? 0.0008 * std::sqrt(seeds) : 0;
        const Rates none = RatesOf(curve, seeds, 0), margin = RatesOf(curve, seeds, 0.005);
        CAPTURE(seeds, correlation, steps, none.holds, none.different, margin.equivalent);
        CHECK((0.91 <= none.holds && none.holds <= 0.995));
        CHECK((0.91 <= margin.holds && margin.holds <= 0.995));
        CHECK(none.different <= 0.08);
        CHECK(margin.equivalent <= 0.08);
      }
    }
  }
}

}  // namespace
}  // namespace fp4lab::study
