// The seeds that a study needs for intervals of a wanted width.
#include "fp4lab/study/analysis/power.h"

#include <cmath>
#include <vector>

#include "fp4lab/study/analysis/analyze.h"
#include "tests/study/support/synthetic.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

TEST_CASE("SeedsNeeded is the least number whose t interval is narrow enough", "[study]") {
  CHECK(SeedsNeeded(0.1, 0.25, 0.95) == 3);   // 4.3027 * 0.1 / sqrt(3) = 0.2484
  CHECK(SeedsNeeded(0.1, 0.248, 0.95) == 4);  // 3.1824 * 0.1 / 2 = 0.1591
  CHECK(SeedsNeeded(0.1, 0.08, 0.95) == 9);   // 0.0769; with 8 seeds 0.0836
  CHECK(SeedsNeeded(0.0, 1e-6, 0.95) == 3);
  CHECK(SeedsNeeded(0.1, 0.08, 0.99) > SeedsNeeded(0.1, 0.08, 0.95));
  CHECK(SeedsNeeded(100.0, 1e-3, 0.95) == 0);
}

TEST_CASE("PowerTable measures the spread of paired gaps and of ln r between a pilot's seeds",
          "[study]") {
  Json json = SyntheticResults({.seeds = 3, .arms = {"bf16", "nvfp4", "mxfp4"}});
  const double gap[] = {0.04, 0.05, 0.06};
  for (Json& run : json["runs"]) {
    const int s = run["seed"].get<int>() - 1;
    const double cost = run["arm"] == "bf16" ? 0.0 : gap[s] * (run["arm"] == "mxfp4" ? 2.0 : 1.0);
    for (std::size_t k = 0; k < run["points"].size(); ++k) {
      run["points"][k]["validation_loss"] = 1.6 + 0.01 * s - 0.1 * static_cast<double>(k) + cost;
    }
  }
  const Results pilot = ReadResults(json, "test.json");
  const std::vector<PowerRow> rows =
      PowerTable(pilot, Analyze(pilot, 10), {.seeds = 3, .gap = 0.005});
  std::size_t gaps = 0, ratios = 0;
  for (const PowerRow& row : rows) {
    CAPTURE(row.arm, row.tokens);
    CHECK(row.pilot_seeds == 3);
    if (row.quantity == PowerRow::Quantity::kLogRatio) {
      ++ratios;
      CHECK(row.arm == "mxfp4");
      CHECK(row.reference == "nvfp4");
      // 0.1 nats an octave: a gap of g nats is a ratio of 2^(10 g).
      CHECK(row.deviation == Catch::Approx(0.01 * 10 * std::log(2.0)).epsilon(1e-9));
      continue;
    }
    ++gaps;
    CHECK(row.reference == "bf16");
    CHECK(row.deviation == Catch::Approx(row.arm == "mxfp4" ? 0.02 : 0.01).epsilon(1e-9));
    if (row.arm != "nvfp4") continue;
    CHECK(row.half_width == Catch::Approx(4.302653 * 0.01 / std::sqrt(3.0)).epsilon(1e-6));
    CHECK(row.needed == 18);  // 2.1098 * 0.01 / sqrt(18) = 0.00497; with 17 seeds 0.00514
  }
  CHECK(gaps == 6);
  CHECK(ratios >= 2);
}

}  // namespace
}  // namespace fp4lab::study
