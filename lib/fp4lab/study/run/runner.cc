#include "fp4lab/study/run/runner.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/folder_lock.h"
#include "fp4lab/study/run/record/fingerprint.h"
#include "fp4lab/study/run/record/run_folder.h"
#include "fp4lab/study/run/run.h"
#include "fp4lab/study/run/sitting.h"
#include "fp4lab/study/run/study_start.h"

namespace fp4lab::study {
namespace {

// Files in out_dir of which a killed writer may have left partial files.
constexpr std::string_view kWrittenHere[] = {"study.json", "results.json", "registered.json"};

struct Task {
  std::string label;  // "nvfp4, seed 3"
  TrainConfig config;
  RunPlan plan;
  Json inputs;
  RunFolder folder;
  std::optional<RunRecord> record;  // set when done
  std::optional<std::size_t> twin;  // an earlier task with the same inputs, whose record it takes
};

// Older versions had a format of their own for studies, in a file of another name.
void RefuseOldCheckpoint(const RunFolder& folder) {
  const std::filesystem::path old = folder.Path() / "checkpoint";
  if (!Exists(old)) return;
  throw Error(old.string(), "is of an older fp4lab, which alone reads it, and may be removed");
}

class Runner {
 public:
  Runner(const Study& study, const Corpus& corpus, const RunOptions& options,
         const Observer& observer, const std::atomic<bool>& stop);
  Outcome Execute();

 private:
  void Note(const std::string& line);
  std::optional<RunRecord> Cached(const Task& task);
  void CheckRoom(std::size_t runs) const;
  void Work();  // the thread of one job: trains task after task
  void Train(std::size_t index);
  void Resume(const Task& task, Run* run);
  bool Stopping() const { return stop_ || failed_; }

