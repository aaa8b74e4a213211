// What is kept of one (arm, seed) run: every number that results.json or the report needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/run_plan.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab::study {

// At the end of a branch: the annealed losses, in the precision of the training (quantized forward)
// and of the same weights in high precision.
struct BranchPoint {
  Branch branch;
  Evaluation training, high;
};

// On the trunk, before a branch decays.
struct TrunkPoint {
  std::int64_t steps = 0;
  double validation_loss = 0.0;
  std::vector<TensorStatistics> tensors;
};

struct Divergence {
  std::int64_t step = 0;
  std::string tensor;
  std::int64_t budget = 0;  // the branch it happened in; 0: the trunk
};

struct RunRecord {
  std::vector<BranchPoint> points;       // in the order in which they were made
  std::vector<TrunkPoint> trunk_points;  // ascending
  std::vector<double> losses;            // training loss of trunk step i
  std::optional<Divergence> diverged;
  double seconds = 0.0;         // of training, validation and checkpoints, over all sittings
  std::int64_t steps_made = 0;  // that those seconds paid for

  const BranchPoint* PointOf(const Branch& branch) const;
  const TrunkPoint* TrunkPointOf(std::int64_t steps) const;
  bool HasAllOf(const RunPlan& plan) const;
  // A divergence stands between this run and a point of `plan`.
  bool DivergedIn(const RunPlan& plan) const;
  // Nothing is left to do.
  bool Completes(const RunPlan& plan) const { return HasAllOf(plan) || DivergedIn(plan); }
};

// Exact: every number comes back with the same bits.
Json ToJson(const RunRecord& record);
RunRecord ReadRunRecord(const Json& json, const std::string& where);

}  // namespace fp4lab::study
