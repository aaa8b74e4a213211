#include "fp4lab/study/run/progress.h"

#include <algorithm>

#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab::study {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kWindow{15};
constexpr std::int64_t kStepsToTrust = 10;  // steps of an arm before its speed counts

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

ProgressMeter::ProgressMeter(std::vector<RunInfo> runs, std::int64_t tokens_per_step, int jobs)
    : tokens_per_step_(tokens_per_step), jobs_(std::max(jobs, 1)) {
  for (RunInfo& run : runs) {
    const auto same = [&](const Speed& s) { return s.arm == run.arm; };
    if (std::none_of(speeds_.begin(), speeds_.end(), same)) speeds_.push_back({run.arm});
    const std::int64_t left = run.done ? 0 : run.steps;
    runs_.push_back({.info = std::move(run), .steps_left = left});
  }
  window_.emplace_back(Clock::now(), 0);
}

void ProgressMeter::Begin(std::size_t run) {
  const IeeeArithmetic ieee;
  const std::lock_guard lock(mutex_);
  runs_[run].running = true;
}

void ProgressMeter::Update(std::size_t run, std::int64_t steps_made, double seconds,
                           std::int64_t steps_left, double loss) {
  const IeeeArithmetic ieee;
  const std::lock_guard lock(mutex_);
  RunState& state = runs_[run];
  state.steps_left = steps_left;
  state.loss = loss;
  for (Speed& speed : speeds_) {
    if (speed.arm != state.info.arm) continue;
    speed.seconds += seconds;
    speed.steps += steps_made;
  }
  steps_made_ += steps_made;
  const auto now = Clock::now();
  if (now - window_.back().first > std::chrono::milliseconds(100)) {
    window_.emplace_back(now, steps_made_);
  }
  while (window_.size() > 2 && now - window_.front().first > kWindow) window_.pop_front();
}

void ProgressMeter::End(std::size_t run, bool done) {
  const IeeeArithmetic ieee;
  const std::lock_guard lock(mutex_);
  runs_[run].running = false;
  runs_[run].info.done = done;
  if (done) runs_[run].steps_left = 0;
}

// An arm that has not run yet is taken to be as slow as the slowest one that has.
double ProgressMeter::SecondsLeft() const {
  const IeeeArithmetic ieee;
  double slowest = 0.0;
  for (const Speed& speed : speeds_) {
    if (speed.steps >= kStepsToTrust) slowest = std::max(slowest, speed.seconds / speed.steps);
  }
  double sum = 0.0, longest = 0.0;
  for (const RunState& run : runs_) {
    if (run.steps_left == 0) continue;
    if (slowest == 0.0) return -1.0;
    double step = slowest;
    for (const Speed& speed : speeds_) {
      if (speed.arm == run.info.arm && speed.steps >= kStepsToTrust) {
        step = speed.seconds / speed.steps;
      }
    }
    sum += step * run.steps_left;
    longest = std::max(longest, step * run.steps_left);
  }
  return std::max(sum / jobs_, longest);
}

Progress ProgressMeter::Now() const {
  const IeeeArithmetic ieee;
  const std::lock_guard lock(mutex_);
  Progress progress;
  progress.runs = static_cast<int>(runs_.size());
  for (const RunState& run : runs_) {
    if (run.info.done) ++progress.runs_done;
    if (!run.running) continue;
    progress.running.push_back(
        {run.info.arm, run.info.seed, run.info.steps - run.steps_left, run.info.steps, run.loss});
  }
  const double seconds = Seconds(Clock::now() - window_.front().first);
  if (seconds > 0.0) {
    progress.tokens_per_second =
        static_cast<double>((steps_made_ - window_.front().second) * tokens_per_step_) / seconds;
  }
  progress.seconds_left = SecondsLeft();
  return progress;
}

}  // namespace fp4lab::study
