#include "fp4lab/study/runner.h"

#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "fp4lab/io/folder_lock.h"
#include "fp4lab/study/fingerprint.h"
#include "fp4lab/study/results.h"
#include "fp4lab/study/run_folder.h"
#include "tests/study/tiny_study.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

// One call of RunStudy with what it said.
struct Call {
  Outcome outcome;
  std::vector<std::string> notes;
  std::string results;  // results.json without what the clock wrote

  bool Said(const std::string& text) const {
    for (const std::string& note : notes) {
      if (note.find(text) != note.npos) return true;
    }
    return false;
  }
};

std::string Timeless(Json results) {
  for (Json& run : results["runs"]) {
    run.erase("seconds");
    run.erase("tokens_per_second");
  }
  return results.dump();
}

Call RunIn(const std::filesystem::path& folder, const Json& json, int jobs = 2, int threads = 1) {
  Call call;
  const Study study = TinyStudy(json);
  const Corpus corpus = LoadCorpus(study.base.data);
  const std::atomic<bool> stop{false};
  call.outcome = RunStudy(
      study, corpus, {.out_dir = folder, .jobs = jobs, .threads_per_job = threads},
      {.progress = nullptr, .note = [&](const std::string& note) { call.notes.push_back(note); }},
      stop);
  call.results = Timeless(ResultsJson(study, corpus, call.outcome));
  return call;
}

