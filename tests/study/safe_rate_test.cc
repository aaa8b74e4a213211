#include "fp4lab/study/analysis/safe_rate.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/study/report/tables/safe_rate_table.h"
#include "fp4lab/study/results/arm_name.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

using Catch::Approx;

constexpr double kDiverged = std::numeric_limits<double>::infinity();
constexpr std::int64_t kBudget = 1000;

// A study of two arms at the rates 1, 2, 4, 8 without its runs.
Results Sweep() {
  Results results;
  results.rates = {1, 2, 4, 8};
  results.study = {{"arm_order", {"bf16", "nvfp4"}}, {"sweep", {{"learning_rate", results.rates}}}};
  for (const char* arm : {"bf16", "nvfp4"}) {
    for (const double rate : results.rates) results.arms.push_back(ArmAtRate(arm, rate));
  }
  results.budgets = {kBudget};
  results.question.reference = "bf16";
  results.question.primary_tokens = kBudget;
  results.question.confidence = 0.95;
  return results;
}

// A seed of an arm: its losses at the four rates.
void Add(const std::string& arm, std::uint64_t seed, const std::vector<double>& losses,
         Results* results) {
  for (std::size_t k = 0; k < losses.size(); ++k) {
    RunResult run;
    run.arm = ArmAtRate(arm, results->rates[k]);
    run.seed = seed;
    run.diverged = std::isinf(losses[k]);
    if (!run.diverged) {
      AnnealedPoint point;
      point.tokens = kBudget;
      point.loss = losses[k];
      run.points.push_back(point);
    }
    results->runs.push_back(run);
  }
}

TEST_CASE("The limit of safe rates lies where a seed's loss rises by the margin", "[study]") {
  Results results = Sweep();
  results.seeds = {1, 2, 3};
  for (const std::uint64_t seed : results.seeds) {
    // Best at 1; 0.03 above it at 4 and 0.09 at 8: the margin of 0.05 lies a third of the way.
    Add("bf16", seed, {2.0, 2.01, 2.03, 2.09}, &results);
    // Best at 2; unsafe at 4 (0.10 above): half of the way, whatever happens at 8.
    Add("nvfp4", seed, {2.2, 2.1, 2.2, seed == 2 ? kDiverged : 2.11}, &results);
  }
  const std::vector<SafeRate> rates = SafeRates(results);
  REQUIRE(rates.size() == 2);
  CHECK(rates[0].arm == "bf16");
  CHECK(rates[0].best == 1);
  CHECK(rates[0].largest == 4);
  REQUIRE(rates[0].limits.size() == 3);
  CHECK(rates[0].limits[1].value() == Approx(4 * std::cbrt(2)));
  CHECK_FALSE(rates[0].relative.has_value());
  CHECK(rates[1].best == 2);
  CHECK(rates[1].largest == 2);
  CHECK(rates[1].limits[1].value() == Approx(2 * std::sqrt(2)));
  REQUIRE(rates[1].relative.has_value());
  CHECK(*rates[1].relative == Approx(2 * std::sqrt(2) / (4 * std::cbrt(2))));
  CHECK(rates[1].interval->low == Approx(*rates[1].relative));
  CHECK(ToJson(rates)["arms"][1]["relative"] == *rates[1].relative);
}

TEST_CASE("Safe rates beyond the sweep, diverged runs and arms that never learn", "[study]") {
  Results results = Sweep();
  results.seeds = {1, 2, 3};
  for (const std::uint64_t seed : results.seeds) {
    Add("bf16", seed, {2.0, 2.0, 2.0, seed == 3 ? 2.2 : 2.04}, &results);
    Add("nvfp4", seed, {2.0, seed == 1 ? kDiverged : 1.9, 2.0, 2.0}, &results);
  }
  std::vector<SafeRate> rates = SafeRates(results);
  CHECK(rates[0].largest == 4);  // one seed of three is unsafe at 8
  CHECK_FALSE(rates[0].limits[0].has_value());
  CHECK(rates[0].limits[2].has_value());
  CHECK(rates[1].best == 1);  // a rate at which a run diverged is no arm's best
  CHECK(rates[1].largest == 1);
  CHECK(rates[1].limits[0].value() == Approx(std::sqrt(2)));  // between 1 and the diverged 2
  CHECK_FALSE(rates[1].relative.has_value());                 // bf16's limit is beyond the sweep
  const std::vector<ModelReport> models = {{results, {}}};
  CHECK(SafeRateText(models).empty());
  std::vector<ModelReport> with_rates = models;
  with_rates[0].analysis.safe_rates = rates;
  const std::string text = SafeRateText(with_rates);
  CHECK(text.find("> 8") != text.npos);
  CHECK(text.find("not identified") != text.npos);

  for (RunResult& run : results.runs) {
    if (run.arm.starts_with("nvfp4")) run.points.clear();
  }
  CHECK(SafeRates(results)[1].largest == 0);
  results.rates.clear();
  CHECK(SafeRates(results).empty());
}

}  // namespace
}  // namespace fp4lab::study
