// The step loop of `fp4lab train`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fp4lab/train/config.h"
#include "tools/run_folder.h"

namespace fp4lab::tools {

struct LoopResult {
  std::int64_t steps = 0;
  bool interrupted = false;  // by a signal: the checkpoint is that of `steps`
  double validation_loss = 0.0;
  std::optional<double> validation_loss_high;
};

// Goes on from the folder's checkpoint if there is one, else from the start, to the end of the run
// or to the first of StopSignals. Error, with the state saved, when a loss or gradient is not
// finite; the last line of the metrics then says "diverged" and what was the first to be so.
// `where` is the front of JSON pointers into the configuration.
LoopResult TrainLoop(const TrainConfig& config, const RunFolder& folder, const std::string& where);

}  // namespace fp4lab::tools