std::string ErrorOf(const std::filesystem::path& folder, const Json& json) {
  try {
    RunIn(folder, json);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

RunFolder FolderOf(const std::filesystem::path& out, const Json& json, std::size_t arm,
                   std::uint64_t seed) {
  const Study study = TinyStudy(json);
  const TrainConfig config = ConfigOf(study, study.arms[arm], seed);
  return RunFolder(out, config, LoadCorpus(study.base.data), NumericsFingerprint(config, "test"));
}

constexpr int kStepsOfRun = 16 + 2 + 4;

TEST_CASE("Jobs and threads do not change the results", "[study]") {
  const TestFolder one("jobs1"), two("jobs2"), four("jobs4"), threads("threads");
  const Call a = RunIn(one.Path(), TinyStudyJson(), 1, 1);
  CHECK(RunIn(two.Path(), TinyStudyJson(), 2, 1).results == a.results);
  CHECK(RunIn(four.Path(), TinyStudyJson(), 4, 1).results == a.results);
  CHECK(a.outcome.steps_made == 4 * kStepsOfRun);
  Json shorter = TinyStudyJson();  // small parallel loops are slow on a busy machine
  shorter["seeds"] = {2};
  shorter["budgets"] = {1280};
  CHECK(RunIn(threads.Path(), shorter, 1, 2).results == RunIn(one.Path(), shorter).results);
  const Json results = Json::parse(a.results);
  REQUIRE(results["runs"].size() == 4);
  CHECK(results["runs"][1]["arm"] == "bf16");
  CHECK(results["runs"][1]["seed"] == 2);
  CHECK(results["runs"][2]["arm"] == "nvfp4");
  CHECK(results["runs"][2]["points"][1]["validation_loss"].get<double>() > 0.0);
  CHECK(results["runs"][2]["points"][1]["validation_loss"] !=
        results["runs"][0]["points"][1]["validation_loss"]);
}

TEST_CASE("Runs of other numerics are never taken for these", "[study]") {
  const TestFolder folder("numerics");
  const Study study = TinyStudy(TinyStudyJson());
  const TrainConfig config = ConfigOf(study, study.arms[1], 1);
  const Corpus corpus = LoadCorpus(study.base.data);
  const std::string here = NumericsFingerprint(config, "test");
  const RunFolder ours(folder.Path(), config, corpus, here),
      theirs(folder.Path(), config, corpus, std::string(64, '0'));
  CHECK(ours.Key() != theirs.Key());
  theirs.WriteResult(RunRecord{});
  CHECK_FALSE(ours.ReadResult().has_value());
  const Json results = Json::parse(RunIn(folder.Path(), TinyStudyJson()).results);
  CHECK(results["numerics"][study.arms[1].name] == here);
}

TEST_CASE("A second call finds everything cached and makes no step", "[study]") {
  const TestFolder folder("cached");
  const Call first = RunIn(folder.Path(), TinyStudyJson());
  const Call second = RunIn(folder.Path(), TinyStudyJson());
  CHECK(first.outcome.cached == 0);
  CHECK(second.outcome.cached == 4);
  CHECK(second.outcome.steps_made == 0);
  CHECK(second.Said("nvfp4, seed 2: cached"));
  CHECK(second.results == first.results);
}

TEST_CASE("A new arm, seed or larger budget trains only what is new", "[study]") {
  const TestFolder folder("more"), fresh("fresh");
  RunIn(folder.Path(), TinyStudyJson());
  Json json = TinyStudyJson();
  json["arms"]["mxfp4"] = {{"recipe", "mxfp4"}};
  CHECK(RunIn(folder.Path(), json).outcome.steps_made == 2 * kStepsOfRun);
  json["seeds"] = {1, 2, 3};
  CHECK(RunIn(folder.Path(), json).outcome.steps_made == 3 * kStepsOfRun);
  json["budgets"] = {1280, 2560, 3840};
  const Call longer = RunIn(folder.Path(), json);
  CHECK(longer.outcome.steps_made == 9 * (8 + 6));
  CHECK(longer.results == RunIn(fresh.Path(), json).results);
  json["budgets"] = {1280, 2560};  // and back
  CHECK(RunIn(folder.Path(), json).outcome.steps_made == 0);
}

TEST_CASE("What a run computes is its key; its name and its budgets are not", "[study]") {
  const std::filesystem::path out = "out";
  const std::string key = FolderOf(out, TinyStudyJson(), 1, 1).Key();
  Json json = TinyStudyJson();
  json["title"] = "another";
  json["budgets"] = {3840};
  CHECK(FolderOf(out, json, 1, 1).Key() == key);
  CHECK(FolderOf(out, json, 1, 2).Key() != key);
  CHECK(FolderOf(out, json, 0, 1).Key() != key);
  for (const char* change :
       {R"({"schedule": {"learning_rate": 0.02}})", R"({"optimizer": {"clip": 2}})",
        R"({"data": {"synthetic_seed": 2}})", R"({"evaluation": {"tokens": 1024}})",
        R"({"model": {"layers": 2}})", R"({"batch": 8})"}) {
    Json changed = TinyStudyJson();
    changed.merge_patch(Json::parse(change));
    INFO(change);
    CHECK(FolderOf(out, changed, 1, 1).Key() != key);
  }
}

TEST_CASE("Inputs of a cached run that were edited are found", "[study]") {
  const TestFolder folder("inputs");
  RunIn(folder.Path(), TinyStudyJson());
  const RunFolder run = FolderOf(folder.Path(), TinyStudyJson(), 0, 1);
  Json result = ReadJsonFile(run.ResultPath());
  CHECK(run.ReadResult());
  result["inputs"]["batch"] = 5;
  WriteFileAtomically(run.ResultPath(), result.dump());
  CHECK_THROWS_AS(run.ReadResult(), Error);
  const Call again = RunIn(folder.Path(), TinyStudyJson());
  CHECK(again.outcome.cached == 3);
  CHECK(again.Said("was changed after fp4lab wrote it; bf16, seed 1 is made again"));
}

TEST_CASE("What killed runs left half-written is swept when the study is run again", "[study]") {
  const TestFolder folder("swept");
  RunIn(folder.Path(), TinyStudyJson());
  const RunFolder run = FolderOf(folder.Path(), TinyStudyJson(), 0, 1);
  const std::filesystem::path stale[] = {run.CheckpointPath().string() + ".partial-4711",
                                         run.ResultPath().string() + ".partial-0123456789abcdef",
                                         folder.Path() / "study.json.partial-0123456789abcdef"};
  for (const auto& path : stale) WriteFileAtomically(path, std::string_view("half"));
  RunIn(folder.Path(), TinyStudyJson());
  for (const auto& path : stale) CHECK_FALSE(Exists(path));
}

TEST_CASE("A damaged cache entry is found and made again", "[study]") {
  const TestFolder folder("damaged");
  const Call first = RunIn(folder.Path(), TinyStudyJson());
  const RunFolder run = FolderOf(folder.Path(), TinyStudyJson(), 1, 2);
  std::string text = ReadFile(run.ResultPath());
  const std::size_t digit = text.find("\"loss\":") + 9;
  text[digit] = text[digit] == '1' ? '2' : '1';
  WriteFileAtomically(run.ResultPath(), text);

  const Call from_checkpoint = RunIn(folder.Path(), TinyStudyJson());
  CHECK(
      from_checkpoint.Said("result.json: is damaged, or was changed after fp4lab wrote it; "
                           "nvfp4, seed 2 is made again"));
  CHECK(from_checkpoint.outcome.cached == 3);
  CHECK(from_checkpoint.outcome.steps_made == 0);  // its checkpoint still held everything
  CHECK(from_checkpoint.results == first.results);

  WriteFileAtomically(run.ResultPath(), std::string_view("{"));
  const std::string bytes = ReadFile(run.CheckpointPath());
  WriteFileAtomically(run.CheckpointPath(), std::string_view(bytes).substr(0, bytes.size() / 2));
  const Call from_scratch = RunIn(folder.Path(), TinyStudyJson());
  CHECK(from_scratch.Said("damaged or cut short; nvfp4, seed 2 starts from the beginning"));
  CHECK(from_scratch.outcome.steps_made == kStepsOfRun);
  CHECK(from_scratch.results == first.results);
}

TEST_CASE("A run that diverges is recorded and the others go on", "[study]") {
  const TestFolder folder("diverged");
  Json json = TinyStudyJson();
  json["arms"]["wild"] = {{"recipe", "bf16"}, {"schedule", {{"learning_rate", 1e30}}}};
  const Call call = RunIn(folder.Path(), json);
  CHECK_FALSE(call.outcome.interrupted);
  CHECK(call.Said("wild, seed 1: diverged at step"));
  const Json runs = Json::parse(call.results)["runs"];
  REQUIRE(runs.size() == 6);
  CHECK(runs[3]["status"] == "ok");
  CHECK(runs[3]["points"].size() == 2);
  CHECK(runs[4]["status"] == "diverged");
  CHECK(runs[4]["diverged_at"]["step"].get<int>() > 0);
  CHECK_FALSE(runs[4]["diverged_at"]["tensor"].get<std::string>().empty());
  CHECK(RunIn(folder.Path(), json).outcome.steps_made == 0);  // and it is cached, too
}

TEST_CASE("An interrupted study goes on to the same results", "[study]") {
  const TestFolder whole("whole"), pieces("pieces");
  const std::string expected = RunIn(whole.Path(), TinyStudyJson()).results;
  const Study study = TinyStudy();
  const Corpus corpus = LoadCorpus(study.base.data);
  const std::atomic<bool> stop{true};  // each job stops before its first step
  const Outcome outcome =
      RunStudy(study, corpus, {.out_dir = pieces.Path(), .threads_per_job = 1}, {}, stop);
  CHECK(outcome.interrupted);
  CHECK(RunIn(pieces.Path(), TinyStudyJson()).results == expected);
}

TEST_CASE("Two processes cannot work in one folder", "[study]") {
  const TestFolder folder("lock");
  {
    const FolderLock lock(folder.Path());
    const std::string error = ErrorOf(folder.Path(), TinyStudyJson());
    CHECK(error.find("another fp4lab process (" + std::to_string(::getpid()) +
                     ") is at work here") != error.npos);
  }
  const FolderLock again(folder.Path());
}

TEST_CASE("A folder that cannot be written to is refused before any training", "[study]") {
  const TestFolder folder("unwritable");
  const std::filesystem::path file = folder.Path() / "file";
  std::ofstream(file) << "no folder";
  const std::string error = ErrorOf(file / "out", TinyStudyJson());
  CHECK(error.find((file / "out").string() + ": cannot be written to: ") == 0);
}

TEST_CASE("A corpus too short for the model is refused before any training", "[study]") {
  const TestFolder folder("short");
  Json json = TinyStudyJson();
  json["model"]["sequence"] = 2048;
  json["batch"] = 1;
  json["evaluation"] = {{"tokens", 2048}, {"chunk_tokens", 2048}};
  json["budgets"] = {2048 * 20};
  CHECK(ErrorOf(folder.Path(), json).find("tiny#/data: the validation part") == 0);
  CHECK_FALSE(std::filesystem::exists(folder.Path() / "runs"));
}

}  // namespace
}  // namespace fp4lab::study
