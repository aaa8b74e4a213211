// Runs a study: trains every (arm, seed) that is not cached, several at a time, and can be resumed
// at any moment. Several processes, on one machine or many, may work in one folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/data/corpus.h"
#include "fp4lab/study/run/progress.h"
#include "fp4lab/study/run/record/run_record.h"
#include "fp4lab/study/run/study.h"

namespace fp4lab {
class SharedLock;  // io/shared_lock.h
}

namespace fp4lab::study {

// The runs of a study that one process trains.
struct Share {
  // Of N shards, shard I (1 to N) has the runs whose number is I - 1 modulo N. Runs are numbered
  // seed by seed, and arm by arm within a seed, both in the order of the file. So the split depends
  // on the file alone, and more seeds at its end move no run. Arms that compute the same count for
  // the first.
  int shard = 1, shards = 1;
  // If not empty, of these runs only: "ARM:SEED", or at least 8 first digits of KEY.
  std::vector<std::string> only = {};

  bool IsWhole() const { return shards == 1 && only.empty(); }
};

struct RunOptions {
  std::filesystem::path out_dir;
  int jobs = 0;             // runs at a time; 0: as many as Threads(), or one a GPU
  int threads_per_job = 0;  // 0: Threads() of the caller, shared out evenly, at least one
  double checkpoint_seconds = 20.0;
  Share share = {};
};

struct Observer {
  std::function<void(const Progress&)> progress;  // twice a second, from the calling thread
  std::function<void(const std::string&)> note;   // one line, from any thread, one at a time
};

struct Outcome {
  bool interrupted = false;           // a run of the share is not complete
  std::vector<std::string> missing;   // runs that are not complete: "nvfp4, seed 3"
  std::vector<RunRecord> records;     // that of arm a and seed s: [a * seeds + s]
  std::vector<std::string> numerics;  // NumericsFingerprint of each arm
  int cached = 0;                     // different runs with a complete result in the cache
  std::int64_t steps_made = 0;        // optimizer steps of this call
  // The study's analysis was changed after a run of the folder was complete: its criteria are no
  // predictions any more.
  bool exploratory = false;
  // When the study with predictions was first started with this analysis, as RegisteredAt gives it.
  std::string registered = {};
};

// A run of a study, for a list of them.
struct NamedRun {
  std::string arm;
  std::uint64_t seed = 0;
  std::string key;    // the folder's name below runs/
  bool mine = false;  // of the share
};
// All runs of the study, seed by seed; each measures the fingerprint of its arm on the device that
// trains. Throws Error for a share that has no run, or names none.
std::vector<NamedRun> RunsOf(const Study& study, const Corpus& corpus, const Share& share);

// Trains the runs of the share. Each is trained under the lock of its folder (io/shared_lock.h). A
// run that another process trains is left until the others are done; then its result is taken once
// it is there, or the run itself once that process has ended. Once `stop` is set, every job ends at
// its next step and writes a checkpoint. Of the records only `seconds` depends on jobs, threads,
// interruptions or the split between processes. Throws Error before any training if out_dir cannot
// be used, and later if a file cannot be written; the other jobs then keep their checkpoints.
Outcome RunStudy(const Study& study, const Corpus& corpus, const RunOptions& options,
                 const Observer& observer, const std::atomic<bool>& stop);

// Holds folder/.lock, for the files of the whole study: for moments only, so that a caller waits
// for another process. Returns false if `stop` was set meanwhile. `note` receives one line where it
// takes long.
bool WaitForLock(const std::filesystem::path& folder, SharedLock* lock,
                 const std::function<void(const std::string&)>& note,
                 const std::atomic<bool>& stop);

// Whether the study's analysis is another one than registered.json of its folder says.
bool DiffersFromRegistered(const Study& study, const std::filesystem::path& out_dir);
// The time at which registered.json was written with the analysis that it has, in UTC:
// "2026-11-27T03:05:00Z". Empty of a study without predictions and of a folder of an older version.
std::string RegisteredAt(const std::filesystem::path& out_dir);

}  // namespace fp4lab::study
