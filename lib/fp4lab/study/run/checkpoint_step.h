// The step that follows a checkpoint of a run: what the checkpoint holds, and its text and learning
// rate, which files beside it name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "fp4lab/data/config.h"
#include "fp4lab/train/observe/what_if.h"

namespace fp4lab::study {

struct CheckpointStepOptions {
  std::filesystem::path checkpoint;          // checkpoint.fp4lab, or its folder
  std::optional<DataConfig> data = {};       // the run's text; nullopt: as files beside it say
  std::optional<double> learning_rate = {};  // nullopt: as they say, of the trunk in a study
  // The first ones of the step alone, as one micro-batch; nullopt: the whole step.
  std::optional<std::int64_t> sequences = {};
};

// Reads the step. Its text must have the SHA-256 that the checkpoint names. Throws Error for files
// that are no run's, for a text, a rate or a teacher that no file names, and for more sequences
// than a micro-batch has (at "--sequences").
StepState ReadCheckpointStep(const CheckpointStepOptions& options);

}  // namespace fp4lab::study
