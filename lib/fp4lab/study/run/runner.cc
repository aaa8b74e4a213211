#include "fp4lab/study/run/runner.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <deque>
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
#include "fp4lab/io/shared_lock.h"
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
  bool mine = true;                 // of the share that this process trains
  bool was_held = false;            // by another process, which was noted
};

// A task that waits for its training.
struct Waiting {
  std::size_t index = 0;
  std::chrono::steady_clock::time_point from{};  // not to be tried before
};

// The time between two looks at a run that another process trains.
constexpr std::chrono::seconds kLookEvery{1};
constexpr std::size_t kLeastKeyDigits = 8;

// Older versions had a format of their own for studies, in a file of another name.
void RefuseOldCheckpoint(const RunFolder& folder) {
  const std::filesystem::path old = folder.Path() / "checkpoint";
  if (!Exists(old)) return;
  throw Error(old.string(), "is of an older fp4lab, which alone reads it, and may be removed");
}

// Whether `name` of --only names the run.
bool Names(const std::string& name, const NamedRun& run) {
  if (name == run.arm + ":" + std::to_string(run.seed)) return true;
  return name.size() >= kLeastKeyDigits && run.key.starts_with(name.substr(0, run.key.size()));
}

// RunsOf, which also returns the fingerprint of each arm.
std::vector<NamedRun> RunsOf(const Study& study, const Corpus& corpus, const Share& share,
                             std::vector<std::string>* numerics) {
  std::vector<NamedRun> runs;
  for (const Arm& arm : study.arms) {
    numerics->push_back(NumericsFingerprint(ConfigOf(study, arm, study.seeds[0]), study.name));
  }
  std::map<std::string, std::size_t> first_of;  // key: the first run with it
  for (const std::uint64_t seed : study.seeds) {
    for (std::size_t a = 0; a < study.arms.size(); ++a) {
      const Arm& arm = study.arms[a];
      const Json inputs = RunInputs(ConfigOf(study, arm, seed), corpus, (*numerics)[a]);
      const std::string key = RunFolder({}, inputs).Path().filename().string();
      const std::size_t first = first_of.try_emplace(key, runs.size()).first->second;
      const bool of_shard = static_cast<int>(first % share.shards) == share.shard - 1;
      runs.push_back({arm.name, seed, key, of_shard && share.only.empty()});
    }
  }
  const auto shard = static_cast<std::size_t>(share.shard - 1);
  for (const std::string& name : share.only) {
    bool known = false;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (!Names(name, runs[i])) continue;
      known = true;
      // A twin is trained as the first of its key.
      const std::size_t first = first_of.at(runs[i].key);
      runs[first].mine = first % share.shards == shard;
    }
    if (known) continue;
    throw Error("--only " + name,
                "names no run of " + study.name +
                    "; give ARM:SEED or a KEY, as `fp4lab study runs` prints them");
  }
  for (NamedRun& run : runs) run.mine = runs[first_of.at(run.key)].mine;
  return runs;
}

class Runner {
 public:
  Runner(const Study& study, const Corpus& corpus, const RunOptions& options,
         const Observer& observer, const std::atomic<bool>& stop);
  Outcome Execute();

 private:
  void Note(const std::string& line);
  std::optional<RunRecord> Cached(const Task& task);
  void SweepRemains(const Task& task) const;
  bool IsCompleteByNow(std::size_t index);
  void CheckRoom(std::size_t runs) const;
  void Work();  // the thread of one job: trains task after task
  std::optional<std::size_t> Next();
  void Train(std::size_t index);
  void TrainHeld(std::size_t index, const SharedLock& lock);
  void LeaveToHolder(std::size_t index, const LockHolder& holder);
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
  std::atomic<int> cached_{0};
  std::optional<ProgressMeter> meter_;
  const int threads_ = Threads();  // shared by all jobs, unless the options set threads_per_job
  int jobs_ = 1;

  std::atomic<bool> failed_{false};
  std::atomic<std::int64_t> steps_made_{0};
  std::mutex mutex_;  // guards the members below and the calls of observer_.note
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;  // by rising time
  std::exception_ptr failure_;
  int ended_ = 0;
};

