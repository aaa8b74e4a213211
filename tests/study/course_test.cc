// Observations of a study's runs: in the record, in results.json, in the report.
#include <cmath>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/study/analysis/analyze.h"
#include "fp4lab/study/report/figures/figures.h"
#include "fp4lab/study/report/report.h"
#include "fp4lab/study/results/results_file.h"
#include "fp4lab/study/run/record/results.h"
#include "fp4lab/study/run/record/run_folder.h"
#include "fp4lab/study/run/run.h"
#include "fp4lab/study/run/runner.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab::study {
namespace {

using Catch::Matchers::ContainsSubstring;

Study Observed(const char* diagnostics = R"({"every": 4, "tokens": 64})") {
  Json json = TinyStudyJson();
  json["diagnostics"] = Json::parse(diagnostics);
  return TinyStudy(json);
}

struct Fixture {
  explicit Fixture(Study s) : study(std::move(s)) { SetThreads(1); }

  Study study;
  Corpus corpus = LoadCorpus(study.base.data);

  Run NewRun(std::vector<std::int64_t> budgets) {
    study.budgets = std::move(budgets);
    return Run(ConfigOf(study, study.arms[1], 1), corpus, PlanOf(study, study.arms[1]), "tiny");
  }
};

RunRecord Finish(Run& run) {
  while (!run.Done()) run.Advance();
  return run.Record();
}

std::vector<std::byte> Saved(const Run& run) {
  std::vector<std::byte> bytes;
  run.Save([&](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  });
  return bytes;
}

TEST_CASE("An observed run has the losses of one that is not", "[study]") {
  Fixture plain(TinyStudy()), observed(Observed());
  Run a = plain.NewRun({1280, 2560}), b = observed.NewRun({1280, 2560});
  const RunRecord record = Finish(a), seen = Finish(b);
  CHECK(record.observations.empty());
  CHECK(record.losses == seen.losses);
  REQUIRE(record.points.size() == seen.points.size());
  for (std::size_t i = 0; i < record.points.size(); ++i) {
    CHECK(record.points[i].training.chunk_losses == seen.points[i].training.chunk_losses);
  }
  // Budgets of 10 and 20 steps leave the trunk at steps 8 and 16.
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (const Observation& o : seen.observations) places.emplace_back(o.budget, o.step);
  CHECK(places == std::vector<std::pair<std::int64_t, std::int64_t>>{
                      {0, 0}, {0, 4}, {0, 8}, {0, 12}, {0, 16}, {2560, 20}});
  const Json inputs = RunInputs(ConfigOf(plain.study, plain.study.arms[1], 1), plain.corpus, "n");
  const Json other =
      RunInputs(ConfigOf(observed.study, observed.study.arms[1], 1), observed.corpus, "n");
  CHECK_FALSE(inputs.contains("diagnostics"));
  CHECK(RunKey(inputs) != RunKey(other));
  CHECK_FALSE(ToJson(record).contains("observations"));
}

TEST_CASE("A run that is stopped and loaded at every step has the same observations", "[study]") {
  Fixture f(Observed(R"({"every": 2, "tokens": 32})"));
  Run whole = f.NewRun({1280, 2560});
  const std::vector<Observation> expected = Finish(whole).observations;
  REQUIRE(expected.size() > 8);
  Run run = f.NewRun({1280, 2560});
  while (!run.Done()) {
    run.Advance();
    const std::vector<std::byte> bytes = Saved(run);
    run = f.NewRun({1280, 2560});
    run.Load(bytes, "tiny.fp4lab");
  }
  CHECK(run.Record().observations == expected);
  // Weights that came back are counted from the third observation on.
  const auto has = [](const Observation& o, const char* key) {
    for (const ObservedRow& row : o.rows) {
      if (row.numbers.count(key) == 1) return true;
    }
    return false;
  };
  CHECK_FALSE(has(expected[0], "flips_percent"));
  CHECK(has(expected[1], "flips_percent"));
  CHECK_FALSE(has(expected[1], "returns_percent"));
  CHECK(has(expected[2], "returns_percent"));
}

TEST_CASE("A larger budget continues the observations of a smaller one", "[study]") {
  Fixture f(Observed(R"({"every": 2, "tokens": 32})"));
  Run small = f.NewRun({1280});
  Finish(small);
  const std::vector<std::byte> bytes = Saved(small);
  Run longer = f.NewRun({1280, 2560});
  longer.Load(bytes, "tiny.fp4lab");
  Run whole = f.NewRun({1280, 2560});
  CHECK(Finish(longer).observations == Finish(whole).observations);
}

TEST_CASE("Steps that no run makes are refused", "[study]") {
  CHECK_THAT(ErrorOf([] { Observed(R"({"steps": [0, 21]})"); }),
             ContainsSubstring("tiny.json#/diagnostics/steps/1: is step 21, and training ends"));
  CHECK_THAT(ErrorOf([] { Observed(R"({"evry": 2})"); }),
             ContainsSubstring("tiny.json#/diagnostics/evry: unknown key"));
  const Study study = Observed(R"({"steps": [0, 20]})");
  CHECK(ParseStudy(ToJson(study).dump(), "again").base.diagnostics == study.base.diagnostics);
  CHECK_FALSE(ToJson(TinyStudy()).contains("diagnostics"));
}

// results.json of the study, trained here.
Json Trained(const Study& study) {
  const TestFolder folder("course");
  const Corpus corpus = LoadCorpus(study.base.data);
  const std::atomic<bool> stop{false};
  RunOptions options;
  options.out_dir = folder.Path();
  options.jobs = 1;
  const Outcome outcome = RunStudy(study, corpus, options, {}, stop);
  return ResultsJson(study, corpus, outcome);
}

TEST_CASE("results.json, report and CSV have every observation", "[study]") {
  SetThreads(1);
  const Json json = Trained(Observed());
  const Json& columns = json["runs"][2]["diagnostics"];  // nvfp4, seed 1
  CHECK(columns["steps"] == Json({0, 4, 8, 12, 16, 20}));
  CHECK(columns["budgets"] == Json({0, 0, 0, 0, 0, 2560}));
  const Results results = ReadResults(json, "results.json");
  REQUIRE(results.HasObservations());
  const RunResult& run = results.runs[2];
  REQUIRE(run.observations.size() == 6);
  std::size_t numbers = 0;
  for (const Observation& o : run.observations) {
    for (const ObservedRow& row : o.rows) {
      for (const auto& [key, value] : row.numbers) {
        CHECK(std::isfinite(value));
        ++numbers;
      }
    }
  }
  CHECK(numbers > 500);
  const std::string csv = DiagnosticsCsv(results);
  CHECK(csv.starts_with("arm,seed,budget,step,name,diagnostic,value\n"));
  CHECK_THAT(csv, ContainsSubstring("nvfp4,1,0,4,step,noise_ratio,"));
  CHECK_THAT(csv, ContainsSubstring("nvfp4,2,2560,20,blocks.0.mlp.up.wgrad,cosine,"));
  CHECK_THAT(csv, ContainsSubstring("blocks.0.mlp.up.fprop.input,scales 2^"));
  const Figure figure = DrawCourse(results);
  CHECK_THAT(figure.embedded, ContainsSubstring("gradient / noise"));
  CHECK_THAT(figure.embedded, ContainsSubstring("after 16 steps"));
  CHECK_THAT(figure.embedded, ContainsSubstring("codes that came back"));
  CHECK_THAT(ReportHtml(results, Analyze(results)),
             ContainsSubstring("Diagnostics over the course of training"));
}

TEST_CASE("Results without observations have no such figure, and damaged ones are refused",
          "[study]") {
  SetThreads(1);
  const Json plain = Trained(TinyStudy());
  CHECK_FALSE(plain["runs"][0].contains("diagnostics"));
  const Results results = ReadResults(plain, "results.json");
  CHECK_FALSE(results.HasObservations());
  CHECK(DiagnosticsCsv(results).empty());
  for (const Figure& figure : DrawFigures(results, Analyze(results))) {
    CHECK(figure.file != "course.svg");
  }
  const auto refuses = [&](const char* text, const std::string& part) {
    Json damaged = plain;
    damaged["runs"][0]["diagnostics"] = Json::parse(text);
    CHECK_THAT(ErrorOf([&] { ReadResults(damaged, "r"); }), ContainsSubstring(part));
  };
  refuses("3", "r#/runs/0/diagnostics");
  refuses(R"({"steps": [0], "budgets": [], "tokens": [1], "rows": []})", "differ in length");
  refuses(R"({"steps": [0], "budgets": [0], "tokens": [1],
              "rows": [{"name": "a", "numbers": {"x": [1, 2]}}]})",
          "rows/0/numbers/x: must have an entry an observation");
  refuses(R"({"steps": [0], "budgets": [0], "tokens": [1],
              "rows": [{"name": "a", "numbers": {"x": [1]}, "scales": 1}]})",
          "rows/0/scales: must be an array");
}

}  // namespace
}  // namespace fp4lab::study
