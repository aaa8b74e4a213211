// The options of the commands that train the runs of a study.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/study/run/runner.h"
#include "fp4lab/study/run/study.h"
#include "tools/options/commands.h"

namespace fp4lab::tools {

struct StudyRunOptions {
  std::string file, device;
  int jobs = 0, threads_per_job = 0;  // 0: as RunStudy chooses
  int seeds = 0;                      // only the first so many; 0: all
  bool quick = false;                 // the study's rehearsal
  std::string shard;                  // "I/N"; empty: all runs
  std::vector<std::string> only;      // of Share::only
};

// Adds file, --quick, --seeds, --device, --jobs and --threads-per-job.
void AddStudyRunOptions(CLI::App* command, StudyRunOptions* options);
// Adds --shard and --only.
void AddShareOptions(CLI::App* command, StudyRunOptions* options);
// Throws Error for a --shard that is not I/N with 1 <= I <= N.
study::Share ReadShare(const StudyRunOptions& options);
// The study or its rehearsal, of its first --seeds and on --device if these are given. Throws Error
// for more seeds than the file has and for more than kMostThreads threads, too.
study::Study ReadStudy(const StudyRunOptions& options);

}  // namespace fp4lab::tools
