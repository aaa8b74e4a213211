// The cache of runs: out_dir/runs/KEY holds what one (arm, seed) run has brought so far.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/run_record.h"
#include "fp4lab/train/config.h"

namespace fp4lab::study {

// Everything that a run's numbers depend on and nothing else: neither names, nor budgets, nor
// paths. Budgets are left out so that a longer study goes on from a shorter one. `numerics`:
// NumericsFingerprint of the configuration; runs of a program with other numerics are made again.
Json RunInputs(const TrainConfig& config, const Corpus& corpus, const std::string& numerics);

class RunFolder {
 public:
  // Makes nothing on disk yet.
  RunFolder(const std::filesystem::path& out_dir, const TrainConfig& config, const Corpus& corpus,
            const std::string& numerics);

  const std::string& Key() const { return key_; }  // SHA-256 of the inputs
  std::filesystem::path ResultPath() const { return folder_ / "result.json"; }
  std::filesystem::path CheckpointPath() const { return folder_ / "checkpoint"; }

  // Removes what killed writers left here; for whoever holds out_dir.
  void Sweep() const;

  // result.json; none if there is none. Throws Error if it is damaged or of another run.
  std::optional<RunRecord> ReadResult() const;
  void WriteResult(const RunRecord& record) const;

  std::optional<std::vector<std::byte>> ReadCheckpoint() const;
  void WriteCheckpoint(std::span<const std::byte> bytes) const;

 private:
  Json inputs_;
  std::string key_;
  std::filesystem::path folder_;
};

}  // namespace fp4lab::study
