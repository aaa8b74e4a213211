#include "fp4lab/study/run/run.h"

#include <cmath>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/checkpoint.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab::study {
namespace {

struct Fixture {
  Fixture() { SetThreads(1); }  // a busy machine makes small parallel loops slow

  Study study = TinyStudy();
  Corpus corpus = LoadCorpus(study.base.data);

  Run NewRun(std::size_t arm, std::vector<std::int64_t> budgets) {
    study.budgets = std::move(budgets);
    return Run(ConfigOf(study, study.arms[arm], 1), corpus, PlanOf(study, study.arms[arm]), "tiny");
  }
  Trainer NewTrainer() { return Trainer(ConfigOf(study, study.arms[0], 1), corpus); }
};

std::vector<std::byte> Saved(const Run& run) {
  std::vector<std::byte> bytes;
  run.Save([&](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  });
  return bytes;
}

RunRecord Finish(Run& run) {
  while (!run.Done()) run.Advance();
  return run.Record();
}

// The record without the fields that depend on how the run was cut into pieces.
std::string Content(const RunRecord& record) {
  Json json = ToJson(record);
  json.erase("seconds");
  json.erase("steps_made");
  return json.dump();
}

TEST_CASE("A branch is bit for bit the run that its schedule makes from scratch", "[study]") {
  Fixture f;
  const std::size_t arm = GENERATE(0, 1);
  Run run = f.NewRun(arm, {1280, 2560, 3840});
  const RunRecord record = Finish(run);
  REQUIRE(record.points.size() == 3);
  for (const BranchPoint& point : record.points) {
    const TrainConfig config = ConfigOf(f.study, f.study.arms[arm], 1);
    Trainer trainer(config, f.corpus);
    const std::int64_t total = point.branch.tokens / TokensPerStep(config);
    while (trainer.Steps() < total) {
      trainer.Step(LearningRate(config.schedule, trainer.Steps(), total));
    }
    const Evaluation training = trainer.Evaluate(EvaluationPrecision::kTraining);
    CHECK(training.loss == point.training.loss);
    CHECK(training.chunk_losses == point.training.chunk_losses);
    CHECK(training.chunk_losses.size() == 4);
    CHECK(trainer.Evaluate(EvaluationPrecision::kHigh).loss == point.high.loss);
  }
}

TEST_CASE("One nudged gain spreads into other weights, and by one ulp of BF16 into the losses",
          "[study]") {
  Fixture f;
  const std::size_t arm = GENERATE(0, 1);
  const int ulps = GENERATE(1, 65536);
  TrainConfig config = ConfigOf(f.study, f.study.arms[arm], 1);
  Trainer twin(config, f.corpus);
  config.nudge_ulps = ulps;
  Trainer nudged(config, f.corpus);
  const auto differing = [&] {
    const std::vector<float> a = ReadCheckpoint(twin.SaveState(), "twin").payload;
    const std::vector<float> b = ReadCheckpoint(nudged.SaveState(), "nudged").payload;
    std::size_t count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
    return count;
  };
  CHECK(differing() == 1);
  double loss = 0, nudged_loss = 0;
  for (int step = 0; step < 8; ++step) {
    loss = twin.Step(0.01).loss;
    nudged_loss = nudged.Step(0.01).loss;
    CHECK(differing() > 10);
  }
  CHECK(std::abs(loss - nudged_loss) < 0.05);
  if (ulps == 65536) CHECK(loss != nudged_loss);
}

TEST_CASE("A run that is stopped and loaded at every step ends with the same record", "[study]") {
  Fixture f;
  const std::size_t arm = GENERATE(0, 1);
  Run whole = f.NewRun(arm, {1280, 2560});
  const std::string expected = Content(Finish(whole));
  Run run = f.NewRun(arm, {1280, 2560});
  int pieces = 0;
  while (!run.Done()) {
    run.Advance();
    const std::vector<std::byte> bytes = Saved(run);
    const std::int64_t left = run.StepsLeft();
    run = f.NewRun(arm, {1280, 2560});
    run.Load(bytes, "checkpoint");
    CHECK(run.StepsLeft() == left);
    ++pieces;
  }
  CHECK(pieces == 16 + 2 + 4 + 4);  // trunk and branch steps; entering and finishing two branches
  CHECK(run.Record().steps_made == 22);
  CHECK(Content(run.Record()) == expected);
}

TEST_CASE("A longer study goes on from the trunk of a shorter one", "[study]") {
  Fixture f;
  Run whole = f.NewRun(1, {1280, 2560, 3840});
  const std::string expected = Content(Finish(whole));
  Run first = f.NewRun(1, {1280, 2560});
  Finish(first);
  Run second = f.NewRun(1, {1280, 2560, 3840});
  second.Load(Saved(first), "checkpoint");
  CHECK_FALSE(second.Done());
  const std::int64_t before = second.Record().steps_made;
  CHECK(second.StepsLeft() == 14);
  Finish(second);
  CHECK(second.Record().steps_made - before == (24 - 16) + 6);  // no step is made twice
  CHECK(Content(second.Record()) == expected);
}

TEST_CASE("A budget before the saved place goes over the trunk again, to the same record",
          "[study]") {
  Fixture f;
  Run whole = f.NewRun(1, {640, 2560});
  const RunRecord expected = Finish(whole);
  Run first = f.NewRun(1, {2560});
  Finish(first);
  Run second = f.NewRun(1, {640, 2560});
  second.Load(Saved(first), "checkpoint");
  CHECK(second.StepsLeft() == 4 + 1);
  Finish(second);
  CHECK(second.Record().PointOf({640, 4, 5})->training.loss ==
        expected.PointOf({640, 4, 5})->training.loss);
  CHECK(second.Record().losses == expected.losses);
}

TEST_CASE("A branch that the new plan lacks is given up for the trunk", "[study]") {
  Fixture f;
  Run whole = f.NewRun(0, {3840});
  const std::string expected = ToJson(Finish(whole))["points"].dump();
  Run first = f.NewRun(0, {2560});
  for (int i = 0; i < 16 + 1 + 2; ++i) first.Advance();  // two steps into the branch
  Run second = f.NewRun(0, {3840});
  second.Load(Saved(first), "checkpoint");
  CHECK(ToJson(Finish(second))["points"].dump() == expected);
}

TEST_CASE("A run that leaves the finite numbers says where and is done", "[study]") {
  Fixture f;
  f.study.arms[0].schedule.learning_rate = 1e30;
  Run run = f.NewRun(0, {1280, 2560});
  const RunRecord record = Finish(run);
  REQUIRE(record.diverged);
  CHECK(record.diverged->step >= 1);
  CHECK(record.diverged->step < 16);
  CHECK_FALSE(record.diverged->tensor.empty());
  CHECK(record.DivergedIn(PlanOf(f.study, f.study.arms[0])));
  CHECK(record.points.empty());
  CHECK(run.StepsLeft() == 0);
}

TEST_CASE("A record comes back from JSON with every bit", "[study]") {
  Fixture f;
  Run run = f.NewRun(1, {1280});
  const RunRecord record = Finish(run);
  const Json json = Json::parse(ToJson(record).dump());
  CHECK(ToJson(ReadRunRecord(json, "record")) == ToJson(record));
  CHECK_FALSE(json.contains("processors"));  // all CPUs give the same numbers
  RunRecord moved = record;
  moved.processors = {"NVIDIA H200, cuBLASLt 13.1.0", "NVIDIA H100, cuBLASLt 13.1.0"};
  CHECK(ReadRunRecord(ToJson(moved), "record").processors == moved.processors);
  CHECK_FALSE(record.trunk_points[0].tensors.empty());
  CHECK_THROWS_AS(ReadRunRecord(Json::object(), "record"), Error);
  Json damaged = json;
  damaged["points"][0]["training"]["tokens"] = 1.2e28;  // beyond 64 bits
  CHECK_THROWS_WITH(ReadRunRecord(damaged, "record"),
                    "record#/points/0/training/tokens: must be a whole number, not 1.2e+28");
}

TEST_CASE("Only a checkpoint from inside a branch holds the trunk's numbers", "[study]") {
  Fixture f;
  Run run = f.NewRun(0, {1280});
  run.Advance();
  const std::size_t numbers = 4 * f.NewTrainer().Numbers().size(), on_trunk = Saved(run).size();
  CHECK(on_trunk > numbers);
  CHECK(on_trunk < numbers + (std::size_t{1} << 14));
  for (int i = 1; i < 8 + 1 + 1; ++i) run.Advance();  // one step into the branch
  const std::size_t in_branch = Saved(run).size();
  CHECK(in_branch > 2 * numbers);
  CHECK(in_branch < 2 * numbers + (std::size_t{1} << 14));
  Finish(run);
  CHECK(Saved(run).size() < 2 * numbers);
}

TEST_CASE("A checkpoint that is cut short, changed or of no study is refused", "[study]") {
  Fixture f;
  Run run = f.NewRun(0, {1280});
  for (int i = 0; i < 8 + 1 + 1; ++i) run.Advance();
  const std::vector<std::byte> bytes = Saved(run);
  const auto refusal = [&](const std::vector<std::byte>& damaged) {
    Run other = f.NewRun(0, {1280});
    return ErrorOf([&] { other.Load(damaged, "c"); });
  };
  const std::size_t step = bytes.size() / 50;
  for (std::size_t i = 0; i < bytes.size(); i += step) {
    CAPTURE(i);
    std::vector<std::byte> changed = bytes;
    changed[i] ^= std::byte{1};
    CHECK(refusal(changed).find("c: ") == 0);
    CHECK(refusal({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(i)}).find("c: ") ==
          0);
  }
  CHECK(refusal(f.NewTrainer().SaveState()) ==
        "c: is a checkpoint of fp4lab train, not of a study");
}

TEST_CASE("A run refuses the checkpoint of another seed", "[study]") {
  Fixture f;
  Run run = f.NewRun(0, {1280});
  run.Advance();
  Run other(ConfigOf(f.study, f.study.arms[0], 2), f.corpus, PlanOf(f.study, f.study.arms[0]),
            "tiny");
  CHECK_THROWS_AS(other.Load(Saved(run), "checkpoint"), Error);
}

}  // namespace
}  // namespace fp4lab::study
