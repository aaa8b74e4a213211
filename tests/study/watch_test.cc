#include "fp4lab/study/run/watch.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/study/run/runner.h"
#include "fp4lab/train/checkpoint.h"
#include "tests/study/support/tiny_study.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/program.h"

namespace fp4lab::study {
namespace {

using Catch::Matchers::ContainsSubstring;
using State = WatchedRun::State;

constexpr std::int64_t kStepsOfRun = 16 + 2 + 4;

void RunIn(const std::filesystem::path& folder) {
  const Study study = TinyStudy();
  const std::atomic<bool> stop{false};
  RunStudy(study, LoadCorpus(study.base.data), {.out_dir = folder, .jobs = 1, .threads_per_job = 1},
           {}, stop);
}

// Every file below `folder`, with its content.
std::vector<std::string> Files(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files.push_back(entry.path().string() + ReadFile(entry.path()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The checkpoint of a run on its trunk.
std::vector<std::byte> OnTrunk(const RunRecord& record) {
  const std::vector<float> numbers(250);
  const std::span<const float> payload[] = {numbers};
  return WriteCheckpoint(
      {Json::object(), record.steps_made, {{"record", ToJson(record)}, {"branch", {0, 0, 0}}}},
      payload);
}

TEST_CASE("A watch tells waiting runs, checkpoints and complete runs apart", "[study]") {
  const TestFolder folder("watch");
  WriteFileAtomically(folder.Path() / "study.json", ToJson(TinyStudy()).dump());
  const std::vector<WatchedRun> before = StudyWatch(folder.Path()).Look();
  REQUIRE(before.size() == 4);
  for (const WatchedRun& run : before) {
    CHECK(run.state == State::kWaiting);
    CHECK(run.budgets == 2);
    CHECK(run.total_steps == kStepsOfRun);
    CHECK_FALSE(run.trunk_loss.has_value());
  }
  CHECK_FALSE(AllComplete(before));
  CHECK_THAT(WatchText(before), ContainsSubstring("0 of 4 runs complete, about 0 % of the steps"));

  RunIn(folder.Path());
  StudyWatch watch(folder.Path());
  const std::vector<std::string> files = Files(folder.Path());
  const std::vector<WatchedRun> after = watch.Look();
  CHECK(Files(folder.Path()) == files);
  CHECK(AllComplete(after));
  CHECK(after[3].arm == "nvfp4");
  CHECK(after[3].seed == 2);
  CHECK(after[3].points == 2);
  CHECK(after[3].steps == kStepsOfRun);
  CHECK(*after[3].trunk_loss > 0);
  CHECK_THAT(WatchText(after), ContainsSubstring("4 of 4 runs complete, about 100 % of the steps"));

  // A run halfway: its checkpoint instead of its result.
  const std::filesystem::path run = folder.Path() / "runs" / after[3].key;
  RunRecord record;
  record.losses = {5.5, 5.25};
  record.steps_made = 2;
  WriteFileAtomically(run / "checkpoint.fp4lab", OnTrunk(record));
  std::filesystem::remove(run / "result.json");
  const std::vector<WatchedRun> halfway = watch.Look();
  CHECK(halfway[3].state == State::kCheckpoint);
  CHECK(halfway[3].steps == 2);
  CHECK(*halfway[3].trunk_loss == 5.25);
  CHECK(halfway[3].age.count() < 600);
  CHECK_THAT(WatchText(halfway), ContainsSubstring("nvfp4      2      0/2       5.2500    2/22"));
  CHECK_THAT(WatchText(halfway), ContainsSubstring("3 of 4 runs complete, about 77 % of"));

  // Damaged files count as not there; a checkpoint of no run of the study has no arm.
  WriteFileAtomically(run / "checkpoint.fp4lab", "fp4labck and no more");
  CHECK(watch.Look()[3].state == State::kWaiting);
  WriteFileAtomically(folder.Path() / "runs/0123456789abcdef/checkpoint.fp4lab", OnTrunk(record));
  const std::vector<WatchedRun> foreign = watch.Look();
  REQUIRE(foreign.size() == 5);
  CHECK(foreign[4].arm.empty());
  CHECK_THAT(WatchText(foreign), ContainsSubstring("runs/0123456789abcdef"));
}

TEST_CASE("fp4lab study watch prints the table, and a report into a folder of its own", "[study]") {
  const TestFolder folder("watch-command");
  const std::string place = folder.Path().string();
  const ProcessResult none = RunProgram({"study", "watch", place});
  CHECK(none.exit_code == 1);
  CHECK(IsOneLine(none.error));
  CHECK_THAT(none.error, ContainsSubstring("has no study.json"));
  WriteFileAtomically(folder.Path() / "study.json", ToJson(TinyStudy()).dump());
  const ProcessResult once = RunProgram({"study", "watch", place, "--once"});
  CHECK(once.exit_code == 0);
  CHECK_THAT(once.output, ContainsSubstring("0 of 4 runs complete"));
  const ProcessResult same = RunProgram({"study", "watch", place, "--report", place});
  CHECK(same.exit_code == 1);
  CHECK_THAT(same.error, ContainsSubstring("give --report another one"));
  WriteFileAtomically(folder.Path() / "results.json",
                      ReadFile(std::string(std::getenv("FP4LAB_SOURCE_DIR")) +
                               "/tests/study/support/synthetic_results.json"));
  const std::string report = (folder.Path() / "page").string();
  const ProcessResult made = RunProgram({"study", "watch", place, "--once", "--report", report});
  CHECK(made.exit_code == 0);
  CHECK_THAT(made.output, ContainsSubstring("report: " + report + "/report.html"));
  CHECK(std::filesystem::exists(folder.Path() / "page/report.html"));
  CHECK_FALSE(std::filesystem::exists(folder.Path() / "report.html"));
}

}  // namespace
}  // namespace fp4lab::study
