// The files of a training run: its configuration, metrics, diagnostics and checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab::tools {

// A text file of one JSON object a line, each with a "step".
class StepLog {
 public:
  // Keeps the lines of the first `steps` steps and drops the rest (and a half-written last line):
  // what a run that was cut off left beyond its checkpoint.
  StepLog(std::filesystem::path path, std::int64_t steps);
  // Appends; Error if the file cannot be written.
  void Write(const Json& line);

 private:
  std::filesystem::path path_;
};

class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& Folder() const { return folder_; }
  std::filesystem::path Configuration() const { return folder_ / "config.json"; }
  std::filesystem::path Checkpoint() const { return folder_ / "checkpoint.fp4lab"; }
  std::filesystem::path Metrics() const { return folder_ / "metrics.jsonl"; }
  std::filesystem::path Diagnostics() const { return folder_ / "diagnostics.jsonl"; }
  bool HasConfiguration() const { return Exists(Configuration()); }
  bool HasCheckpoint() const { return Exists(Checkpoint()); }

  // Removes what killed writers left here; for whoever holds the folder.
  void Sweep() const;
  // Error if the folder already holds a run.
  void RefuseToOverwrite() const;
  // Error, naming the first difference, unless the run in the folder computes what `config` says.
  // How often it logs and saves may differ.
  void CheckSameRun(const TrainConfig& config) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace fp4lab::tools
