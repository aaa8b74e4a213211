#include "fp4lab/study/run/train_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/version.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/run/record/fingerprint.h"
#include "fp4lab/study/run/sitting.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/corpus_fit.h"
#include "fp4lab/train/engine.h"
#include "fp4lab/train/flops.h"

namespace fp4lab::study {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kShowEvery{500};
// Steps between those whose parts a GPU times: its events cost a small model a few percent.
constexpr std::int64_t kTimedEvery = 50;

// x as JSON; NaN and infinities, which JSON lacks, as strings.
Json Stated(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

std::string PlaceOf(const char* key, const std::string& where) {
  const Json empty = Json::object();
  return JsonObject(empty, where).Where(key);
}

World LaunchedWorld(bool shards_optimizer) {
  World world = WorldOfEnvironment();
  world.shards_optimizer = shards_optimizer;
  return world;
}

}  // namespace

TrainRun::TrainRun(const TrainConfig& config, const RunFolder& folder, const std::string& where,
                   bool shards_optimizer)
    : config_(config),
      folder_(folder),
      total_(TotalSteps(config)),
      world_(LaunchedWorld(shards_optimizer)),
      corpus_(LoadCorpusFor(config)),
      trainer_(config, corpus_, where, [&] {
        return MakeEngine(config, PlaceOf("device", where), IdentifiedWorld(where));
      }) {
  const IeeeArithmetic ieee;
  CheckObservedSteps(config.diagnostics, total_, PlaceOf("diagnostics", where));
  flops_ = StepFlops(config);
  if (Writes()) {
    lock_.emplace(folder.Path());
    folder.Sweep();
  }
  Open();
  was_complete_ = Done();
  if (!Writes()) return;
  metrics_.emplace(folder.Metrics(), trainer_.Steps());
  diagnostics_.emplace(folder.Diagnostics(), trainer_.Steps());
  if (!config_.diagnostics.Asked()) return;
  observations_.emplace(folder.Observations(), is_fresh_ ? -1 : trainer_.Steps());
  if (is_fresh_) ObserveIfDue();
}

// The world of this process, with what all its processes must have in common: the program, all that
// the run's numbers depend on, and the step at which it goes on. Members are compared in the order
// of their names.
World TrainRun::IdentifiedWorld(const std::string& where) const {
  World world = world_;
  if (world.size == 1) return world;
  Json inputs = RunInputs(config_, corpus_, "");
  inputs.erase("numerics");
  const auto content = folder_.OpenCheckpoint();
  world.identity = {
      {"fp4lab", kVersion},
      {"inputs", std::move(inputs)},
      {"numerics", NumericsFingerprint(config_, where, world.local)},
      {"shard_optimizer", world.shards_optimizer},
      {"steps", total_},
      {"steps_done",
       content == nullptr
           ? 0
           : ReadCheckpointHeader(content->bytes(), folder_.Checkpoint().string()).step}};
  if (world.shards_optimizer) {  // then all processes save at the same steps
    world.identity["saves"] = {{"checkpoint_every", config_.checkpoint_every},
                               {"checkpoint_minutes", config_.checkpoint_minutes}};
  }
  return world;
}

void TrainRun::Open() {
  const IeeeArithmetic ieee;
  if (const auto content = folder_.OpenCheckpoint()) {
    const std::string path = folder_.Checkpoint().string();
    is_fresh_ = false;
    const LoadedState state = trainer_.LoadState(content->bytes(), path);
    if (state.run.contains("record")) {
      throw Error(path, "is the checkpoint of a study, which fp4lab study run continues");
    }
    if (state.run.contains("codes")) codes_ = WeightCodes::Read(state.run.at("codes"), path);
    if (trainer_.Steps() > total_) {
      throw Error(path, "is of step " + std::to_string(trainer_.Steps()) + ", beyond the run's " +
                            std::to_string(total_));
    }
  }
  if (Writes() && !folder_.HasConfiguration()) {
    WriteFileAtomically(folder_.Configuration(), ToJson(config_).dump(2) + "\n");
  }
}

std::string TrainRun::Note() const {
  const bool is_default = config_.evaluation.tokens == EvaluationConfig{}.tokens;
  return is_default ? "" : EvaluationShortfall(config_, corpus_);
}

TrainResult TrainRun::Train(const std::function<void(const Progress&)>& progress,
                            const std::atomic<bool>& stop) {
  const IeeeArithmetic ieee;
  if (was_complete_) {  // only the evaluation is left
    Report();
    return result_;
  }
  ProgressMeter meter({{.arm = "", .seed = config_.seed, .steps = total_}}, TokensPerStep(config_),
                      1);
  meter.Begin(0);
  Clock::time_point shown{};
  const auto advanced = [&](double seconds) {
    meter.Update(0, 1, seconds, total_ - trainer_.Steps(), last_loss_);
    const Clock::time_point now = Clock::now();
    if (!Writes() || (!Done() && now - shown < kShowEvery)) return;
    shown = now;
    progress(meter.Now());
  };
  bool stopped = false;
  Sit({.done = [&] { return Done(); },
       .advance = [&] { Advance(); },
       .advanced = advanced,
       .stops = [&] { return stopped = trainer_.Any(stop); },
       .saves = [&](double seconds) { return IsTimeToSave(seconds); },
       .save = [&] { Save(); }});
  result_.interrupted = stopped && !Done();
  return result_;
}

void TrainRun::Advance() {
  StepOnce();
  result_.steps = trainer_.Steps();
  ObserveIfDue();
  const std::int64_t every = config_.evaluation.every;
  if (Done() || (every > 0 && trainer_.Steps() % every == 0)) Report();
}

void TrainRun::Save() const {
  const IeeeArithmetic ieee;
  if (!Writes()) {
    if (trainer_.ShardsStates()) trainer_.SendStates();
    return;
  }
  const Json run = observations_ ? Json{{"codes", codes_.ToJson()}} : Json();
  folder_.SaveCheckpoint([&](const ByteSink& sink) { trainer_.SaveState(sink, run); });
}

bool TrainRun::IsTimeToSave(double seconds) {
  const std::int64_t every = config_.checkpoint_every;
  if (every > 0 && trainer_.Steps() % every == 0) return true;
  if (config_.checkpoint_minutes <= 0) return false;
  const bool is_time = Writes() && seconds >= 60.0 * config_.checkpoint_minutes;
  return trainer_.ShardsStates() ? trainer_.Any(is_time) : is_time;
}

// Makes one step and writes its line of metrics.
void TrainRun::StepOnce() {
  const std::int64_t next = trainer_.Steps() + 1;
  const double rate = LearningRate(config_.schedule, trainer_.Steps(), total_);
  const bool logs = Writes() && (next % config_.log_every == 0 || next == total_);
  const bool times = logs && next >= next_timed_;
  if (times && config_.device != Device::kCpu) next_timed_ = next + kTimedEvery;
  trainer_.TimeSteps(times);
  const Clock::time_point start = Clock::now();
  const StepResult result = trainer_.StepOf(total_);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  last_loss_ = result.loss;
  if (result.non_finite) {
    const std::int64_t broken = result.non_finite->step + 1;
    const std::string& tensor = result.non_finite->tensor;
    if (Writes()) {
      metrics_->Write({{"step", broken},
                       {"learning/loss", Stated(result.loss)},
                       {"learning/grad_norm", Stated(result.grad_norm)},
                       {"learning/current_learning_rate", rate},
                       {"diverged", tensor}});
    }
    Diverged(broken, tensor + " is the first tensor that is not finite", "before");
  }
  if (logs) metrics_->Write(MetricsOf(result, rate, seconds));
}

// The line of metrics of the step just made, under MaxText's names where it has one.
Json TrainRun::MetricsOf(const StepResult& result, double rate, double seconds) const {
  const std::int64_t step = trainer_.Steps();
  const double tokens = static_cast<double>(TokensPerStep(config_)) / world_.size,
               tflops = 1e-12 * flops_ / world_.size;
  Json line = {{"step", step},
               {"learning/loss", result.loss},
               {"learning/grad_norm", result.grad_norm},
               {"learning/current_learning_rate", rate},
               {"learning/total_tokens", step * TokensPerStep(config_)},
               {"perf/step_time_seconds", seconds},
               {"perf/per_device_tokens", tokens},
               {"perf/per_device_tokens_per_sec", tokens / seconds},
               {"perf/per_device_tflops", tflops},
               {"perf/per_device_tflops_per_sec", tflops / seconds},
               {"perf/peak_memory_bytes", trainer_.PeakMemory()}};
  if (result.times) {
    for (std::size_t i = 0; i < kStepParts; ++i) {
      const auto part = static_cast<StepPart>(i);
      line["perf/share/" + std::string(StepPartName(part))] = result.times->Share(part);
    }
  }
  if (result.teacher_kl) line["learning/teacher_kl"] = *result.teacher_kl;
  if (config_.optimizer.loss_scaling.kind != LossScalingKind::kNone) {
    line["learning/loss_scale"] = result.loss_scale;
    line["learning/skipped"] = result.skipped;
  }
  return line;
}

// Saves the state and throws Error, in all processes once rank 0 has saved.
void TrainRun::Diverged(std::int64_t step, const std::string& how, const char* side) {
  if (!was_complete_) Save();
  trainer_.Any(true);
  throw Error("step " + std::to_string(step),
              "the run has diverged: " + how + "; the state " + side + " this step is in " +
                  folder_.Checkpoint().string() +
                  ", and a smaller schedule.learning_rate may keep it finite");
}

// Evaluates the model. Writes the losses unless the run was complete before this sitting.
void TrainRun::Report() {
  trainer_.UseRecipeOf(std::max(trainer_.Steps() - 1, std::int64_t{0}), total_);
  const std::int64_t step = trainer_.Steps();
  const double loss = trainer_.Evaluate(EvaluationPrecision::kTraining).loss;
  result_.steps = step;
  result_.validation_loss = loss;
  Json line = {{"step", step},
               {"eval/avg_loss", Stated(loss)},
               {"eval/avg_perplexity", Stated(std::exp(loss))}};
  bool finite = std::isfinite(loss);
  if (config_.evaluation.high_precision) {
    const double high = trainer_.Evaluate(EvaluationPrecision::kHigh).loss;
    finite = finite && std::isfinite(high);
    line["eval/high_precision_avg_loss"] = Stated(high);
    result_.validation_loss_high = high;
  }
  std::string broken = finite ? "" : "validation.loss";
  std::string what = "the validation loss";
  result_.texts = trainer_.EvaluateTexts();
  for (const TextLoss& text : result_.texts) {
    const std::string prefix = "eval/" + text.name + "/";
    line[prefix + "avg_loss"] = Stated(text.loss);
    line[prefix + "avg_perplexity"] = Stated(std::exp(text.loss));
    if (text.loss_high) line[prefix + "high_precision_avg_loss"] = Stated(*text.loss_high);
    if (!broken.empty() || IsFinite(text)) continue;
    broken = "validation.texts." + text.name;
    what = "the loss of the text " + text.name;
  }
  if (!broken.empty()) line["diverged"] = broken;
  if (!was_complete_ && Writes()) metrics_->Write(line);
  if (!broken.empty()) Diverged(step, what + " is not finite", "after");
  if (!was_complete_ && Writes()) Diagnose(step);
}

// Writes the observation of the state, under the recipe that made the last step.
void TrainRun::ObserveIfDue() {
  const std::int64_t step = trainer_.Steps();
  if (!observations_ || !config_.diagnostics.IsDue(step)) return;
  trainer_.UseRecipeOf(std::max(step - 1, std::int64_t{0}), total_);
  observations_->Write(ToJson(trainer_.Observe(&codes_)));
}

void TrainRun::Diagnose(std::int64_t step) {
  const EvaluationConfig& e = config_.evaluation;
  if (e.diagnostics_every == 0) return;
  const bool due = e.every > 0 && step / e.every % e.diagnostics_every == 0;
  if (!due && !Done()) return;
  for (const TensorStatistics& s : trainer_.Diagnose()) diagnostics_->Write(LogLine(step, s));
}

}  // namespace fp4lab::study
