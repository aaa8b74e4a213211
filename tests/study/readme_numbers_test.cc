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

// "0.0121 [0.0100, 0.0146]"
std::string GapText(const Json& gap, const Json& interval) {
  return Print("%.4f", gap) + " [" + Print("%.4f", interval[0]) + ", " +
         Print("%.4f", interval[1]) + "]";
}

// The mean gap of an arm to BF16 at the largest budget of a study.
double LastGap(const Json& results, const std::string& arm) {
  const Json& analysis = results["analysis"];
  for (const Json& gap : analysis["gaps"]) {
    if (gap["arm"] == arm && gap["reference"] == "bf16" && gap["precision"] == "training" &&
        gap["tokens"] == analysis["budgets"].back()) {
      return gap["mean"];
    }
  }
  FAIL("no gap of " << arm);
  return NAN;
}

TEST_CASE("What README.md says of the law's prediction follows from the results", "[study]") {
  const std::string page = ReadFile(SourceDirectory() / "README.md");
  const Json law =
      ReadJsonFile(SourceDirectory() / "studies" / "results" / "surface" / "law-25m.json");
  const Json measured = ResultsOf("surface-c-25m");
  std::string predicted, found;
  for (const char* arm : {"nvfp4", "mxfp4"}) {
    const Json& last = law["arms"][arm]["predictions"].back();
    if (!predicted.empty()) predicted += " and ", found += " and ";
    predicted += GapText(last["gap"], last["interval_three_seeds"]);
    found += Print("%.4f", LastGap(measured, arm));
  }
  CAPTURE(predicted, found);
  CHECK(page.find(predicted) != page.npos);
  CHECK(page.find(found + " came out") != page.npos);
}

TEST_CASE("What README.md says of the ratio's growth follows from the results", "[study]") {
  const std::string page = ReadFile(SourceDirectory() / "README.md");
  const std::regex factor(R"(a factor of ([0-9.]+) \[([0-9.]+), ([0-9.]+)\])");
  const Json results = ResultsOf("surface-c-4.7m");
  std::string largest;  // of the largest budget, the last one in the criterion's text
  for (const Json& criterion : results["analysis"]["criteria"]) {
    if (criterion["kind"] != "token_ratio_grows") continue;
    const std::string numbers = criterion["numbers"];
    for (std::sregex_iterator i(numbers.begin(), numbers.end(), factor), end; i != end; ++i) {
      largest = RatioText(std::stod((*i)[1]), std::stod((*i)[2]), std::stod((*i)[3]));
    }
  }
  CAPTURE(largest);
  REQUIRE(!largest.empty());
  CHECK(page.find("by a factor of " + largest) != page.npos);
}

TEST_CASE("What README.md says of rates and BPE tokens follows from the results", "[study]") {
  const std::string page = ReadFile(SourceDirectory() / "README.md");
  std::string smallest;  // of the ratios at the largest budget, one a rate
  double least = INFINITY;
  const Json rates = ResultsOf("surface-c-1.2m-rates");
  for (const Json& view : rates["analysis"]) {
    for (const Json& r : view["token_ratios"]) {
      if (r["format"] != "mxfp4" || r["reference"] != "nvfp4" || r["estimator"] != "crossing" ||
          r["form"] != "shrink" || r["tokens"] != view["budgets"].back()) {
        continue;
      }
      if (r["ratio"] >= least) continue;
      least = r["ratio"];
      smallest = RatioText(least, r["interval_t"][0], r["interval_t"][1]);
    }
  }
  CAPTURE(smallest);
  REQUIRE(!smallest.empty());
  CHECK(page.find("is " + smallest + " (shrink form)") != page.npos);

  std::string bpe;  // the last ratio in extend form
  const Json surface =
      ReadJsonFile(SourceDirectory() / "studies" / "results" / "surface" / "surface.json");
  for (const Json& study : surface["studies"]) {
    if (study["name"] != "surface-c-1.2m-bpe") continue;
    for (const Json& r : study["ratios"]) {
      const Json& log = r["log_ratio"];
      if (r["form"] == "extend") {
        bpe = RatioText(std::exp(log["mean"].get<double>()),
                        std::exp(log["interval_t"][0].get<double>()),
                        std::exp(log["interval_t"][1].get<double>()));
      }
    }
  }
  CAPTURE(bpe);
  REQUIRE(!bpe.empty());
  CHECK(page.find("smaller, " + bpe + " at 72 bytes") != page.npos);
}

// The token ratio of a recipe of the league to te_nvfp4's: "0.89 [0.80, 0.98]".
std::string LeagueRatio(const Json& league, const std::string& recipe) {
  for (const Json& row : league["rows"]) {
    if (row["recipe"] != recipe) continue;
    const Json& log = row["log_ratio"]["te_nvfp4"];
    return RatioText(std::exp(log["mean"].get<double>()),
                     std::exp(log["interval_t"][0].get<double>()),
                     std::exp(log["interval_t"][1].get<double>()));
  }
  FAIL("no row of " << recipe);
  return "";
}

TEST_CASE("What pages say of the league's recipes follows from the results", "[study]") {
  const auto folder = SourceDirectory() / "studies" / "results" / "league";
  const Json league = ReadJsonFile(folder / "league.json");
  const std::string page = ReadFile(folder / "README.md");
  const std::string quartet = LeagueRatio(league, "quartet2");
  CHECK(page.find("at " + quartet + " of te_nvfp4's tokens") != page.npos);
  CHECK(page.find("give " + LeagueRatio(league, "mxfp4") + " of te_nvfp4's tokens") != page.npos);
  const std::string readme = ReadFile(SourceDirectory() / "README.md");
  CHECK(readme.find("for the better: " + quartet + " of its tokens") != readme.npos);
  // Quartet II is the only recipe with E4M3 scales on 16 elements whose interval leaves out 0.
  for (const Json& row : league["rows"]) {
    const Json& gap = row["gap"]["te_nvfp4"]["interval_t"];
    if (row["class"] != 0 || row["recipe"] == "te_nvfp4" || row["loss"] > 2.0) continue;
    CAPTURE(row["recipe"]);
    CHECK((gap[0] > 0.0 || gap[1] < 0.0) == (row["recipe"] == "quartet2"));
  }
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