  const Study& study_;
  const Corpus& corpus_;
  const RunOptions& options_;
  const Observer& observer_;
  const std::atomic<bool>& stop_;
  std::vector<Task> tasks_;
  std::vector<std::string> numerics_;  // fingerprint of each arm
  std::vector<std::size_t> queue_;     // tasks that need training, seed by seed
  int cached_ = 0;
  std::optional<ProgressMeter> meter_;
  const int threads_ = Threads();  // shared by all jobs, unless the options set threads_per_job
  int jobs_ = 1;

  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::atomic<std::int64_t> steps_made_{0};
  std::mutex mutex_;  // guards the members below and the calls of observer_.note
  std::condition_variable changed_;
  std::exception_ptr failure_;
  int ended_ = 0;
};

Runner::Runner(const Study& study, const Corpus& corpus, const RunOptions& options,
               const Observer& observer, const std::atomic<bool>& stop)
    : study_(study), corpus_(corpus), options_(options), observer_(observer), stop_(stop) {
  std::vector<ProgressMeter::RunInfo> infos;
  std::map<std::string, std::size_t> first_of;  // key: the first task with it
  for (const Arm& arm : study.arms) {
    numerics_.push_back(NumericsFingerprint(ConfigOf(study, arm, study.seeds[0]), study.name));
    for (const std::uint64_t seed : study.seeds) {
      const TrainConfig config = ConfigOf(study, arm, seed);
      const Json inputs = RunInputs(config, corpus, numerics_.back());
      tasks_.push_back({.label = arm.name + ", seed " + std::to_string(seed),
                        .config = config,
                        .plan = PlanOf(study, arm),
                        .inputs = inputs,
                        .folder = RunFolder(options.out_dir, inputs),
                        .record = std::nullopt,
                        .twin = std::nullopt});
      Task& task = tasks_.back();
      const auto [first, is_first] = first_of.try_emplace(RunKey(inputs), tasks_.size() - 1);
      if (is_first) {
        task.folder.Sweep();
        task.record = Cached(task);
        cached_ += task.record ? 1 : 0;
      } else {
        task.twin = first->second;
      }
      infos.push_back({arm.name, seed, task.plan.TotalSteps(), !is_first || task.record});
    }
  }
  const std::size_t seeds = study.seeds.size();
  // Seed by seed, so that an interrupted study has all arms of the seeds it finished.
  for (std::size_t s = 0; s < seeds; ++s) {
    for (std::size_t a = 0; a < study.arms.size(); ++a) {
      const Task& task = tasks_[a * seeds + s];
      if (!task.record && !task.twin) queue_.push_back(a * seeds + s);
    }
  }
  jobs_ = JobsOf(study, options.jobs, queue_.size());
  meter_.emplace(std::move(infos), TokensPerStep(study.base), jobs_);
  CheckRoom(queue_.size());
}

void Runner::Note(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (observer_.note) observer_.note(line);
}

std::optional<RunRecord> Runner::Cached(const Task& task) {
  try {
    std::optional<RunRecord> record = task.folder.ReadResult(task.inputs);
    if (!record || !record->Completes(task.plan)) return std::nullopt;
    Note(task.label + ": cached");
    return record;
  } catch (const Error& e) {
    Note(std::string(e.what()) + "; " + task.label + " is run again");
    return std::nullopt;
  }
}

// Throws Error, before any training, if the corpus does not fit the model, if memory does not hold
// all jobs, or if the disk does not hold the files of `runs` runs.
void Runner::CheckRoom(std::size_t runs) const {
  if (runs == 0) return;
  std::vector<TrainConfig> configs;
  for (const std::size_t i : queue_) configs.push_back(tasks_[i].config);
  std::uintmax_t run_bytes = 0;
  CheckMachine(study_.name, configs, corpus_, jobs_, &run_bytes);
  std::error_code status;
  const auto space = std::filesystem::space(options_.out_dir, status);
  if (!status && space.available < runs * run_bytes) {
    throw Error(options_.out_dir.string(), "the disk has " + std::to_string(space.available >> 20) +
                                               " MiB left and " + std::to_string(runs) +
                                               " runs may need " +
                                               std::to_string((runs * run_bytes) >> 20));
  }
}

void Runner::Resume(const Task& task, Run* run) {
  try {
    const auto content = task.folder.OpenCheckpoint();
    if (!content) return RefuseOldCheckpoint(task.folder);
    run->Load(content->bytes(), task.folder.Checkpoint().string());
    const std::int64_t done = run->StepsOfPlan() - run->StepsLeft();
    Note(task.label + ": continues at step " + std::to_string(done) + " of " +
         std::to_string(run->StepsOfPlan()));
  } catch (const Error& e) {
    Note(std::string(e.what()) + "; " + task.label + " starts from the beginning");
    *run = Run(task.config, corpus_, task.plan, study_.name);
  }
}

void Runner::Train(std::size_t index) {
  Task& task = tasks_[index];
  SetThreads(options_.threads_per_job > 0 ? options_.threads_per_job : threads_ / jobs_);
  Run run(task.config, corpus_, task.plan, study_.name);
  Resume(task, &run);
  std::int64_t steps = run.Record().steps_made;
  const auto advanced = [&](double seconds) {
    run.AddSeconds(seconds);
    const std::int64_t made = run.Record().steps_made - steps;
    steps += made;
    steps_made_ += made;
    meter_->Update(index, made, seconds, run.StepsLeft(), run.LastLoss());
  };
  Sit({.done = [&] { return run.Done(); },
       .advance = [&] { run.Advance(); },
       .advanced = advanced,
       .stops = [&] { return Stopping(); },
       .saves = [&](double seconds) { return seconds >= options_.checkpoint_seconds; },
       .save = [&] { task.folder.SaveCheckpoint([&](const ByteSink& sink) { run.Save(sink); }); }});
  if (!run.Done()) return;
  task.folder.WriteResult(task.inputs, run.Record());
  task.record = run.Record();
  if (const auto& d = task.record->diverged; d && task.record->DivergedIn(task.plan)) {
    Note(task.label + ": diverged at step " + std::to_string(d->step) + ", first in " + d->tensor);
  }
}

void Runner::Work() {
  const IeeeArithmetic ieee;  // for the whole thread
  try {
    for (std::size_t i = next_++; i < queue_.size() && !Stopping(); i = next_++) {
      meter_->Begin(queue_[i]);
      Train(queue_[i]);
      meter_->End(queue_[i], tasks_[queue_[i]].record.has_value());
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    failed_ = true;
  }
  const std::lock_guard lock(mutex_);
  ++ended_;
  changed_.notify_all();
}

Outcome Runner::Execute() {
  Outcome outcome;
  outcome.cached = cached_;
  if (!queue_.empty()) {
    std::vector<std::thread> workers;
    for (int i = 0; i < jobs_; ++i) workers.emplace_back([this] { Work(); });
    std::unique_lock lock(mutex_);
    while (ended_ < jobs_) {
      changed_.wait_for(lock, std::chrono::milliseconds(500));
      if (observer_.progress) observer_.progress(meter_->Now());
    }
    lock.unlock();
    for (std::thread& worker : workers) worker.join();
  }
  if (failure_) std::rethrow_exception(failure_);
  outcome.steps_made = steps_made_;
  outcome.numerics = numerics_;
  for (Task& task : tasks_) {
    if (task.twin) task.record = tasks_[*task.twin].record;
    outcome.interrupted |= !task.record.has_value();
    outcome.records.push_back(task.record.value_or(RunRecord{}));
  }
  return outcome;
}

// Whether a run of the folder is complete.
bool HasResult(const std::filesystem::path& out_dir) {
  std::error_code status;
  for (const auto& run : std::filesystem::directory_iterator(out_dir / "runs", status)) {
    if (std::filesystem::exists(run.path() / "result.json")) return true;
  }
  return false;
}

// registered.json holds the analysis that the study had before its first run was complete. Returns
// whether the analysis is another one now; a larger budget alone is none. A folder of an older
// version has no such file, so its analysis is registered late, as it is.
bool IsExploratory(const Study& study, const std::filesystem::path& out_dir) {
  const std::filesystem::path path = out_dir / "registered.json";
  Json now = ToJson(study).at("analysis");
  if (study.analysis.primary_tokens == study.budgets.back()) now["primary_tokens"] = "largest";
  const bool registered = std::filesystem::exists(path) && HasResult(out_dir);
  if (!registered) {
    WriteFileAtomically(path, now.dump(2) + "\n");
    return false;
  }
  return ReadJsonFile(path) != now;
}

}  // namespace

Outcome RunStudy(const Study& study, const Corpus& corpus, const RunOptions& options,
                 const Observer& observer, const std::atomic<bool>& stop) {
  const IeeeArithmetic ieee;
  const FolderLock lock(options.out_dir);
  RemovePartialFiles(options.out_dir, kWrittenHere);
  WriteFileAtomically(options.out_dir / "study.json", ToJson(study).dump(2) + "\n");
  const bool exploratory = IsExploratory(study, options.out_dir);
  Outcome outcome = Runner(study, corpus, options, observer, stop).Execute();
  outcome.exploratory = exploratory;
  return outcome;
}

}  // namespace fp4lab::study
