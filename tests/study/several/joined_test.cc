// Several results.json as one study.
#include <functional>
#include <string>
#include <vector>

#include "fp4lab/study/several/joined_study.h"
#include "tests/study/several/made_studies.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab::study {
namespace {

TEST_CASE("A study in two parts is the whole", "[several]") {
  const LossOf loss = Scaled({{"nvfp4", 1.3}, {"mxfp4", 1.8}});
  Folder folder;
  const Made whole{.name = "whole", .arms = {"bf16", "nvfp4", "mxfp4", "null"}};
  Made seeds = whole, more_seeds = whole, budgets = whole, more_budgets = whole;
  seeds.name = "seeds", seeds.seeds = {1, 2};
  more_seeds.name = "more-seeds", more_seeds.seeds = {3, 4}, more_seeds.arms.pop_back();
  budgets.name = "budgets", budgets.budgets.resize(3);
  more_budgets.name = "more-budgets";
  more_budgets.budgets.erase(more_budgets.budgets.begin(), more_budgets.budgets.begin() + 2);
  for (const Made& made : {whole, seeds, more_seeds, budgets, more_budgets}) {
    folder.Add(made, loss);
  }
  const JoinedStudy expected = ReadJoinedStudy({folder.Path("whole")}, "bf16", "null");
  CHECK(expected.null_gaps == std::vector<double>(4, 0.0));
  const auto check = [&](const JoinedStudy& study, std::size_t nulls) {
    REQUIRE(study.results.seeds == expected.results.seeds);
    REQUIRE(study.results.budgets == expected.results.budgets);
    for (const char* arm : {"bf16", "nvfp4", "mxfp4"}) {
      for (std::size_t k = 0; k < study.cube.Budgets(); ++k) {
        CHECK(study.LossesAt(study.Arm(arm), k) == expected.LossesAt(expected.Arm(arm), k));
        CHECK(study.Apart(study.Arm(arm), k) == expected.Apart(expected.Arm(arm), k));
      }
    }
    CHECK(study.null_gaps.size() == nulls);
    CHECK(JoinedSources(study).size() == 1);
  };
  StudyFiles by_seeds{folder.Path("seeds")}, by_budgets{folder.Path("budgets")};
  by_seeds.seeds = {folder.Path("more-seeds")};
  by_budgets.budgets = {folder.Path("more-budgets")};
  const JoinedStudy joined = ReadJoinedStudy(by_seeds, "bf16", "null");
  check(joined, 2);
  CHECK_FALSE(joined.Has("null"));  // one of the parts has no such arm
  CHECK(ErrorOf([&] { joined.Arm("nvfp"); }).find("no arm \"nvfp\"") != std::string::npos);
  CHECK(ErrorOf([&] { joined.Arm("nvfp"); }).find("nvfp4") != std::string::npos);
  check(ReadJoinedStudy(by_budgets, "bf16", "null"), 4);

  // Parts that do not fit.
  const auto refused = [&](const StudyFiles& files, const std::string& words) {
    const std::string error = ErrorOf([&] { ReadJoinedStudy(files, "bf16", "null"); });
    CAPTURE(error);
    CHECK(error.find(words) != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
  };
  refused({folder.Path("absent")}, "absent");
  StudyFiles twice = by_seeds;
  twice.seeds = {folder.Path("seeds")};
  refused(twice, "give each seed in one study");
  StudyFiles wrong = by_seeds;
  wrong.seeds = {folder.Path("budgets")};
  refused(wrong, "has other budgets than seeds");
  wrong = by_budgets;
  wrong.budgets = {folder.Path("more-seeds")};
  refused(wrong, "has other seeds than budgets");
  const auto changed = [&](const std::function<void(Json*)>& change) {
    Json results = ResultsOf(more_budgets, loss);
    change(&results);
    folder.Add("changed", results);
    StudyFiles files{folder.Path("budgets")};
    files.budgets = {folder.Path("changed")};
    return files;
  };
  refused(changed([](Json* r) { (*r)["study"]["batch"] = 512; }), "its \"batch\" is not that of");
  refused(changed([](Json* r) { (*r)["corpus"]["train_sha256"] = std::string(64, '1'); }),
          "has another text than budgets");
  refused(changed([](Json* r) { (*r)["numerics"]["mxfp4"] = "0"; }), "has another fingerprint");
  refused(changed([](Json* r) { (*r)["runs"][5]["points"][0]["chunk_losses"][7] = 1.5; }),
          "as another kind of GPU makes");
  refused(changed([](Json* r) { r->erase("analysis"); }), "#/analysis: must be an object");
}

}  // namespace
}  // namespace fp4lab::study
