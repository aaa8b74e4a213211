// Runs a study: trains every (arm, seed) that is not cached, several at a time, and can be resumed
// at any moment.
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
  std::vector<RunRecord> records;     // that of arm a and seed s: [a * seeds + s]
  std::vector<std::string> numerics;  // NumericsFingerprint of each arm
  int cached = 0;                     // different runs with a complete result in the cache
  std::int64_t steps_made = 0;        // optimizer steps of this call
  // The study's analysis was changed after a run of the folder was complete: its criteria are no
  // predictions any more.
  bool exploratory = false;
};

// Holds the lock of out_dir while it runs. Once `stop` is set, every job ends at its next step and
// writes a checkpoint. Of the records only `seconds` depends on jobs, threads or interruptions.
// Throws Error before any training if out_dir cannot be used, and later if a file cannot be
// written; the other jobs then keep their checkpoints.
Outcome RunStudy(const Study& study, const Corpus& corpus, const RunOptions& options,
                 const Observer& observer, const std::atomic<bool>& stop);

}  // namespace fp4lab::study
