// The files of one training run: its configuration, metrics, diagnostics and checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab::study {

// A text file of one JSON object a line, each with a "step".
class StepLog {
 public:
  // Keeps the lines of the first `steps` steps. Drops later lines and a half-written last line,
  // which an interrupted run wrote after its last checkpoint. Throws Error for a line without a
  // "step".
  StepLog(std::filesystem::path path, std::int64_t steps);
  // Appends a line. Throws Error if the file cannot be written.
  void Write(const Json& line);

 private:
  std::filesystem::path path_;
};

class TrainFolder {
 public:
  explicit TrainFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& Folder() const { return folder_; }
  std::filesystem::path Configuration() const { return folder_ / "config.json"; }
  std::filesystem::path Checkpoint() const { return folder_ / "checkpoint.fp4lab"; }
  std::filesystem::path Metrics() const { return folder_ / "metrics.jsonl"; }
  std::filesystem::path Diagnostics() const { return folder_ / "diagnostics.jsonl"; }
  bool HasConfiguration() const { return Exists(Configuration()); }
  bool HasCheckpoint() const { return Exists(Checkpoint()); }

  // Removes partial files that killed writers left here. The caller must hold the folder's lock.
  void Sweep() const;
  // Throws Error if the folder already holds a run.
  void RefuseToOverwrite() const;
  // Throws Error, with the first difference, unless the folder's configuration describes the same
  // run as `config`. The device and the intervals of logging and checkpoints may differ.
  void CheckSameRun(const TrainConfig& config) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace fp4lab::study
