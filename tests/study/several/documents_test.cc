// The commands on several studies, and the documents of the pages.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/study/several/differences.h"
#include "fp4lab/study/several/law.h"
#include "fp4lab/study/several/league.h"
#include "fp4lab/study/several/surface.h"
#include "tests/study/several/made_studies.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/golden.h"
#include "tests/support/program.h"

namespace fp4lab::study {
namespace {

TEST_CASE("The commands print a table or JSON, and end with one line where they cannot",
          "[several]") {
  const fs::path several = SourceDirectory() / "studies" / "several";
  const auto run = [&](const char* command, const fs::path& file,
                       const std::vector<std::string>& rest = {}) {
    std::vector<std::string> arguments = {"study", command, file.string()};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return RunProgram(arguments);
  };
  const ProcessResult table = run("league", several / "league-4.7m.json");
  CHECK(table.exit_code == 0);
  CHECK(table.output.find("\n  quartet2 ") != std::string::npos);
  const ProcessResult json = run("law", several / "law-4.7m.json", {"--draws", "5", "--json"});
  CHECK(json.exit_code == 0);
  CHECK(ParseJson(json.output, "output")["draws"] == 5);
  CHECK(run("differences", several / "atlas.json").exit_code == 0);
  Folder folder;
  folder.Add({.name = "made"}, Scaled({{"nvfp4", 1.2}, {"mxfp4", 1.5}}));
  CHECK(run("surface", folder.Ask(SurfaceAsk({"made"}))).exit_code == 0);
  for (const fs::path& file : {folder.Ask(SurfaceAsk({"missing"})), several / "league.json",
                               several / "no-such-file.json"}) {
    const ProcessResult failed = run("surface", file, {"--json"});
    CAPTURE(file, failed.error);
    CHECK(failed.exit_code == 1);
    CHECK(failed.output.empty());
    CHECK(IsOneLine(failed.error));
  }
}

// Whether two documents are the same but for the last bits of numbers (libm's functions differ
// between systems). Returns the first place that differs; empty: none.
std::string FirstDifference(const Json& a, const Json& b, const std::string& place) {
  if (a.is_number() && b.is_number()) {
    const double x = a, y = b;
    return std::abs(x - y) <= 1e-6 * std::max(1.0, std::abs(x)) ? "" : place;
  }
  if (a.type() != b.type() || a.size() != b.size()) return place;
  if (a.is_object()) {
    for (const auto& [key, value] : a.items()) {
      if (!b.contains(key)) return place + "/" + key;
      const std::string found = FirstDifference(value, b.at(key), place + "/" + key);
      if (!found.empty()) return found;
    }
    return "";
  }
  if (a.is_array()) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::string found = FirstDifference(a[i], b[i], place + "/" + std::to_string(i));
      if (!found.empty()) return found;
    }
    return "";
  }
  return a == b ? "" : place;
}

TEST_CASE("The pages' documents are what the commands print of the published studies",
          "[several]") {
  const fs::path studies = SourceDirectory() / "studies";
  const auto check = [&](const char* published, const Json& made) {
    CAPTURE(published);
    CHECK(FirstDifference(ReadJsonFile(studies / "results" / published), made, "") == "");
  };
  for (const char* name : {"league", "league-4.7m"}) {
    const std::string file = std::string(name) + ".json";
    check(("league/" + file).c_str(), LeagueDocument(ReadLeagueFile(studies / "several" / file)));
  }
  for (const char* name :
       {"atlas.json", "architectures.json", "figure6.json", "fp8-gap.json", "horizon.json",
        "outliers.json", "transfer-quartet2.json", "transfer-amd.json"}) {
    check(name, DifferencesDocument(ReadDifferencesFile(studies / "several" / name)));
  }
  check("surface/law-25m-seeds.json",
        LawDocument(ReadLawFile(studies / "several" / "law-25m-seeds.json"), kBootstrapDraws));
  for (const std::string name : {"surface.json", "size.json"}) {
    check(("surface/" + name).c_str(),
          SurfaceDocument(ReadSurfaceFile(studies / "several" / name), kBootstrapDraws));
  }
}

TEST_CASE("Registered laws are those that the same studies give today", "[several]") {
  // Their intervals were drawn by another program and stay as they were committed.
  const fs::path studies = SourceDirectory() / "studies";
  for (const char* name : {"law-4.7m.json", "law-25m.json"}) {
    const Json registered = ReadJsonFile(studies / "results" / "surface" / name);
    const Json now = LawDocument(ReadLawFile(studies / "several" / name), 2);
    for (const auto& [arm, law] : registered["arms"].items()) {
      CAPTURE(name, arm);
      for (const char* key : {"ln_c", "a", "b"}) {
        CHECK(now["arms"][arm][key].get<double>() == Approx(law[key].get<double>()).epsilon(1e-6));
      }
      for (std::size_t i = 0; i < law["predictions"].size(); ++i) {
        CHECK(now["arms"][arm]["predictions"][i]["gap"].get<double>() ==
              Approx(law["predictions"][i]["gap"].get<double>()).epsilon(1e-6));
      }
    }
  }
}

}  // namespace
}  // namespace fp4lab::study
