#include <set>
#include <string>

#include "fp4lab/judge/cases/case_family.h"
#include "tests/judge/coverage_support.h"

namespace fp4lab {
namespace {

// coverage_exhaustive_test.cc covers all deterministic dialects.
TEST_CASE("The quick cases catch every wrong kernel that applies; plain random data does not",
          "[judge]") {
  const std::vector<const Dialect*> rows = OneOfEachFormula();
  CHECK(rows.size() >= 16);
  for (const Dialect* dialect : rows) CheckCatchesAll(*dialect);
}

TEST_CASE("The quick cases of FP8 with scales of rows and numbers catch every wrong kernel",
          "[judge]") {
  for (const char* name :
       {"fp8_e4m3.row", "fp8_e5m2.1x128.fp32", "fp8_e4m3.1x128.bf16", "fp8_e4m3.1x128.e8m0"}) {
    CheckCatchesAll(*FindDialect(name));
  }
}

TEST_CASE("The quick cases of stochastic dialects catch every wrong use of the random bits",
          "[judge]") {
  for (const char* name : {"nvfp4.te.stochastic", "nvfp4.te.stochastic.software"}) {
    const Dialect& dialect = *FindDialect(name);
    CAPTURE(name);
    const CoverageReport report = MeasureCoverage(dialect, MakeCases(dialect), true);
    std::set<std::string_view> caught;
    for (const MutantCoverage& mutant : report.mutants) {
      if (mutant.CaughtBySet(report.set_size)) caught.insert(mutant.deviation->name);
    }
    for (const char* wrong : {"random-bits-neighbours", "random-bits-reversed",
                              "random-bits-of-first-row", "random-bits-counter"}) {
      CAPTURE(wrong);
      CHECK(caught.contains(wrong));
    }
    const bool has_bytes = dialect.rounding != ElementRounding::kStochastic8;
    CHECK(caught.contains("random-bytes-swapped") == has_bytes);
    // Stochastic rounding shows one ulp of the factor only beside a threshold of the bits.
    CHECK(report.mutants.size() - caught.size() <= 1);
  }
}

// The best-known wrong kernels, under the names that the table has for them.
TEST_CASE("Plain random data misses what users have been bitten by", "[judge]") {
  const Dialect& dialect = *FindDialect("nvfp4.te");
  const CoverageReport report =
      MeasureCoverage(dialect, MakeCases(dialect, {.families = {"randn"}}));
  std::set<std::string_view> missed;
  for (const MutantCoverage& mutant : report.mutants) {
    if (!mutant.CaughtByControl(report.set_size)) missed.insert(mutant.deviation->name);
  }
  for (const char* name :
       {"reciprocal-for-division", "division-for-reciprocal", "scale-half-up", "ties-away",
        "input-negative-zero-dropped", "zero-under-zero-scale", "tail-block-missing"}) {
    CAPTURE(name);
    CHECK(missed.count(name) == 1);
  }
}

TEST_CASE("The mutation report prints a column a family, the set and the control", "[judge]") {
  const Dialect& dialect = *FindDialect("nvfp4.te");
  const CoverageReport report =
      MeasureCoverage(dialect, MakeCases(dialect, {.families = {"signs", "positions", "randn"}}));
  REQUIRE(report.families.size() == 3);
  CHECK(report.set_size == 2);
  const std::string text = CoverageText(report);
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("  1  2  3  set  control\n"));
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("\nsign-dropped"));
  const Json json = CoverageJson(report);
  CHECK(json["families"].size() == 3);
  CHECK(json["families"][2]["control"] == true);
  CHECK(json["mutants"].size() == report.mutants.size());
  CHECK(json["mutants"][0]["caught"].size() == 3);
}

}  // namespace
}  // namespace fp4lab
