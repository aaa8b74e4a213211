#include "fp4lab/study/results/sweep.h"

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/study/report/report.h"
#include "fp4lab/study/report/tables/sweep_table.h"
#include "fp4lab/study/run/record/results.h"
#include "fp4lab/study/run/runner.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

// The results of the tiny study at three learning rates, the last one far too large.
Json SweptResults(const std::filesystem::path& folder) {
  Json json = TinyStudyJson();
  json["sweep"] = {{"learning_rate", {0.0001, 0.01, 3.0}}};
  json["seeds"] = {1, 2, 3};
  json["analysis"] = {{"contrast", {"nvfp4", "bf16"}},
                      {"criteria", {{{"kind", "mean_order"}, {"arms", {"bf16", "nvfp4"}}}}}};
  const Study study = TinyStudy(json);
  const Corpus corpus = LoadCorpus(study.base.data);
  const std::atomic<bool> stop{false};
  const Outcome outcome =
      RunStudy(study, corpus, {.out_dir = folder, .jobs = 1, .threads_per_job = 1}, {}, stop);
  return ResultsJson(study, corpus, outcome);
}

TEST_CASE("A swept study is seen at the shared rate, at each arm's best rate and at the others",
          "[study]") {
  const TestFolder folder("sweep");
  const Json json = SweptResults(folder.Path());
  const Results results = ReadResults(json, "results.json");
  CHECK(results.arms.size() == 6);
  CHECK(results.runs.size() == 18);
  const std::vector<Results> views = AllViews(results);
  REQUIRE(views.size() == 4);
  for (const Results& view : views) {
    CAPTURE(view.view_title);
    CHECK(view.arms == std::vector<std::string>{"bf16", "nvfp4"});
    CHECK(view.runs.size() == 6);
    CHECK(view.numerics.contains("nvfp4"));
    CHECK(view.question.reference == "bf16");
  }
  CHECK(views[0].view == View::kSharedRate);
  CHECK(views[0].view_title == "all arms at learning rate 0.01, the best of bf16");
  CHECK(views[0].folder == "lr0.01");
  CHECK(views[1].view == View::kBestRates);
  CHECK(views[1].view_title == "each arm at its best learning rate: bf16 0.01, nvfp4 0.01");
  // A best rate at an end of the sweep is no optimum.
  Json ends = json;
  for (Json& run : ends["runs"]) {
    const bool largest = run["arm"].get<std::string>().ends_with("lr3");
    for (Json& point : run["points"]) point["validation_loss"] = largest ? 1.0 : 2.0;
    run["status"] = "ok";
  }
  ends.erase("sha256");
  CHECK(AllViews(ReadResults(ends, "results.json"))[0].view_title ==
        "all arms at learning rate 3, the best of bf16; at an end of the sweep, where a better "
        "rate may lie beyond: bf16 (the largest)");
  CHECK(views[2].folder == "lr0.0001");
  CHECK(views[3].folder == "lr3");
  // The runs of a view are those of its rate, bit for bit.
  for (const std::uint64_t seed : results.seeds) {
    const RunResult* run = results.Find("nvfp4+lr0.0001", seed);
    REQUIRE(run != nullptr);
    REQUIRE(run->points.size() == 2);
    CHECK(views[2].Find("nvfp4", seed)->points[1].loss == run->points[1].loss);
  }

  WriteFileAtomically(folder.Path() / "results.json", ResultsText(json));
  const ReportFiles files = WriteReport(folder.Path());
  CHECK(std::filesystem::exists(files.figures / "lr0.01" / "loss.svg"));
  CHECK(std::filesystem::exists(files.figures / "best-rates" / "gap.svg"));
  CHECK(files.summary.find("learning rate\n  token ratio, nvfp4 to match bf16") !=
        files.summary.npos);
  CHECK(ReadJsonFile(folder.Path() / "results.json")["analysis"].size() == 4);
  CHECK(ReadFile(files.html).find("<h2>Learning rate</h2>") != std::string::npos);
}

TEST_CASE("The weaker of two conclusions is the one nearer to no difference", "[study]") {
  const TestFolder folder("weaker");
  const Json json = SweptResults(folder.Path());
  std::vector<ModelReport> models = AnalyzeStudy("results.json", json, 20).models;
  REQUIRE(models.size() == 4);
  const auto gap = [](ModelReport& model) -> LossGap& {
    for (LossGap& g : model.analysis.gaps) {
      if (g.tokens == 2560 && g.precision == Precision::kTraining) return g;
    }
    throw Error("test", "no gap");
  };
  gap(models[0]).summary.mean = 0.05;
  gap(models[1]).summary.mean = 0.02;
  gap(models[0]).interval = gap(models[1]).interval = std::nullopt;
  models[0].analysis.criteria[0].status = CriterionResult::Status::kHeld;
  models[1].analysis.criteria[0].status = CriterionResult::Status::kFailed;
  std::vector<SweepRow> rows = SweepRows(models);
  REQUIRE(rows.size() == 3);
  CHECK(rows[1].quantity == "gap of nvfp4 to bf16 at 2.56k");
  CHECK(rows[1].shared == "+0.0500");
  CHECK(rows[1].weaker == "+0.0200");
  CHECK(rows[2].weaker == "failed");
  gap(models[0]).diverged = 1;
  CHECK(SweepRows(models)[1].weaker == "not identified");
  models.erase(models.begin(), models.begin() + 2);
  CHECK(SweepRows(models).empty());
}

}  // namespace
}  // namespace fp4lab::study
