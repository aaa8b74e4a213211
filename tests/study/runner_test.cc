#include "fp4lab/study/run/runner.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "fp4lab/base/hash.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/io/shared_lock.h"
#include "fp4lab/study/report/report.h"
#include "fp4lab/study/results/results_file.h"
#include "fp4lab/study/run/cluster/collect.h"
#include "fp4lab/study/run/forecast.h"
#include "fp4lab/study/run/record/fingerprint.h"
#include "fp4lab/study/run/record/results.h"
#include "fp4lab/study/run/record/run_folder.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab::study {
namespace {

// One call of RunStudy: its outcome, notes and results.
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

std::string RunError(const std::filesystem::path& folder, const Json& json) {
  return ErrorOf([&] { RunIn(folder, json); });
}

Json InputsOf(const Json& json, std::size_t arm, std::uint64_t seed) {
  const Study study = TinyStudy(json);
  const TrainConfig config = ConfigOf(study, study.arms[arm], seed);
  return RunInputs(config, LoadCorpus(study.base.data), NumericsFingerprint(config, "test"));
}

RunFolder FolderOf(const std::filesystem::path& out, const Json& json, std::size_t arm,
                   std::uint64_t seed) {
  return RunFolder(out, InputsOf(json, arm, seed));
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

TEST_CASE("Arms that compute the same are trained once, whatever their names", "[study]") {
  const TestFolder folder("twins"), alone("twins-alone");
  Json json = TinyStudyJson();
  json["arms"]["twin"] = {{"recipe", "te_nvfp4"}};
  // The same recipe spelled out under another base.
  json["arms"]["spelled"] = {{"recipe", ToJson(TinyStudy().arms[1].recipe)}};
  json["arms"]["spelled"]["recipe"]["base"] = "bf16";
  const Call call = RunIn(folder.Path(), json, 2, 1);
  CHECK(call.outcome.steps_made == 4 * kStepsOfRun);
  CHECK(call.outcome.cached == 0);
  const Json results = Json::parse(call.results);
  const Json plain = Json::parse(RunIn(alone.Path(), TinyStudyJson()).results);
  REQUIRE(results["runs"].size() == 8);
  for (std::size_t i = 2; i < 8; ++i) {
    Json run = results["runs"][i];
    CHECK(run["arm"] == std::vector{"nvfp4", "spelled", "twin"}[i / 2 - 1]);
    run["arm"] = "nvfp4";
    CHECK(run == plain["runs"][2 + i % 2]);
  }
  CHECK(RunIn(folder.Path(), json).outcome.steps_made == 0);
  CHECK(RunIn(folder.Path(), json).outcome.cached == 4);
}

TEST_CASE("Cached results of another numerics fingerprint are not used", "[study]") {
  const TestFolder folder("numerics");
  const Study study = TinyStudy(TinyStudyJson());
  const TrainConfig config = ConfigOf(study, study.arms[1], 1);
  const Corpus corpus = LoadCorpus(study.base.data);
  const std::string here = NumericsFingerprint(config, "test");
  const Json ours = RunInputs(config, corpus, here),
             theirs = RunInputs(config, corpus, std::string(64, '0'));
  CHECK(RunKey(ours) != RunKey(theirs));
  RunFolder(folder.Path(), theirs).WriteResult(theirs, RunRecord{});
  CHECK_FALSE(RunFolder(folder.Path(), ours).ReadResult(ours).has_value());
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

TEST_CASE("A change of the analysis after a run marks the study exploratory", "[study]") {
  const TestFolder folder("registered");
  Json json = TinyStudyJson();
  const auto exploratory = [&] {
    const Call call = RunIn(folder.Path(), json);
    const Json results = Json::parse(call.results);
    CHECK(ReadResults(results, "results.json").exploratory == call.outcome.exploratory);
    return call.outcome.exploratory;
  };
  const Json order = {{"kind", "mean_order"}, {"arms", {"bf16", "nvfp4"}}};
  WriteFileAtomically(folder.Path() / "registered.json", "{}\n");  // no run is complete yet
  CHECK_FALSE(exploratory());
  CHECK_FALSE(exploratory());
  json["seeds"] = {1, 2, 3};  // more runs are the same question
  CHECK_FALSE(exploratory());
  json["budgets"] = {1280, 2560, 3840};
  CHECK_FALSE(exploratory());
  json["analysis"] = {{"criteria", {order}}};
  CHECK(exploratory());
  CHECK(exploratory());
  json.erase("analysis");
  CHECK_FALSE(exploratory());
}

TEST_CASE("A study runs with the predictions that it registered, and its results date them",
          "[study]") {
  const TestFolder folder("predictions");
  const std::filesystem::path file = folder.Path() / "law.json";
  WriteFileAtomically(file, "{\"gap\": 0.02}\n");
  Json json = TinyStudyJson();
  json["analysis"]["predictions"] = {{{"file", file.string()}, {"sha256", Sha256OfFile(file)}}};
  const Json first = Json::parse(RunIn(folder.Path(), json).results);
  const std::string time = first["registered"];
  CHECK(time.size() == 20);
  CHECK(time.substr(0, 2) == "20");
  CHECK(time.back() == 'Z');
  CHECK(first["study"]["analysis"]["predictions"][0]["sha256"] == Sha256OfFile(file));
  // More seeds keep the date, which precedes every run.
  json["seeds"] = {1, 2, 3};
  const Json more = Json::parse(RunIn(folder.Path(), json).results);
  CHECK(more["registered"] == time);
  CHECK(more["exploratory"] == false);
  // Another content is refused, and another prediction after the runs is exploratory.
  WriteFileAtomically(file, "{\"gap\": 0.03}\n");
  CHECK_THROWS_WITH(RunIn(folder.Path(), json),
                    Catch::Matchers::ContainsSubstring("#/analysis/predictions/0: ") &&
                        Catch::Matchers::ContainsSubstring("not the prediction that the study"));
  json["analysis"]["predictions"][0]["sha256"] = Sha256OfFile(file);
  CHECK(Json::parse(RunIn(folder.Path(), json).results)["exploratory"] == true);
  // A study without predictions has no date: its results are the same at any time.
  const TestFolder plain("no_predictions");
  CHECK_FALSE(Json::parse(RunIn(plain.Path(), TinyStudyJson()).results).contains("registered"));
}

TEST_CASE("A forecast counts the steps, times every arm and writes nothing", "[study]") {
  Json json = TinyStudyJson();
  json["arms"]["z"] = {{"recipe", "bf16"}, {"model", {{"layers", 2}}}};
  const Study study = TinyStudy(json);
  const int threads = Threads();
  const StudyForecast forecast =
      ForecastStudy(study, LoadCorpus(study.base.data), {.jobs = 2, .seconds = 0.0});
  CHECK(Threads() == threads);
  REQUIRE(forecast.arms.size() == 3);
  double seconds = 0.0;
  for (const ArmForecast& arm : forecast.arms) {
    CAPTURE(arm.arm);
    CHECK(arm.steps == kStepsOfRun);
    CHECK(arm.seconds_per_step > 0.0);
    CHECK(arm.seconds_per_budget > 0.0);
    CHECK(arm.seconds ==
          Catch::Approx(kStepsOfRun * arm.seconds_per_step + 2 * arm.seconds_per_budget));
    CHECK(arm.memory > 0.0);
    seconds += 2 * arm.seconds / 2;  // two seeds, two runs at a time
  }
  CHECK(forecast.arms[2].block_parameters == 2 * forecast.arms[0].block_parameters);
  CHECK(forecast.steps == 3 * 2 * kStepsOfRun);
  CHECK(forecast.jobs == 2);
  CHECK(forecast.seconds == Catch::Approx(seconds));
  CHECK(forecast.memory > 2 * forecast.arms[2].memory);  // and the program
  CHECK(forecast.memory < 2 * forecast.arms[2].memory + 0x1p26);
  CHECK(forecast.disk > 0);
  CHECK_FALSE(std::filesystem::exists("out/tiny"));
}

TEST_CASE("A forecast counts the observed steps of trunk and decays", "[study]") {
  Json json = TinyStudyJson();
  json["diagnostics"] = {{"every", 3}, {"tokens", 32}};
  const Study study = TinyStudy(json);
  const StudyForecast forecast =
      ForecastStudy(study, LoadCorpus(study.base.data), {.seconds = 0.0});
  const RunPlan plan = PlanOf(study, study.arms[0]);
  std::int64_t observed = plan.TrunkSteps() / 3 + 1;  // step 0, too
  for (const Branch& branch : plan.branches) {
    observed += branch.total_steps / 3 - branch.branch_step / 3;
  }
  for (const ArmForecast& arm : forecast.arms) {
    CHECK(arm.observations == observed);
    CHECK(arm.seconds ==
          Catch::Approx(kStepsOfRun * arm.seconds_per_step + 2 * arm.seconds_per_budget +
                        static_cast<double>(observed) * arm.seconds_per_observation));
  }
}

TEST_CASE("A study of two sizes has runs, analysis and figures of each", "[study]") {
  const TestFolder folder("sizes");
  Json json = TinyStudyJson();
  json["arms"]["z.bf16"] = {{"recipe", "bf16"}, {"model", {{"layers", 2}}}};
  json["arms"]["z.nvfp4"] = {{"recipe", "te_nvfp4"}, {"model", {{"layers", 2}}}};
  json["seeds"] = {1};
  json["analysis"] = {{"contrast", Json::parse(R"([["nvfp4", "bf16"], ["z.nvfp4", "z.bf16"]])")},
                      {"criteria", {{{"kind", "mean_order"}, {"arms", {"z.bf16", "z.nvfp4"}}}}}};
  const Call call = RunIn(folder.Path(), json);
  const Json written = Json::parse(call.results);
  const auto size = [&](const Json& model) { return model.at("block_parameters").get<int>(); };
  CHECK(size(written["model"]["arms"]["z.bf16"]) == 2 * size(written["model"]));
  CHECK_FALSE(written["model"]["arms"].contains("bf16"));

  const std::vector<Results> models = ByModel(ReadResults(written, "results.json"));
  REQUIRE(models.size() == 2);
  CHECK(models[0].arms == std::vector<std::string>{"bf16", "nvfp4"});
  CHECK(models[0].question.format == "nvfp4");
  CHECK(models[0].question.criteria.empty());
  CHECK(models[1].arms == std::vector<std::string>{"z.bf16", "z.nvfp4"});
  CHECK(models[1].question.reference == "z.bf16");
  CHECK(models[1].question.criteria.size() == 1);
  CHECK(models[1].block_parameters == 2 * models[0].block_parameters);
  CHECK(models[1].runs.size() == 2);

  WriteFileAtomically(folder.Path() / "results.json", ResultsText(written));
  const ReportFiles files = WriteReport(folder.Path());
  CHECK(std::filesystem::exists(files.figures / "bf16" / "loss.svg"));
  CHECK(std::filesystem::exists(files.figures / "z.bf16" / "loss.svg"));
  CHECK(files.summary.find("gap to bf16") != files.summary.npos);
  CHECK(files.summary.find("gap to z.bf16") != files.summary.npos);
  const Json after = ReadJsonFile(folder.Path() / "results.json");
  CHECK(after["analysis"].size() == 2);
  const std::string csv = ReadFile(files.csv);
  const auto per_parameter = [&](const std::string& arm) {
    const std::string front = "\n" + arm + ",1,ok,1280,10,";
    REQUIRE(csv.find(front) != csv.npos);
    return std::stod(csv.substr(csv.find(front) + front.size()));
  };
  CHECK(per_parameter("bf16") == Catch::Approx(2 * per_parameter("z.bf16")).epsilon(1e-12));
}

TEST_CASE("What a run computes is its key; its name and its budgets are not", "[study]") {
  const std::string key = RunKey(InputsOf(TinyStudyJson(), 1, 1));
  CHECK(FolderOf("out", TinyStudyJson(), 1, 1).Path() == "out/runs/" + key.substr(0, 16));
  Json json = TinyStudyJson();
  json["title"] = "another";
  json["budgets"] = {3840};
  CHECK(RunKey(InputsOf(json, 1, 1)) == key);
  CHECK(RunKey(InputsOf(json, 1, 2)) != key);
  CHECK(RunKey(InputsOf(json, 0, 1)) != key);
  for (const char* change :
       {R"({"schedule": {"learning_rate": 0.02}})", R"({"optimizer": {"clip": 2}})",
        R"({"data": {"synthetic_seed": 2}})", R"({"data": {"order_seed": 1}})",
        R"({"evaluation": {"tokens": 1024}})", R"({"model": {"layers": 2}})", R"({"batch": 8})"}) {
    Json changed = TinyStudyJson();
    changed.merge_patch(Json::parse(change));
    INFO(change);
    CHECK(RunKey(InputsOf(changed, 1, 1)) != key);
  }
}

TEST_CASE("Inputs of a cached run that were edited are found", "[study]") {
  const TestFolder folder("inputs");
  RunIn(folder.Path(), TinyStudyJson());
  const Json inputs = InputsOf(TinyStudyJson(), 0, 1);
  const RunFolder run(folder.Path(), inputs);
  Json result = ReadJsonFile(run.Result());
  CHECK(run.ReadResult(inputs));
  result["inputs"]["batch"] = 5;
  WriteFileAtomically(run.Result(), result.dump());
  CHECK_THROWS_AS(run.ReadResult(inputs), Error);
  const Call again = RunIn(folder.Path(), TinyStudyJson());
  CHECK(again.outcome.cached == 3);
  CHECK(again.Said("was changed after fp4lab wrote it; bf16, seed 1 is run again"));
}

TEST_CASE("What killed runs left half-written is swept when the study is run again", "[study]") {
  const TestFolder folder("swept");
  RunIn(folder.Path(), TinyStudyJson());
  const RunFolder run = FolderOf(folder.Path(), TinyStudyJson(), 0, 1);
  const std::filesystem::path stale[] = {run.Checkpoint().string() + ".partial-4711",
                                         run.Result().string() + ".partial-0123456789abcdef",
                                         folder.Path() / "study.json.partial-0123456789abcdef"};
  for (const auto& path : stale) WriteFileAtomically(path, std::string_view("half"));
  RunIn(folder.Path(), TinyStudyJson());
  for (const auto& path : stale) CHECK_FALSE(Exists(path));
}

TEST_CASE("The lock of a process that died after it wrote its result is swept", "[study]") {
  const TestFolder folder("swept-lock");
  RunIn(folder.Path(), TinyStudyJson());
  const RunFolder run = FolderOf(folder.Path(), TinyStudyJson(), 0, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    SharedLock lock;
    ::_exit(lock.Take(run.Path()) ? 1 : 0);  // without the lock's destructor
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(Exists(run.Path() / SharedLock::kFile));
  CHECK(RunIn(folder.Path(), TinyStudyJson()).outcome.cached == 4);
  CHECK_FALSE(run.HasRemains());
}

TEST_CASE("A damaged cache entry is found and made again", "[study]") {
  const TestFolder folder("damaged");
  const Call first = RunIn(folder.Path(), TinyStudyJson());
  const RunFolder run = FolderOf(folder.Path(), TinyStudyJson(), 1, 2);
  std::string text = ReadFile(run.Result());
  const std::size_t digit = text.find("\"loss\":") + 9;
  text[digit] = text[digit] == '1' ? '2' : '1';
  WriteFileAtomically(run.Result(), text);

  const Call from_checkpoint = RunIn(folder.Path(), TinyStudyJson());
  CHECK(
      from_checkpoint.Said("result.json: is damaged, or was changed after fp4lab wrote it; "
                           "nvfp4, seed 2 is run again"));
  CHECK(from_checkpoint.outcome.cached == 3);
  CHECK(from_checkpoint.outcome.steps_made == 0);  // the checkpoint still held all steps
  CHECK(from_checkpoint.results == first.results);

  WriteFileAtomically(run.Result(), std::string_view("{"));
  const std::string bytes = ReadFile(run.Checkpoint());
  WriteFileAtomically(run.Checkpoint(), std::string_view(bytes).substr(0, bytes.size() / 2));
  const Call from_scratch = RunIn(folder.Path(), TinyStudyJson());
  CHECK(
      from_scratch.Said("checkpoint.fp4lab: checkpoint is truncated or damaged: its SHA-256 does "
                        "not match; nvfp4, seed 2 starts from the beginning"));
  CHECK(from_scratch.outcome.steps_made == kStepsOfRun);
  CHECK(from_scratch.results == first.results);
}

TEST_CASE("The checkpoint of an older version is named, and its run starts from the beginning",
          "[study]") {
  const TestFolder folder("older");
  const std::filesystem::path old =
      FolderOf(folder.Path(), TinyStudyJson(), 1, 2).Path() / "checkpoint";
  WriteFileAtomically(old, std::string_view("fp4lab.run/1\n"));
  const Call call = RunIn(folder.Path(), TinyStudyJson());
  CHECK(call.Said(old.string() +
                  ": is of an older fp4lab, which alone reads it, and may be removed; "
                  "nvfp4, seed 2 starts from the beginning"));
  CHECK(call.outcome.steps_made == 4 * kStepsOfRun);
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
  CHECK(RunIn(folder.Path(), json).outcome.steps_made == 0);  // the diverged run is cached, too
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

TEST_CASE("A run that another process trains is left to it, with its files", "[study]") {
  const TestFolder folder("lock"), alone("lock-alone");
  const RunFolder run = FolderOf(folder.Path(), TinyStudyJson(), 0, 1);
  const std::filesystem::path being_written =  // by the process that holds the lock
      run.Checkpoint().string() + ".partial-0123456789abcdef";
  WriteFileAtomically(being_written, std::string_view("half"));
  const Study study = TinyStudy();
  const Corpus corpus = LoadCorpus(study.base.data);
  std::atomic<bool> stop{false};
  std::vector<std::string> notes;
  {
    SharedLock lock;
    REQUIRE_FALSE(lock.Take(run.Path()).has_value());
    // Stops once the other three runs are there and this one alone is waited for.
    const auto stop_late = [&](const Progress& progress) { stop = progress.runs_done == 3; };
    const Outcome outcome = RunStudy(
        study, corpus, {.out_dir = folder.Path(), .jobs = 1, .threads_per_job = 1},
        {.progress = stop_late, .note = [&](const std::string& note) { notes.push_back(note); }},
        stop);
    CHECK(outcome.interrupted);
    CHECK(outcome.missing == std::vector<std::string>{"bf16, seed 1"});
    CHECK(outcome.steps_made == 3 * kStepsOfRun);
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find("bf16, seed 1: is trained by process " + std::to_string(::getpid()) +
                        " on ") == 0);
    CHECK(Exists(being_written));
  }
  CHECK(RunIn(folder.Path(), TinyStudyJson()).results ==
        RunIn(alone.Path(), TinyStudyJson()).results);
  CHECK_FALSE(Exists(being_written));
}

TEST_CASE("Shards part the runs, and only names runs", "[study]") {
  const Study study = TinyStudy();
  const Corpus corpus = LoadCorpus(study.base.data);
  std::map<std::string, int> owners;
  for (int shard = 1; shard <= 3; ++shard) {
    for (const NamedRun& run : RunsOf(study, corpus, {.shard = shard, .shards = 3})) {
      owners[run.key] += run.mine ? shard : 0;
    }
  }
  const auto key = [&](std::size_t arm, std::uint64_t seed) {
    return FolderOf("x", TinyStudyJson(), arm, seed).Path().filename().string();
  };
  CHECK(owners ==
        std::map<std::string, int>{{key(0, 1), 1}, {key(1, 1), 2}, {key(0, 2), 3}, {key(1, 2), 1}});
  const auto only = [&](const std::string& name) {
    std::string mine;
    for (const NamedRun& run : RunsOf(study, corpus, {.only = {name}})) {
      if (run.mine) mine += run.arm + ":" + std::to_string(run.seed) + " ";
    }
    return mine;
  };
  CHECK(only("nvfp4:2") == "nvfp4:2 ");
  CHECK(only(key(0, 2)) == "bf16:2 ");
  CHECK(only(key(0, 2).substr(0, 8)) == "bf16:2 ");
  CHECK(ErrorOf([&] { only("nvfp4:3"); }).find("--only nvfp4:3: names no run of tiny") == 0);
  CHECK(ErrorOf([&] { only(key(0, 2).substr(0, 7)); }).find("names no run") != std::string::npos);
}

TEST_CASE("The shard of a run with twins is that of the first", "[study]") {
  Json json = TinyStudyJson();
  json["arms"]["twin"] = {{"recipe", "te_nvfp4"}};
  const Study study = TinyStudy(json);
  const Corpus corpus = LoadCorpus(study.base.data);
  for (int shard = 1; shard <= 2; ++shard) {
    std::map<std::string, bool> mine;
    for (const NamedRun& run : RunsOf(study, corpus, {.shard = shard, .shards = 2})) {
      const auto [place, is_first] = mine.try_emplace(run.key, run.mine);
      CHECK(place->second == run.mine);
    }
    CHECK(mine.size() == 4);
  }
}

TEST_CASE("Shards in folders of their own are joined to the results of one process", "[study]") {
  const TestFolder whole("join-whole"), one("join-1"), two("join-2"), all("join-all");
  const std::string expected = RunIn(whole.Path(), TinyStudyJson()).results;
  const Study study = TinyStudy();
  const Corpus corpus = LoadCorpus(study.base.data);
  const std::atomic<bool> stop{false};
  const auto train = [&](const TestFolder& folder, int shard) {
    return RunStudy(
        study, corpus,
        {.out_dir = folder.Path(), .threads_per_job = 1, .share = {.shard = shard, .shards = 3}},
        {}, stop);
  };
  const Outcome first = train(one, 1);
  CHECK_FALSE(first.interrupted);
  CHECK(first.missing == std::vector<std::string>{"bf16, seed 2", "nvfp4, seed 1"});
  train(two, 2);
  CHECK(JoinRuns(one.Path(), all.Path()) == 2);
  const std::string none = ErrorOf([&] { Collect(all.Path()); });
  CHECK(none.find("2 of 4 runs are missing: nvfp4, seed 1; bf16, seed 2; no seed is complete") !=
        none.npos);
  CHECK(JoinRuns(two.Path(), all.Path()) == 1);
  CHECK(JoinRuns(two.Path(), all.Path()) == 0);
  const Collected part = Collect(all.Path());
  CHECK(part.study.seeds == std::vector<std::uint64_t>{1});
  CHECK(part.missing == std::vector<std::string>{"bf16, seed 2"});
  CHECK(part.runs == 4);
  train(all, 3);
  const Collected done = Collect(all.Path());
  CHECK(done.missing.empty());
  CHECK(Timeless(ResultsJson(done.study, done.corpus, done.outcome)) == expected);

  // A run with other numbers, and another study.
  const RunFolder run = FolderOf(two.Path(), TinyStudyJson(), 1, 1);
  const Json inputs = InputsOf(TinyStudyJson(), 1, 1);
  RunRecord record = *run.ReadResult(inputs);
  record.points[0].training.loss += 1e-9;
  run.WriteResult(inputs, record);
  CHECK(ErrorOf([&] {
          JoinRuns(two.Path(), all.Path());
        }).find("has other numbers than the same") != std::string::npos);
  std::ofstream(run.Result()) << "{\"inputs\": 1";
  CHECK_FALSE(ErrorOf([&] { JoinRuns(two.Path(), all.Path()); }).empty());
  CHECK(Collect(all.Path()).missing.empty());
  Json other = TinyStudyJson();
  other["seeds"] = {1};
  WriteFileAtomically(two.Path() / "study.json", ToJson(TinyStudy(other)).dump());
  CHECK(ErrorOf([&] { JoinRuns(two.Path(), all.Path()); }).find("is another study than that of") !=
        std::string::npos);
}

TEST_CASE("A folder that cannot be written to is refused before any training", "[study]") {
  const TestFolder folder("unwritable");
  const std::filesystem::path file = folder.Path() / "file";
  std::ofstream(file) << "no folder";
  const std::string error = RunError(file / "out", TinyStudyJson());
  CHECK(error.find((file / "out").string() + ": cannot be written to: ") == 0);
}

TEST_CASE("A corpus too short for the model is refused before any training", "[study]") {
  const TestFolder folder("short");
  Json json = TinyStudyJson();
  json["model"]["sequence"] = 2048;
  json["batch"] = 1;
  json["evaluation"] = {{"tokens", 2048}, {"chunk_tokens", 2048}};
  json["budgets"] = {2048 * 20};
  CHECK(RunError(folder.Path(), json).find("tiny#/data: the validation part") == 0);
  CHECK_FALSE(std::filesystem::exists(folder.Path() / "runs"));
}

}  // namespace
}  // namespace fp4lab::study
