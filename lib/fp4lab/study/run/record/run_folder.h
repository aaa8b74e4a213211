// The folder of one training run: that of `fp4lab train`, or out_dir/runs/KEY of a study.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "fp4lab/data/corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/json.h"
#include "fp4lab/study/run/record/run_record.h"
#include "fp4lab/train/config.h"

namespace fp4lab::study {

// The inputs that determine a run's numbers, without names, budgets and paths. Budgets are left out
// so that a study with a longer budget continues the runs of a shorter one. `numerics` is the
// NumericsFingerprint of the configuration, so that a program with other numerics has its own
// runs.
Json RunInputs(const TrainConfig& config, const Corpus& corpus, const std::string& numerics);
// KEY: the SHA-256 of RunInputs, hex.
std::string RunKey(const Json& inputs);

class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // The folder of a study's run. Creates nothing on disk.
  RunFolder(const std::filesystem::path& out_dir, const Json& inputs);

  const std::filesystem::path& Path() const { return folder_; }
  std::filesystem::path Checkpoint() const { return folder_ / "checkpoint.fp4lab"; }
  std::filesystem::path Configuration() const { return folder_ / "config.json"; }        // train
  std::filesystem::path Metrics() const { return folder_ / "metrics.jsonl"; }            // train
  std::filesystem::path Diagnostics() const { return folder_ / "diagnostics.jsonl"; }    // train
  std::filesystem::path Observations() const { return folder_ / "observations.jsonl"; }  // train
  std::filesystem::path Result() const { return folder_ / "result.json"; }               // study

  // Whether there is a file of a process at work here, or of a killed one: a lock, or a file that
  // is not in its place yet.
  bool HasRemains() const;
  // Removes partial files that killed writers left here. The caller must hold the lock of the
  // folder.
  void Sweep() const;

  // The checkpoint, mapped; nullptr if there is none.
  std::unique_ptr<FileContent> OpenCheckpoint() const;
  // Replaces the checkpoint by the bytes that `save` passes to its sink.
  void SaveCheckpoint(const std::function<void(const ByteSink& sink)>& save) const;

  bool HasConfiguration() const { return Exists(Configuration()); }
  // Throws Error if the folder already holds a run.
  void RefuseToOverwrite() const;
  // Throws Error, with the first difference, unless the folder's configuration describes the same
  // run as `config`. The device and the intervals of logging and checkpoints may differ.
  void CheckSameRun(const TrainConfig& config) const;

  // The record in result.json; nullopt if there is no such file. Throws Error if the file is
  // damaged or of a run of other inputs.
  std::optional<RunRecord> ReadResult(const Json& inputs) const;
  void WriteResult(const Json& inputs, const RunRecord& record) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace fp4lab::study
