// One training run from a configuration, with metrics, diagnostics and a checkpoint in a folder of
// its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/io/folder_lock.h"
#include "fp4lab/study/run/progress.h"
#include "fp4lab/study/run/record/run_folder.h"
#include "fp4lab/study/run/record/step_log.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/trainer.h"
#include "fp4lab/train/world.h"

namespace fp4lab::study {

struct TrainResult {
  std::int64_t steps = 0;
  bool interrupted = false;  // stopped before the end; the checkpoint is that of `steps`
  double validation_loss = 0.0;
  std::optional<double> validation_loss_high;
  std::vector<TextLoss> texts;  // Trainer::EvaluateTexts
};

class TrainRun {
 public:
  // Loads the folder's checkpoint, if there is one, and writes the configuration there if there is
  // none. `config` and `folder` must outlive the run. `where` is the prefix of JSON pointers into
  // the configuration. In a data-parallel run only rank 0 writes into the folder; the other ranks
  // read its checkpoint. `shards_optimizer`: World::shards_optimizer.
  TrainRun(const TrainConfig& config, const RunFolder& folder, const std::string& where,
           bool shards_optimizer = false);

  // What a user should know before the run: evaluation tokens that the corpus lacks; or empty.
  std::string Note() const;

  // Trains to the end of the run, or to the first step after `stop` is set. A complete run is only
  // evaluated again, and no file changes. `progress` is called at most twice a second, and after
  // the last step. Saves the state and throws Error when a loss or gradient is not finite; the last
  // line of the metrics then has the member "diverged" with the first tensor that was not finite.
  TrainResult Train(const std::function<void(const Progress&)>& progress,
                    const std::atomic<bool>& stop);

 private:
  bool Writes() const { return world_.rank == 0; }
  World IdentifiedWorld(const std::string& where) const;
  bool Done() const { return trainer_.Steps() == total_; }
  void Open();
  void Advance();
  void StepOnce();
  Json MetricsOf(const StepResult& result, double rate, double seconds) const;
  void Report();
  void Diagnose(std::int64_t step);
  void ObserveIfDue();
  bool IsTimeToSave(double seconds);
  void Save() const;
  [[noreturn]] void Diverged(std::int64_t step, const std::string& how, const char* side);

  const TrainConfig& config_;
  const RunFolder& folder_;
  std::int64_t total_;
  World world_;
  Corpus corpus_;
  Trainer trainer_;
  // Taken only after corpus and model were checked, since taking the lock creates the folder.
  std::optional<FolderLock> lock_;
  std::optional<StepLog> metrics_, diagnostics_, observations_;
  WeightCodes codes_;     // of the last observations
  bool is_fresh_ = true;  // no checkpoint was there
  bool was_complete_ = false;
  double last_loss_ = 0.0;
  double flops_ = 0.0;           // of a step
  std::int64_t next_timed_ = 0;  // the first step whose parts may be timed
  TrainResult result_;
};

}  // namespace fp4lab::study
