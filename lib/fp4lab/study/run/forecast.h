// The work of a study, told before it starts: steps, time, memory and disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/data/corpus.h"
#include "fp4lab/study/run/study.h"

namespace fp4lab::study {

struct ForecastOptions {
  int jobs = 0;             // runs at a time; 0: as RunStudy chooses
  int threads_per_job = 0;  // 0: the threads divided by the jobs
  double seconds = 0.5;     // least time that steps of each arm are measured for
};

// One run of an arm. Seconds are measured with one run at a time: runs that share memory bandwidth
// or a GPU take longer.
struct ArmForecast {
  std::string arm;
  std::int64_t block_parameters = 0;  // N
  std::int64_t steps = 0;             // trunk and decays
  double seconds_per_step = 0.0;
  double seconds_per_budget = 0.0;  // evaluations and saved states of one budget
  std::int64_t observations = 0;    // of "diagnostics", on the trunk and on decays
  double seconds_per_observation = 0.0;
  double seconds = 0.0;  // of the run
  double memory = 0.0;   // bytes on the CPU: EstimateMemory, and the trunk's state
};

struct StudyForecast {
  std::vector<ArmForecast> arms;
  std::int64_t steps = 0;  // of all runs
  int jobs = 1, threads_per_job = 1;
  double seconds = 0.0;     // of all runs, `jobs` at a time
  double memory = 0.0;      // bytes on the CPU, of `jobs` runs of the largest arm and the program
  std::uintmax_t disk = 0;  // bytes of the cache: states and results of all runs
};

// Trains a few steps of each arm and takes them as typical. Writes nothing. Throws Error as
// RunStudy does for a corpus or a device that does not suit the study.
StudyForecast ForecastStudy(const Study& study, const Corpus& corpus,
                            const ForecastOptions& options = {});

}  // namespace fp4lab::study
