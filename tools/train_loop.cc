#include "tools/train_loop.h"

#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/folder_lock.h"
#include "fp4lab/train/engine.h"
#include "fp4lab/train/trainer.h"
#include "fp4lab/train/world.h"
#include "tools/progress.h"
#include "tools/stop_signals.h"

namespace fp4lab::tools {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// JSON has no NaN and no infinity: they are written as their names.
Json Stated(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

std::string PlaceOfDevice(const std::string& where) {
  const Json empty = Json::object();
  return JsonObject(empty, where).Where("device");
}

class Loop {
 public:
  Loop(const TrainConfig& config, const RunFolder& folder, const std::string& where)
      : config_(config),
        folder_(folder),
        total_(TotalSteps(config)),
        world_(WorldOfEnvironment()),
        corpus_(LoadCorpus(config.data)),
        trainer_(config, corpus_, where,
                 [&] { return MakeEngine(config, PlaceOfDevice(where), world_); }),
        saved_(Clock::now()) {
    if (Writes()) {
      lock_.emplace(folder.Folder());
      folder.Sweep();
    }
    Open();
    was_complete_ = trainer_.Steps() == total_;
    if (!Writes()) return;
    metrics_.emplace(folder.Metrics(), trainer_.Steps());
    diagnostics_.emplace(folder.Diagnostics(), trainer_.Steps());
  }

  LoopResult Run() {
    LoopResult result;
    if (was_complete_) {  // nothing left to do but to say how it ended
      Report(&result);
      return result;
    }
    std::optional<Progress> progress;
    if (Writes()) progress.emplace(trainer_.Steps(), total_, TokensPerStep(config_));
    while (trainer_.Steps() < total_) {
      const double loss = StepOnce();
      const std::int64_t step = trainer_.Steps();
      if (progress) progress->Show(step, loss);
      const std::int64_t every = config_.evaluation.every;
      if (step == total_ || (every > 0 && step % every == 0)) Report(&result);
      const bool stops = trainer_.Any(StopSignals::Asked());
      if (step == total_ || stops || IsTimeToSave()) Save();
      result.steps = step;
      result.interrupted = step < total_ && stops;
      if (result.interrupted) break;
    }
    return result;
  }

 private:
  // The first process of a data-parallel run has the folder; the others only read its checkpoint.
  bool Writes() const { return world_.rank == 0; }

  // Takes the folder's checkpoint, if there is one, and leaves the configuration there.
  void Open() {
    if (folder_.HasCheckpoint()) {
      const std::string path = folder_.Checkpoint().string();
      const FileContent content(path);
      trainer_.LoadState(content.bytes(), path);
      if (trainer_.Steps() > total_) {
        throw Error(path, "is of step " + std::to_string(trainer_.Steps()) + ", beyond the run's " +
                              std::to_string(total_));
      }
    }
    if (Writes() && !folder_.HasConfiguration()) {
      WriteFileAtomically(folder_.Configuration(), ToJson(config_).dump(2) + "\n");
    }
  }

  void Save() {
    if (!Writes()) return;
    WriteFileAtomically(folder_.Checkpoint(),
                        [this](const ByteSink& sink) { trainer_.SaveState(sink); });
    saved_ = Clock::now();
  }

  bool IsTimeToSave() const {
    const std::int64_t every = config_.checkpoint_every;
    if (every > 0 && trainer_.Steps() % every == 0) return true;
    return config_.checkpoint_minutes > 0 &&
           SecondsSince(saved_) >= 60.0 * config_.checkpoint_minutes;
  }

  // One step and its line of metrics; returns the loss.
  double StepOnce() {
    const double rate = LearningRate(config_.schedule, trainer_.Steps(), total_);
    trainer_.UseRecipeOf(trainer_.Steps(), total_);
    const Clock::time_point start = Clock::now();
    const StepResult result = trainer_.Step(rate);
    const double seconds = SecondsSince(start);
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
    const std::int64_t step = trainer_.Steps();
    if (Writes() && (step % config_.log_every == 0 || step == total_)) {
      const auto tokens = static_cast<double>(TokensPerStep(config_));
      metrics_->Write({{"step", step},
                       {"learning/loss", result.loss},
                       {"learning/grad_norm", result.grad_norm},
                       {"learning/current_learning_rate", rate},
                       {"learning/total_tokens", step * TokensPerStep(config_)},
                       {"perf/step_time_seconds", seconds},
                       {"perf/per_device_tokens_per_sec", tokens / seconds}});
    }
    return result.loss;
  }

  // Saves the state and ends the run.
  [[noreturn]] void Diverged(std::int64_t step, const std::string& how, const char* side) {
    if (!was_complete_) Save();
    throw Error("step " + std::to_string(step),
                "the run has diverged: " + how + "; the state " + side + " this step is in " +
                    folder_.Checkpoint().string() +
                    ", and a smaller schedule.learning_rate may keep it finite");
  }

  // Evaluates, and writes what it found unless the run was complete before.
  void Report(LoopResult* result) {
    trainer_.UseRecipeOf(std::max(trainer_.Steps() - 1, std::int64_t{0}), total_);
    const std::int64_t step = trainer_.Steps();
    result->steps = step;
    const double loss = trainer_.Evaluate(EvaluationPrecision::kTraining).loss;
    result->validation_loss = loss;
    Json line = {{"step", step},
                 {"eval/avg_loss", Stated(loss)},
                 {"eval/avg_perplexity", Stated(std::exp(loss))}};
    bool finite = std::isfinite(loss);
    if (config_.evaluation.high_precision) {
      const double high = trainer_.Evaluate(EvaluationPrecision::kHigh).loss;
      finite = finite && std::isfinite(high);
      line["eval/high_precision_avg_loss"] = Stated(high);
      result->validation_loss_high = high;
    }
    if (!finite) line["diverged"] = "validation.loss";
    if (!was_complete_ && Writes()) metrics_->Write(line);
    if (!finite) Diverged(step, "the validation loss is not finite", "after");
    if (was_complete_ || !Writes()) return;
    const EvaluationConfig& e = config_.evaluation;
    if (e.diagnostics_every == 0) return;
    const bool due = e.every > 0 && step / e.every % e.diagnostics_every == 0;
    if (!due && step != total_) return;
    for (const TensorStatistics& s : trainer_.Diagnose()) {
      diagnostics_->Write({{"step", step},
                           {"name", s.name},
                           {"format", s.format},
                           {"amax", s.amax},
                           {"underflows%", s.underflow_percent},
                           {"clip%", s.clip_percent},
                           {"sqnr", s.sqnr_db}});
    }
  }

  const TrainConfig& config_;
  const RunFolder& folder_;
  std::int64_t total_;
  World world_;
  Corpus corpus_;
  Trainer trainer_;
  // Not before corpus and model are known to be sound: it makes the folder.
  std::optional<FolderLock> lock_;
  std::optional<StepLog> metrics_, diagnostics_;
  bool was_complete_ = false;
  Clock::time_point saved_;
};

}  // namespace

LoopResult TrainLoop(const TrainConfig& config, const RunFolder& folder, const std::string& where) {
  Loop loop(config, folder, where);
  const StopSignals signals;
  return loop.Run();
}

}  // namespace fp4lab::tools