Runner::Runner(const Study& study, const Corpus& corpus, const RunOptions& options,
               const Observer& observer, const std::atomic<bool>& stop)
    : study_(study), corpus_(corpus), options_(options), observer_(observer), stop_(stop) {
  std::vector<ProgressMeter::RunInfo> infos;
  std::map<std::string, std::size_t> first_of;  // key: the first task with it
  const std::vector<NamedRun> runs = RunsOf(study, corpus, options.share, &numerics_);
  for (std::size_t a = 0; a < study.arms.size(); ++a) {
    const Arm& arm = study.arms[a];
    for (std::size_t s = 0; s < study.seeds.size(); ++s) {
      const std::uint64_t seed = study.seeds[s];
      const TrainConfig config = ConfigOf(study, arm, seed);
      const Json inputs = RunInputs(config, corpus, numerics_[a]);
      tasks_.push_back({.label = arm.name + ", seed " + std::to_string(seed),
                        .config = config,
                        .plan = PlanOf(study, arm),
                        .inputs = inputs,
                        .folder = RunFolder(options.out_dir, inputs),
                        .record = std::nullopt,
                        .twin = std::nullopt,
                        .mine = runs[s * study.arms.size() + a].mine});
      Task& task = tasks_.back();
      const auto [first, is_first] = first_of.try_emplace(RunKey(inputs), tasks_.size() - 1);
      if (is_first) {
        task.record = Cached(task);
        cached_ += task.record ? 1 : 0;
      } else {
        task.twin = first->second;
      }
      infos.push_back(
          {arm.name, seed, task.plan.TotalSteps(), !is_first || task.record || !task.mine});
    }
  }
  const std::size_t seeds = study.seeds.size();
  // Seed by seed, so that an interrupted study has all arms of the seeds it finished.
  for (std::size_t s = 0; s < seeds; ++s) {
    for (std::size_t a = 0; a < study.arms.size(); ++a) {
      const Task& task = tasks_[a * seeds + s];
      if (!task.record && !task.twin && task.mine) queue_.push_back(a * seeds + s);
    }
  }
  for (const std::size_t index : queue_) waiting_.push_back({.index = index});
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
    SweepRemains(task);
    Note(task.label + ": cached");
    return record;
  } catch (const Error& e) {
    Note(std::string(e.what()) + "; " + task.label + " is run again");
    return std::nullopt;
  }
}

