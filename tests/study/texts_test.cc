// Further validation texts of a study: records, keys of runs, results.json and the report.
#include <atomic>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/analysis/analyze.h"
#include "fp4lab/study/report/report.h"
#include "fp4lab/study/results/results_file.h"
#include "fp4lab/study/run/record/results.h"
#include "fp4lab/study/run/record/run_folder.h"
#include "fp4lab/study/run/rehearsal.h"
#include "fp4lab/study/run/run.h"
#include "fp4lab/study/run/runner.h"
#include "fp4lab/study/run/study_start.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab::study {
namespace {

struct TextStudy {
  TestFolder folder{"texts"};
  std::string path = (folder.Path() / "code.txt").string();
  Json json = TinyStudyJson();

  TextStudy() {
    SetThreads(1);
    std::string code;
    for (int i = 0; i < 80; ++i) code += "int f" + std::to_string(i) + "() { return 0; }\n";
    WriteFileAtomically(path, code);
    json["evaluation"]["texts"] = {{"code", {{"text", path}}}};
  }
};

std::vector<std::byte> Saved(const Run& run) {
  std::vector<std::byte> bytes;
  run.Save([&](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  });
  return bytes;
}

TEST_CASE("A run with texts that is saved and loaded anywhere goes on to the same record",
          "[study]") {
  const TextStudy f;
  const Study study = TinyStudy(f.json);
  const Corpus corpus = LoadCorpusOf(study);
  const Arm& arm = study.arms[1];
  const auto new_run = [&] {
    return Run(ConfigOf(study, arm, 1), corpus, PlanOf(study, arm), "tiny");
  };
  Run whole = new_run();
  while (!whole.Done()) whole.Advance();
  const Json expected = ToJson(whole.Record())["points"];
  for (const Json& point : expected) {
    REQUIRE(point["texts"].size() == 1);
    CHECK(point["texts"][0]["loss"] != point["training"]["loss"]);
    CHECK(point["texts"][0].contains("loss_high"));
  }
  for (const int steps : {1, 9, 18, 23}) {
    CAPTURE(steps);
    Run first = new_run();
    for (int i = 0; i < steps; ++i) first.Advance();
    Run second = new_run();
    second.Load(Saved(first), "checkpoint");
    while (!second.Done()) second.Advance();
    CHECK(ToJson(second.Record())["points"] == expected);
  }
  const Json record = ToJson(whole.Record());
  CHECK(ToJson(ReadRunRecord(record, "record")) == record);
}

TEST_CASE("Texts are inputs of a run by their content, and no inputs where there are none",
          "[study]") {
  const TextStudy f;
  const auto key = [](const Json& json) {
    const Study study = TinyStudy(json);
    return RunKey(RunInputs(ConfigOf(study, study.arms[0], 1), LoadCorpusOf(study), ""));
  };
  const std::string with = key(f.json), without = key(TinyStudyJson());
  CHECK(with != without);
  const std::string copy = (f.folder.Path() / "copy.txt").string();
  WriteFileAtomically(copy, ReadFile(f.path));
  Json moved = f.json;
  moved["evaluation"]["texts"]["code"]["text"] = copy;
  CHECK(key(moved) == with);
  WriteFileAtomically(copy, ReadFile(f.path) + "x");
  CHECK(key(moved) != with);
  Json none = TinyStudyJson();
  none["evaluation"]["texts"] = Json::object();
  CHECK(key(none) == without);
  CHECK_FALSE(ToJson(TinyStudy()).at("evaluation").contains("texts"));
}

TEST_CASE("A rehearsal keeps texts of bytes and leaves token files out", "[study]") {
  TextStudy f;
  f.json["evaluation"]["texts"]["bpe"] = {{"tokens", "tokens.bin"}};
  const Study study = TinyStudy(f.json), quick = RehearsalOf(study);
  CHECK(study.base.evaluation.texts.size() == 2);
  REQUIRE(quick.base.evaluation.texts.size() == 1);
  CHECK(quick.base.evaluation.texts[0].name == "code");
}

TEST_CASE("A study's results and report have a loss for each text", "[study]") {
  const TextStudy f;
  const Study study = TinyStudy(f.json);
  CHECK(ToJson(TinyStudy(ToJson(study))) == ToJson(study));
  const Corpus corpus = LoadCorpusOf(study);
  const std::atomic<bool> stop{false};
  const auto run = [&] {
    return RunStudy(study, corpus, {.out_dir = f.folder.Path() / "out", .jobs = 1}, {}, stop);
  };
  const Json json = ResultsJson(study, corpus, run());
  CHECK(json["corpus"]["texts"]["code"]["tokens"] == ReadFile(f.path).size());
  for (const Json& r : json["runs"]) {
    for (const Json& point : r["points"]) {
      const Json& code = point.at("texts").at("code");
      CHECK(double{code["validation_loss"]} > 0.0);
      CHECK(code["validation_loss"] != point["validation_loss"]);
      CHECK((code["validation_loss_high"] == code["validation_loss"]) == (r["arm"] == "bf16"));
    }
  }
  Json again = ResultsJson(study, corpus, run());  // from result.json
  CHECK(again["runs"] == json["runs"]);
  const Results results = ReadResults(json, "results.json");
  CHECK(results.runs[0].points[0].texts.at("code").loss ==
        double{json["runs"][0]["points"][0]["texts"]["code"]["validation_loss"]});
  const std::string html = ReportHtml(results, Analyze(results, 10));
  CHECK(html.find("<h2>Further texts</h2>") != std::string::npos);
  CHECK(html.find("<th>code</th>") != std::string::npos);
  Json plain = json;
  for (Json& r : plain["runs"]) {
    for (Json& point : r["points"]) point.erase("texts");
  }
  const Results without = ReadResults(plain, "results.json");
  CHECK(ReportHtml(without, Analyze(without, 10)).find("Further texts") == std::string::npos);
  plain["runs"][0]["points"][0]["texts"] = {{"code", 3}};
  CHECK(ErrorOf([&] {
          ReadResults(plain, "results.json");
        }).find("results.json#/runs/0/points/0/texts/code") == 0);
}

}  // namespace
}  // namespace fp4lab::study
