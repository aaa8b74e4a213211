#include "fp4lab/study/run/forecast.h"

#include <algorithm>
#include <chrono>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/study/run/run.h"
#include "fp4lab/study/run/study_start.h"
#include "fp4lab/train/model/memory.h"

namespace fp4lab::study {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A run with a single budget, whose decay is the step after `trunk` trunk steps.
RunPlan ShortPlan(const Study& study, std::int64_t trunk) {
  const std::int64_t tokens_per_step = TokensPerStep(study.base);
  return {tokens_per_step, {{(trunk + 1) * tokens_per_step, trunk, trunk + 1}}};
}

// Resident bytes of the program without a model, as measured on x86-64 under Linux.
constexpr double kProgramBytes = 0x1p25;

// Seconds of a step after the first, which prepares memory and weights.
double StepSeconds(const Study& study, const TrainConfig& config, const Corpus& corpus,
                   double least) {
  constexpr std::int64_t kMost = 1000;
  Run run(config, corpus, ShortPlan(study, kMost), study.name);
  run.Advance();
  const Clock::time_point start = Clock::now();
  std::int64_t steps = 0;
  do {
    run.Advance();
    ++steps;
  } while (SecondsSince(start) < least && steps < kMost - 1 && !run.Record().diverged);
  return SecondsSince(start) / static_cast<double>(steps);
}

// Seconds by which an observed step takes longer than `step`.
double ObservationSeconds(const Study& study, TrainConfig config, const Corpus& corpus,
                          double step) {
  config.diagnostics.every = 1;
  config.diagnostics.steps.clear();
  Run run(config, corpus, ShortPlan(study, 2), study.name);
  run.Advance();
  const Clock::time_point start = Clock::now();
  run.Advance();
  return std::max(0.0, SecondsSince(start) - step);
}

// Observed steps of a run: those of the trunk once and those of every decay.
std::int64_t Observations(const DiagnosticsConfig& diagnostics, const RunPlan& plan) {
  std::int64_t count = 0;
  const auto add = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) count += diagnostics.IsDue(step) ? 1 : 0;
  };
  add(0, plan.TrunkSteps());
  for (const Branch& branch : plan.branches) add(branch.branch_step + 1, branch.total_steps);
  return count;
}

// Seconds of all that is no step of a run with one budget.
double BudgetSeconds(const Study& study, const TrainConfig& config, const Corpus& corpus) {
  Run run(config, corpus, ShortPlan(study, 1), study.name);
  double seconds = 0.0;
  while (!run.Done()) {
    const std::int64_t steps = run.Record().steps_made;
    const Clock::time_point start = Clock::now();
    run.Advance();
    if (run.Record().steps_made == steps) seconds += SecondsSince(start);
  }
  return seconds;
}

}  // namespace

StudyForecast ForecastStudy(const Study& study, const Corpus& corpus,
                            const ForecastOptions& options) {
  const IeeeArithmetic ieee;
  StudyForecast all;
  all.steps = TotalSteps(study);
  const std::size_t seeds = study.seeds.size(), runs = study.arms.size() * seeds;
  all.jobs = JobsOf(study, options.jobs, runs);
  all.threads_per_job =
      options.threads_per_job > 0 ? options.threads_per_job : std::max(1, Threads() / all.jobs);
  const ThreadsScope scope(all.threads_per_job);
  for (const Arm& arm : study.arms) {
    const TrainConfig config = ConfigOf(study, arm, study.seeds[0]);
    const MemoryNeed memory = EstimateMemory(config);
    const RunPlan plan = PlanOf(study, arm);
    ArmForecast one{.arm = arm.name,
                    .block_parameters = BlockParameterCount(arm.model),
                    .steps = plan.TotalSteps(),
                    .memory = memory.Total() + memory.state};  // the trunk's, within a branch
    TrainConfig unobserved = config;
    unobserved.diagnostics = {};
    one.seconds_per_step = StepSeconds(study, unobserved, corpus, options.seconds);
    one.seconds_per_budget = BudgetSeconds(study, unobserved, corpus);
    if (config.diagnostics.Asked()) {
      one.observations = Observations(config.diagnostics, plan);
      one.seconds_per_observation = ObservationSeconds(study, config, corpus, one.seconds_per_step);
    }
    one.seconds = one.seconds_per_step * static_cast<double>(one.steps) +
                  one.seconds_per_budget * static_cast<double>(plan.branches.size()) +
                  one.seconds_per_observation * static_cast<double>(one.observations);
    all.seconds += one.seconds * static_cast<double>(seeds) / all.jobs;
    all.memory = std::max(all.memory, one.memory * all.jobs + kProgramBytes);
    all.disk += seeds * BytesOfRun(Trainer(config, corpus, study.name));
    all.arms.push_back(std::move(one));
  }
  return all;
}

}  // namespace fp4lab::study
