// The cache of runs: out_dir/runs/KEY holds the result or the checkpoint of one (arm, seed) run.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/data/corpus.h"
#include "fp4lab/io/json.h"
#include "fp4lab/study/run/run_record.h"
#include "fp4lab/train/config.h"

namespace fp4lab::study {

// The inputs that determine a run's numbers, without names, budgets and paths. Budgets are left out
// so that a study with a longer budget continues the runs of a shorter one. `numerics` is the
// NumericsFingerprint of the configuration, so that a program with other numerics has its own
// runs.
Json RunInputs(const TrainConfig& config, const Corpus& corpus, const std::string& numerics);

class RunFolder {
 public:
  // Computes the key; creates nothing on disk.
  RunFolder(const std::filesystem::path& out_dir, const TrainConfig& config, const Corpus& corpus,
            const std::string& numerics);

  const std::string& Key() const { return key_; }  // SHA-256 of RunInputs, hex
  std::filesystem::path ResultPath() const { return folder_ / "result.json"; }
  std::filesystem::path CheckpointPath() const { return folder_ / "checkpoint"; }

  // Removes partial files that killed writers left here. The caller must hold the lock of out_dir.
  void Sweep() const;

  // The record in result.json; nullopt if there is no such file. Throws Error if the file is
  // damaged or of another run.
  std::optional<RunRecord> ReadResult() const;
  void WriteResult(const RunRecord& record) const;

  // The bytes of the checkpoint; nullopt if there is none.
  std::optional<std::vector<std::byte>> ReadCheckpoint() const;
  void WriteCheckpoint(std::span<const std::byte> bytes) const;

 private:
  Json inputs_;
  std::string key_;
  std::filesystem::path folder_;
};

}  // namespace fp4lab::study
