// Runs a study: every (arm, seed) that is not cached, several at a time, resumable at any moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/data/corpus.h"
#include "fp4lab/study/progress.h"
#include "fp4lab/study/run_record.h"
#include "fp4lab/study/study.h"

namespace fp4lab::study {

struct RunOptions {
  std::filesystem::path out_dir;
  int jobs = 0;             // runs at a time; 0: as many as Threads(), or one a GPU
  int threads_per_job = 0;  // 0: Threads() of the caller, shared out evenly, at least one
  double checkpoint_seconds = 20.0;
};

struct Observer {
  std::function<void(const Progress&)> progress;  // twice a second, from the calling thread
  std::function<void(const std::string&)> note;   // one line, from any thread, one at a time
};

struct Outcome {
  bool interrupted = false;
  std::vector<RunRecord> records;     // of arm a and seed s at [a * seeds + s]
  std::vector<std::string> numerics;  // NumericsFingerprint of each arm
  int cached = 0;                     // runs that needed nothing
  std::int64_t steps_made = 0;        // optimizer steps of this call
};

// Holds the lock of out_dir while it works. `stop` ends it at the next step of every job, with a
// checkpoint each. Nothing in the records but seconds depends on jobs, threads or interruptions.
// Throws Error if out_dir cannot be used, before any training, or when a file cannot be written;
// the other jobs then keep their checkpoints.
Outcome RunStudy(const Study& study, const Corpus& corpus, const RunOptions& options,
                 const Observer& observer, const std::atomic<bool>& stop);

}  // namespace fp4lab::study
