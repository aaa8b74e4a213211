// Numbers in the text of README.md are those of studies/results and of tests/bench/README.md.
// studies/results/tables.py checks its tables.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
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

Json Surface() {
  return ReadJsonFile(SourceDirectory() / "studies" / "results" / "surface" / "surface.json");
}

std::string Print(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string RatioText(double ratio, double low, double high) {
  return Print("%.2f", ratio) + " [" + Print("%.2f", low) + ", " + Print("%.2f", high) + "]";
}

// The same of ln r.
std::string RatioOfLogText(const Json& mean, const Json& interval) {
  return RatioText(std::exp(mean.get<double>()), std::exp(interval[0].get<double>()),
                   std::exp(interval[1].get<double>()));
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
  const auto folder = SourceDirectory() / "studies" / "results" / "surface";
  const Json law = ReadJsonFile(folder / "law-25m.json");
  const Json measured = ResultsOf("surface-c-25m-long");
  std::string predicted, found;
  for (const char* arm : {"nvfp4", "mxfp4"}) {
    const Json& predictions = law["arms"][arm]["predictions"];
    const Json& last = predictions.back();
    REQUIRE(last["bytes_per_parameter"] == 12.0);
    if (!predicted.empty()) predicted += " and ", found += " and ";
    predicted += GapText(last["gap"], last["interval_three_seeds"]);
    found += Print("%.4f", LastGap(measured, arm));
  }
  CAPTURE(predicted, found);
  CHECK(page.find(predicted) != page.npos);
  CHECK(page.find(found + " came out") != page.npos);

  std::string exponents;  // of all seeds
  const Json refitted = ReadJsonFile(folder / "law-25m-seeds.json");
  for (const char* arm : {"nvfp4", "mxfp4"}) {
    const Json& fit = refitted["arms"][arm];
    if (!exponents.empty()) exponents += " and ";
    exponents += "N^-" + RatioText(fit["a"], fit["a_interval"][0], fit["a_interval"][1]);
  }
  CAPTURE(exponents);
  CHECK(page.find("as " + exponents) != page.npos);

  const Json& ratio = law["token_ratios"].back();
  REQUIRE(ratio["bytes_per_parameter"] == 12.0);
  const Json& interval = ratio["interval_three_seeds"];
  CHECK(ReadFile(SourceDirectory() / "studies" / "surface" / "README.md")
            .find("For 12 bytes they say " + RatioText(ratio["ratio"], interval[0], interval[1])) !=
        page.npos);
}

TEST_CASE("What README.md says of the ratio's growth follows from the results", "[study]") {
  const Json surface = Surface();
  std::map<std::string, std::string> growth;
  for (const Json& study : surface["studies"]) {
    if (study["growth"].is_null()) continue;
    const Json& log = study["growth"]["log_ratio"];
    growth[study["name"]] = RatioOfLogText(log["mean"], log["interval_t"]) + " from " +
                            Print("%.0f", study["growth"]["from_bytes_per_parameter"]) + " to " +
                            Print("%.0f", study["growth"]["to_bytes_per_parameter"]);
  }
  CHECK(ReadFile(SourceDirectory() / "README.md")
            .find("by a factor of " + growth["surface-c-4.7m"] + " bytes at 4.7M, and of " +
                  growth["surface-c-1.2m"] + " at 1.2M") != std::string::npos);
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
  const Json surface = Surface();
  for (const Json& study : surface["studies"]) {
    if (study["name"] != "surface-c-1.2m-bpe") continue;
    for (const Json& r : study["ratios"]) {
      const Json& log = r["log_ratio"];
      if (r["form"] == "extend") {
        bpe = RatioOfLogText(log["mean"], log["interval_t"]);
      }
    }
  }
  CAPTURE(bpe);
  REQUIRE(!bpe.empty());
  CHECK(page.find("smaller, " + bpe + " at 72 bytes") != page.npos);
}

// The tokens of an arm over BF16's at a budget of a study of surface.json, in extend form if it
// stands there, else in shrink form; over four, the time of products that take a quarter of BF16's.
std::string QuarterOfRatio(const Json& surface, const std::string& name, const std::string& arm,
                           double bytes_per_parameter) {
  for (const Json& study : surface["studies"]) {
    if (study["name"] != name) continue;
    for (const Json& r : study["ratios_to_bf16"][arm]) {
      if (std::fabs(r["bytes_per_parameter"].get<double>() / bytes_per_parameter - 1) < 0.01) {
        return Print("%.2f", std::exp(r["log_ratio"]["mean"].get<double>()) / 4);
      }
    }
  }
  FAIL("no ratio of " << arm << " in " << name);
  return "";
}

TEST_CASE("What README.md says 4 bits buy follows from the results", "[study]") {
  const std::string page = ReadFile(SourceDirectory() / "README.md");
  const Json surface = Surface();
  const auto at = [&](const char* name, const char* arm, double bytes_per_parameter) {
    return QuarterOfRatio(surface, name, arm, bytes_per_parameter);
  };
  const char* const small = "surface-c-1.2m";
  CHECK(page.find("take " + at(small, "nvfp4", 32) +
                  " of BF16's time at 32 bytes a parameter and " + at(small, "nvfp4", 256) +
                  " at 256 (1.2M), MXFP4's " + at(small, "mxfp4", 32) + " and " +
                  at(small, "mxfp4", 256) + ".") != page.npos);
  CHECK(page.find("NVFP4 takes " + at("surface-c-25m", "nvfp4", 3.75) +
                  " at 25M and 3.8 bytes and " + at("surface-c-25m-long", "nvfp4", 12) +
                  " at 12") != page.npos);
}

TEST_CASE("The page of the surface says how seeds persist over budgets", "[study]") {
  const std::string page = ReadFile(SourceDirectory() / "studies" / "surface" / "README.md");
  const Json surface = Surface();
  std::map<std::string, std::string> deviation, independent;
  for (const Json& study : surface["studies"]) {
    const Json& persistence = study["persistence"];
    if (persistence.is_null()) continue;
    deviation[study["name"]] = Print("%.4f", persistence["seed_deviation"]);
    independent[study["name"]] = Print("%.4f", persistence["if_independent"]);
  }
  CHECK(page.find("deviates by " + deviation["surface-c-1.2m"] + " nats at 1.2M and " +
                  deviation["surface-c-4.7m"] + " at 4.7M") != page.npos);
  CHECK(page.find("would leave " + independent["surface-c-1.2m"] + " and " +
                  independent["surface-c-4.7m"] + ".") != page.npos);
}

const Json& LeagueRow(const Json& league, const std::string& recipe) {
  const auto found = std::find_if(league["rows"].begin(), league["rows"].end(),
                                  [&](const Json& row) { return row["recipe"] == recipe; });
  REQUIRE(found != league["rows"].end());
  return *found;
}

// The token ratio of a recipe of the league to a reference's: "0.89 [0.80, 0.98]".
std::string LeagueRatio(const Json& league, const std::string& recipe,
                        const std::string& reference = "te_nvfp4") {
  const Json& log = LeagueRow(league, recipe)["log_ratio"][reference];
  return RatioOfLogText(log["mean"], log["interval"]);
}

// The recipes of a plan, by its index in the league's "plans", whose losses differ from those of
// the reference by more than noise.
std::vector<std::string> ToldFrom(const Json& league, int plan, const std::string& reference) {
  std::vector<std::string> told;
  for (const Json& row : league["rows"]) {
    const Json& interval = row["gap"][reference]["interval"];
    if (row["plan"] != plan || interval.is_null()) continue;
    if (interval[0] > 0.0 || interval[1] < 0.0) told.push_back(row["recipe"]);
  }
  return told;
}

TEST_CASE("What pages say of the league's recipes follows from the results", "[study]") {
  const auto folder = SourceDirectory() / "studies" / "results" / "league";
  const Json league = ReadJsonFile(folder / "league.json");
  const std::string page = ReadFile(folder / "README.md");
  const std::string readme = ReadFile(SourceDirectory() / "README.md");
  const std::string quartet = LeagueRatio(league, "quartet2");
  CHECK(page.find("at " + quartet + " of te_nvfp4's tokens") != page.npos);
  CHECK(readme.find(": " + quartet + " of te_nvfp4's tokens") != readme.npos);
  CHECK(page.find("needs " + LeagueRatio(league, "mxfp4") + " of te_nvfp4's tokens") != page.npos);

  const std::string mixed = "te_mxfp8_fwd_nvfp4_bwd";
  const auto until = [&](const std::string& recipe) {
    const Json& row = LeagueRow(league, recipe);
    return row["product_time"].get<double>() *
           std::exp(row["log_ratio"]["bf16"]["mean"].get<double>());
  };
  CHECK(page.find(Print("take %.2f of BF16's time (te_nvfp4)", until("te_nvfp4"))) != page.npos);
  CHECK(page.find(Print("Quartet II's %.2f.", until("quartet2"))) != page.npos);
  CHECK(page.find("(" + mixed + ")" + Print(" takes %.2f as well", until(mixed))) != page.npos);
  CHECK(page.find("with " + LeagueRatio(league, mixed, "bf16") + " of the tokens instead of " +
                  LeagueRatio(league, "te_nvfp4", "bf16") + ":") != page.npos);
  const auto tokens = [&](const std::string& recipe) {
    return LeagueRatio(league, recipe, "bf16").substr(0, 4);
  };
  CHECK(readme.find("with " + tokens(mixed) + " instead of " + tokens("te_nvfp4") +
                    " times BF16's tokens") != readme.npos);

  REQUIRE(league["plans"][0] == "8 bits or BF16 in all GEMMs");
  CHECK(ToldFrom(league, 0, "bf16") ==
        std::vector<std::string>{"torchao_fp8_rowwise", "megatron_fp8_delayed",
                                 "nvidia_mxfp8_floor", "te_fp8_delayedscaling"});
  REQUIRE(league["plans"][4] == "NVFP4");
  CHECK(ToldFrom(league, 4, "te_nvfp4") ==
        std::vector<std::string>{"quartet2", "te_nvfp4_4over6_no_2d"});
  CHECK(ToldFrom(ReadJsonFile(folder / "league-4.7m.json"), 4, "te_nvfp4") ==
        std::vector<std::string>{"quartet2"});

  const Json recipes = ReadJsonFile(SourceDirectory() / "data" / "recipes.json");
  CHECK(readme.find("All " + std::to_string(recipes.size()) + " rows of `fp4lab recipes`") !=
        readme.npos);
  for (const Json& recipe : recipes) LeagueRow(league, recipe["name"]);
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