// Removes what killed processes left in the folder of a complete run: one may have died after it
// wrote the result and before it let go of the lock.
void Runner::SweepRemains(const Task& task) const {
  if (!task.folder.HasRemains()) return;  // thousands of runs are cached at once
  try {
    SharedLock lock;
    if (!lock.Take(task.folder.Path())) task.folder.Sweep();
  } catch (const Error&) {  // a folder that cannot be written to keeps them, and its result counts
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

// Whether another process has completed the run meanwhile; takes its record.
bool Runner::IsCompleteByNow(std::size_t index) {
  Task& task = tasks_[index];
  try {
    std::optional<RunRecord> record = task.folder.ReadResult(task.inputs);
    if (!record || !record->Completes(task.plan)) return false;
    task.record = std::move(record);
  } catch (const Error&) {  // damaged, as Cached has said: the run is made again
    return false;
  }
  return true;
}

// The next task; waits while other processes train all that are left. nullopt: there is none, or
// the study stops.
std::optional<std::size_t> Runner::Next() {
  std::unique_lock lock(mutex_);
  while (!Stopping() && !waiting_.empty()) {
    const Waiting next = waiting_.front();
    if (next.from <= std::chrono::steady_clock::now()) {
      waiting_.pop_front();
      return next.index;
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    lock.lock();
  }
  return std::nullopt;
}

void Runner::LeaveToHolder(std::size_t index, const LockHolder& holder) {
  Task& task = tasks_[index];
  if (!task.was_held) {
    Note(task.label + ": is trained by " + holder.Text() +
         "; its result is awaited, or the run taken over if that process ends");
  }
  task.was_held = true;
  const std::lock_guard lock(mutex_);
  waiting_.push_back({index, std::chrono::steady_clock::now() + kLookEvery});
}

void Runner::Train(std::size_t index) {
  Task& task = tasks_[index];
  SharedLock lock;
  std::optional<LockHolder> dead;
  const auto is_complete = [&] {
    if (!IsCompleteByNow(index)) return false;
    Note(task.label + ": complete, by another process");
    ++cached_;
    meter_->End(index, true);
    return true;
  };
  if (task.was_held && is_complete()) return SweepRemains(task);
  if (const auto holder = lock.Take(task.folder.Path(), &dead)) {
    return LeaveToHolder(index, *holder);
  }
  if (dead) {
    Note(task.label + ": taken over from " + dead->Text() + ", which has ended or given no sign " +
         "of life for " + std::to_string(SharedLock::kDeadSeconds) + " s");
  }
  task.folder.Sweep();
  if (is_complete()) return;
  meter_->Begin(index);
  TrainHeld(index, lock);
  meter_->End(index, task.record.has_value());
}

// Trains the run, whose folder's lock this process holds.
void Runner::TrainHeld(std::size_t index, const SharedLock& lock) {
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
       .save =
           [&] {
             lock.CheckHeld();
             task.folder.SaveCheckpoint([&](const ByteSink& sink) { run.Save(sink); });
           }});
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
    while (const std::optional<std::size_t> index = Next()) Train(*index);
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
  outcome.cached = cached_;
  outcome.steps_made = steps_made_;
  outcome.numerics = numerics_;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    Task& task = tasks_[i];
    if (task.twin) {
      task.record = tasks_[*task.twin].record;
    } else if (!task.record && !task.mine) {
      IsCompleteByNow(i);
    }
    if (!task.record) outcome.missing.push_back(task.label);
    outcome.interrupted |= task.mine && !task.record.has_value();
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

// The study's analysis as registered.json holds it: a larger budget alone is no other analysis.
Json AnalysisOf(const Study& study) {
  Json analysis = ToJson(study).at("analysis");
  if (study.analysis.primary_tokens == study.budgets.back()) {
    analysis["primary_tokens"] = "largest";
  }
  return analysis;
}

// The member of registered.json beside those of the analysis, of studies with predictions.
constexpr const char* kRegistered = "registered";

std::string TimeInUtc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// registered.json holds the analysis that the study had before its first run was complete. A folder
// of an older version has no such file, so its analysis is registered late, as it is.
void Register(const Study& study, const std::filesystem::path& out_dir) {
  const std::filesystem::path path = out_dir / "registered.json";
  if (std::filesystem::exists(path) && HasResult(out_dir)) return;
  Json analysis = AnalysisOf(study);
  if (!study.analysis.predictions.empty()) {
    const bool is_same = Exists(path) && !DiffersFromRegistered(study, out_dir);
    const std::string before = is_same ? RegisteredAt(out_dir) : "";
    analysis[kRegistered] = before.empty() ? TimeInUtc() : before;
  }
  WriteFileAtomically(path, analysis.dump(2) + "\n");
}

}  // namespace

std::vector<NamedRun> RunsOf(const Study& study, const Corpus& corpus, const Share& share) {
  const IeeeArithmetic ieee;
  std::vector<std::string> numerics;
  return RunsOf(study, corpus, share, &numerics);
}

bool DiffersFromRegistered(const Study& study, const std::filesystem::path& out_dir) {
  const IeeeArithmetic ieee;
  const std::filesystem::path path = out_dir / "registered.json";
  if (!Exists(path)) return false;
  Json registered = ReadJsonFile(path);
  if (registered.is_object()) registered.erase(kRegistered);
  return registered != AnalysisOf(study);
}

std::string RegisteredAt(const std::filesystem::path& out_dir) {
  const IeeeArithmetic ieee;
  const std::filesystem::path path = out_dir / "registered.json";
  if (!Exists(path)) return "";
  const Json registered = ReadJsonFile(path);
  if (!registered.is_object() || !registered.contains(kRegistered)) return "";
  const Json& time = registered[kRegistered];
  return time.is_string() ? time.get<std::string>() : "";
}

bool WaitForLock(const std::filesystem::path& folder, SharedLock* lock,
                 const std::function<void(const std::string&)>& note,
                 const std::atomic<bool>& stop) {
  const IeeeArithmetic ieee;
  constexpr int kLooksBeforeNote = 40;  // of 50 ms each
  for (int looks = 0; !stop; ++looks) {
    const std::optional<LockHolder> holder = lock->Take(folder);
    if (!holder) return true;
    if (looks == kLooksBeforeNote && note) {
      note(folder.string() + ": " + holder->Text() +
           " holds .lock; it is waited for, and taken over if that process ends");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

Outcome RunStudy(const Study& study, const Corpus& corpus, const RunOptions& options,
                 const Observer& observer, const std::atomic<bool>& stop) {
  const IeeeArithmetic ieee;
  const std::atomic<bool> never{false};  // the files are written even by a call that is stopped
  CheckPredictions(study, study.name);
  {
    SharedLock lock;
    WaitForLock(options.out_dir, &lock, observer.note, never);
    RemovePartialFiles(options.out_dir, kWrittenHere);
    WriteFileAtomically(options.out_dir / "study.json", ToJson(study).dump(2) + "\n");
    Register(study, options.out_dir);
  }
  Outcome outcome = Runner(study, corpus, options, observer, stop).Execute();
  outcome.exploratory = DiffersFromRegistered(study, options.out_dir);
  outcome.registered = RegisteredAt(options.out_dir);
  return outcome;
}

}  // namespace fp4lab::study
