#include "fp4lab/study/run/watch.h"

#include <algorithm>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/tables/text_table.h"
#include "fp4lab/study/run/record/fingerprint.h"
#include "fp4lab/study/run/record/run_folder.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/corpus_fit.h"

namespace fp4lab::study {
namespace {

using State = WatchedRun::State;

// The time at which a file was written; nullopt where there is none.
std::optional<std::filesystem::file_time_type> TimeOf(const std::filesystem::path& path) {
  std::error_code status;
  const auto time = std::filesystem::last_write_time(path, status);
  if (status) return std::nullopt;
  return time;
}

std::vector<std::string> FoldersOf(const std::filesystem::path& runs) {
  std::vector<std::string> names;
  std::error_code status;
  for (const auto& entry : std::filesystem::directory_iterator(runs, status)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void Describe(const RunRecord& record, WatchedRun* run) {
  run->points = record.points.size();
  run->steps = record.steps_made;
  if (!record.losses.empty()) run->trunk_loss = record.losses.back();
}

void DescribeCheckpoint(const RunFolder& folder, WatchedRun* run) {
  const std::string path = folder.Checkpoint().string();
  const auto time = TimeOf(path);
  if (!time) return;
  try {
    const std::unique_ptr<FileContent> content = folder.OpenCheckpoint();
    if (content == nullptr) return;
    const CheckpointHeader header = ReadCheckpointHeader(content->bytes(), path);
    JsonObject kept(header.run, path);
    const Json* record = kept.Member("record");
    if (record == nullptr) return;
    Describe(ReadRunRecord(*record, path), run);
  } catch (const Error&) {
    return;
  }
  run->state = State::kCheckpoint;
  run->age = std::chrono::duration_cast<std::chrono::seconds>(
      std::filesystem::file_time_type::clock::now() - *time);
}

std::string StateText(const WatchedRun& run) {
  switch (run.state) {
    case State::kWaiting:
      return "no checkpoint yet";
    case State::kCheckpoint:
      return "checkpoint " + std::to_string(run.age.count()) + " s ago";
    case State::kDone:
      return "done";
    case State::kDiverged:
      return "diverged";
  }
  return "";
}

bool IsComplete(const WatchedRun& run) {
  return run.state == State::kDone || run.state == State::kDiverged;
}

}  // namespace

StudyWatch::StudyWatch(const std::filesystem::path& folder) : folder_(folder) {
  const IeeeArithmetic ieee;
  if (!Exists(folder / "study.json")) {
    throw Error(folder.string(),
                "has no study.json, which `fp4lab study run` writes at its start; name the folder "
                "of a study, as out/NAME");
  }
  study_ = ReadStudy(folder / "study.json");
}

void StudyWatch::ReadResults() {
  for (const std::string& name : FoldersOf(folder_ / "runs")) {
    const std::filesystem::path path = RunFolder(folder_ / "runs" / name).Result();
    const auto time = TimeOf(path);
    if (!time) {
      seen_.erase(name);
      continue;
    }
    if (const auto known = seen_.find(name); known != seen_.end() && known->second.time == *time) {
      continue;
    }
    try {
      const Json json = ReadJsonFile(path);
      seen_[name] = {*time, json.at("inputs"), ReadRunRecord(json.at("record"), path.string())};
    } catch (const std::exception&) {  // damaged: the study makes it again
      seen_.erase(name);
    }
  }
}

void StudyWatch::FindNumerics() {
  for (const auto& [name, seen] : seen_) {
    try {
      const Json& corpus = seen.inputs.at("corpus");
      const Corpus here{.name = "",
                        .vocabulary = WholeNumber<int>(corpus.at("vocabulary"), name),
                        .train_sha256 = corpus.at("train_sha256").get<std::string>(),
                        .validation_sha256 = corpus.at("validation_sha256").get<std::string>()};
      const std::string numerics = seen.inputs.at("numerics").get<std::string>();
      for (const Arm& arm : study_.arms) {
        const TrainConfig config =
            ConfigOf(study_, arm, WholeNumber<std::uint64_t>(seen.inputs.at("seed"), name));
        if (RunInputs(config, here, numerics) != seen.inputs) continue;
        numerics_[arm.name] = numerics;
        corpus_ = here;
      }
    } catch (const std::exception&) {
      continue;
    }
  }
  if (study_.base.device != Device::kCpu) return;
  for (const Arm& arm : study_.arms) {
    if (numerics_.contains(arm.name)) continue;
    numerics_[arm.name] = NumericsFingerprint(ConfigOf(study_, arm, study_.seeds[0]), study_.name);
  }
  if (!corpus_) {
    Corpus corpus = LoadCorpusFor(study_.base);
    corpus.train = corpus.validation = {};
    for (ValidationPart& text : corpus.texts) text.tokens = {};
    corpus_ = std::move(corpus);
  }
}

WatchedRun StudyWatch::LookAt(std::size_t arm, std::uint64_t seed) const {
  const IeeeArithmetic ieee;
  const Arm& a = study_.arms[arm];
  const RunPlan plan = PlanOf(study_, a);
  WatchedRun run{.arm = a.name,
                 .seed = seed,
                 .budgets = plan.branches.size(),
                 .total_steps = plan.TotalSteps()};
  const auto numerics = numerics_.find(a.name);
  if (!corpus_ || numerics == numerics_.end()) return run;
  const RunFolder folder(folder_, RunInputs(ConfigOf(study_, a, seed), *corpus_, numerics->second));
  run.key = folder.Path().filename().string();
  if (const auto seen = seen_.find(run.key);
      seen != seen_.end() && seen->second.record.Completes(plan)) {
    const RunRecord& record = seen->second.record;
    Describe(record, &run);
    run.state = record.DivergedIn(plan) ? State::kDiverged : State::kDone;
  } else {
    DescribeCheckpoint(folder, &run);
  }
  // A study with other budgets may have left more points and steps in the folder.
  run.points = std::min(run.points, run.budgets);
  run.steps = std::min(run.steps, run.total_steps);
  return run;
}

std::vector<WatchedRun> StudyWatch::Look() {
  const IeeeArithmetic ieee;
  ReadResults();
  FindNumerics();
  std::vector<WatchedRun> runs;
  std::set<std::string> known;
  for (std::size_t arm = 0; arm < study_.arms.size(); ++arm) {
    for (const std::uint64_t seed : study_.seeds) {
      runs.push_back(LookAt(arm, seed));
      known.insert(runs.back().key);
    }
  }
  // Folders of complete runs that are not the study's are of earlier versions of it.
  for (const std::string& name : FoldersOf(folder_ / "runs")) {
    if (known.contains(name) || seen_.contains(name)) continue;
    WatchedRun run{.arm = "", .key = name};
    DescribeCheckpoint(RunFolder(folder_ / "runs" / name), &run);
    if (run.state == State::kCheckpoint) runs.push_back(std::move(run));
  }
  return runs;
}

std::string WatchText(const std::vector<WatchedRun>& runs) {
  const IeeeArithmetic ieee;
  TextRows rows = {{"arm", "seed", "points", "trunk loss", "steps", "state"}};
  std::size_t own = 0, complete = 0;
  std::int64_t steps = 0, total = 0;
  bool nameless = false;
  for (const WatchedRun& run : runs) {
    const std::string loss = run.trunk_loss ? Fixed(*run.trunk_loss, 4) : "-";
    if (run.arm.empty()) {
      nameless = true;
      rows.push_back({"runs/" + run.key, "?", std::to_string(run.points), loss,
                      std::to_string(run.steps), StateText(run)});
      continue;
    }
    ++own;
    complete += IsComplete(run) ? 1 : 0;
    const std::int64_t made = IsComplete(run) ? run.total_steps : run.steps;
    steps += made;
    total += run.total_steps;
    rows.push_back({run.arm, std::to_string(run.seed),
                    std::to_string(run.points) + "/" + std::to_string(run.budgets), loss,
                    std::to_string(run.steps) + "/" + std::to_string(run.total_steps),
                    StateText(run)});
  }
  std::string text = AlignedText(rows);
  if (nameless) {
    text +=
        "  runs/KEY: of an arm whose first run is not complete, or of an earlier version of the "
        "study\n";
  }
  const double share =
      total > 0 ? 100 * static_cast<double>(steps) / static_cast<double>(total) : 0;
  return text + std::to_string(complete) + " of " + CountText(own, "run") + " complete, about " +
         Fixed(share, 0) + " % of the steps\n";
}

bool AllComplete(const std::vector<WatchedRun>& runs) {
  return std::all_of(runs.begin(), runs.end(),
                     [](const WatchedRun& run) { return run.arm.empty() || IsComplete(run); });
}

}  // namespace fp4lab::study
