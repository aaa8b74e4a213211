// Numbers in the text of README.md are those of studies/results and of tests/bench/README.md.
// studies/results/tables.py checks its tables.
#include <cmath>
#include <cstdio>
#include <regex>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

Json ResultsOf(const std::string& study) {
  return ReadJsonFile(SourceDirectory() / "studies" / "results" / study / "results.json");
}

std::string Print(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string RatioText(double ratio, double low, double high) {
  return Print("%.2f", ratio) + " [" + Print("%.2f", low) + ", " + Print("%.2f", high) + "]";
}

// The token ratio of MXFP4 to NVFP4 at budget number `budget`, beyond the largest budget: MXFP4's
// loss continues at the slope of its last two budgets until it is NVFP4's at `budget`. Geometric
// mean and t interval of three seeds.
std::string ExtendedRatio(const Json& results, std::size_t budget) {
  const std::vector<double> tokens = results["analysis"]["budgets"];
  const std::size_t last = tokens.size() - 1;
  std::vector<std::vector<double>> mxfp4, nvfp4;  // losses by seed and budget
  for (const Json& run : results["runs"]) {
    if (run["arm"] != "mxfp4" && run["arm"] != "nvfp4") continue;
    auto& curves = run["arm"] == "mxfp4" ? mxfp4 : nvfp4;
    curves.emplace_back();
    for (const Json& point : run["points"]) curves.back().push_back(point["validation_loss"]);
  }
  REQUIRE(mxfp4.size() == 3);
  REQUIRE(nvfp4.size() == 3);
  double mean = 0, squares = 0;
  std::vector<double> logs;
  for (std::size_t seed = 0; seed < 3; ++seed) {
    const std::vector<double>& loss = mxfp4[seed];
    const double slope = (loss[last] - loss[last - 1]) / std::log(tokens[last] / tokens[last - 1]);
    logs.push_back(std::log(tokens[last] / tokens[budget]) +
                   (nvfp4[seed][budget] - loss[last]) / slope);
    mean += logs.back() / 3;
  }
  for (const double log : logs) squares += (log - mean) * (log - mean);
  const double half = 4.302653 * std::sqrt(squares / 2 / 3);  // t of two degrees of freedom
  return RatioText(std::exp(mean), std::exp(mean - half), std::exp(mean + half));
}

TEST_CASE("What README.md says of the extend form beyond the budgets follows from the results",
          "[study]") {
  const std::string page = ReadFile(SourceDirectory() / "README.md");
  const std::string text = ExtendedRatio(ResultsOf("token-gap-h200-1m"), 3);
  CAPTURE(text);
  CHECK(page.find("1.2M at 102 reads " + text) != page.npos);
}

TEST_CASE("The speeds in README.md stand in tests/bench/README.md", "[bench]") {
  const std::string page = ReadFile(SourceDirectory() / "README.md");
  const std::string bench = ReadFile(SourceDirectory() / "tests" / "bench" / "README.md");
  const std::size_t first = page.find("\nSpeed: ");
  REQUIRE(first != page.npos);
  const std::string speeds = page.substr(first, page.find("\n\n", first) - first);
  const std::regex bold(R"(\*\*([0-9.]+)\*\*)");
  std::size_t count = 0;
  for (std::sregex_iterator i(speeds.begin(), speeds.end(), bold), end; i != end; ++i, ++count) {
    CAPTURE((*i)[1].str());
    CHECK(bench.find("| " + (*i)[1].str() + " ") != bench.npos);
  }
  CHECK(count == 3);
}

}  // namespace
}  // namespace fp4lab
