// The progress of a study or a training run, for display.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace fp4lab::study {

struct RunningJob {
  std::string arm;
  std::uint64_t seed = 0;
  std::int64_t step = 0, steps = 0;  // optimizer steps of the run's plan, branches included
  double loss = 0.0;                 // training loss of the last step
};

struct Progress {
  int runs_done = 0, runs = 0;
  std::vector<RunningJob> running;
  double tokens_per_second = 0.0;  // all jobs together, over the last few seconds
  double seconds_left = -1.0;      // until the study's end; -1: not known yet
};

// Counts the steps of the runs. Safe to call from several threads.
class ProgressMeter {
 public:
  struct RunInfo {
    std::string arm;
    std::uint64_t seed = 0;
    std::int64_t steps = 0;
    bool done = false;
  };
  ProgressMeter(std::vector<RunInfo> runs, std::int64_t tokens_per_step, int jobs);

  void Begin(std::size_t run);
  // Adds `steps_made` optimizer steps of `run`, which took `seconds`. `steps_left` steps of the run
  // remain; `loss` is that of the last step.
  void Update(std::size_t run, std::int64_t steps_made, double seconds, std::int64_t steps_left,
              double loss);
  void End(std::size_t run, bool done);
  Progress Now() const;

 private:
  struct RunState {
    RunInfo info;
    bool running = false;
    std::int64_t steps_left = 0;
    double loss = 0.0;
  };
  struct Speed {
    std::string arm;
    double seconds = 0.0;
    std::int64_t steps = 0;
  };
  double SecondsLeft() const;

  mutable std::mutex mutex_;
  std::vector<RunState> runs_;
  std::vector<Speed> speeds_;  // an entry for each arm
  std::int64_t tokens_per_step_;
  int jobs_;
  // (time, steps made until then) over the last seconds, for tokens_per_second.
  std::deque<std::pair<std::chrono::steady_clock::time_point, std::int64_t>> window_;
  std::int64_t steps_made_ = 0;
};

}  // namespace fp4lab::study
