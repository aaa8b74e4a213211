// Numbers of pages that prose_numbers.py does not print: counts of recipes, and speeds. Other
// numbers in sentences, and all tables of results, are printed and checked by
// studies/results/tables.py.
#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

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

const Json& LeagueRow(const Json& league, const std::string& recipe) {
  const auto found = std::find_if(league["rows"].begin(), league["rows"].end(),
                                  [&](const Json& row) { return row["recipe"] == recipe; });
  REQUIRE(found != league["rows"].end());
  return *found;
}

TEST_CASE("What pages say of the league's recipes follows from the results", "[study]") {
  const auto folder = SourceDirectory() / "studies" / "results" / "league";
  const Json league = ReadJsonFile(folder / "league.json");
  const std::string readme = ReadFile(SourceDirectory() / "README.md");
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
