// The record of one (arm, seed) run: every number that results.json or the report needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/run/run_plan.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab::study {

// The annealed losses at the end of a branch: in the precision of the training (quantized forward
// pass), and of the same weights in high precision.
struct BranchPoint {
  Branch branch;
  Evaluation training, high;
  std::vector<TextLoss> texts = {};  // of EvaluationConfig::texts
};

// The validation loss and the diagnostics on the trunk, at the step where a branch leaves it.
struct TrunkPoint {
  std::int64_t steps = 0;
  double validation_loss = 0.0;
  std::vector<TensorStatistics> tensors;
};

struct Divergence {
  std::int64_t step = 0;
  std::string tensor;
  std::int64_t budget = 0;  // tokens of the branch that diverged; 0: the trunk
};

struct RunRecord {
  std::vector<BranchPoint> points;        // in the order in which they were made
  std::vector<TrunkPoint> trunk_points;   // ascending
  std::vector<double> losses;             // training loss of trunk step i
  std::vector<Observation> observations;  // in the order in which they were made
  std::optional<Divergence> diverged;
  double seconds = 0.0;         // time of training, validation and checkpoints, all sittings
  std::int64_t steps_made = 0;  // optimizer steps made in those seconds
  std::vector<std::string> processors;  // Trainer::Processor() of those steps; none: CPUs

  const BranchPoint* PointOf(const Branch& branch) const;
  const TrunkPoint* TrunkPointOf(std::int64_t steps) const;
  const Observation* ObservationOf(std::int64_t step, std::int64_t budget) const;
  bool HasAllOf(const RunPlan& plan) const;
  // Whether a divergence keeps this run from a point of `plan`.
  bool DivergedIn(const RunPlan& plan) const;
  // Whether no step of `plan` is left to make.
  bool Completes(const RunPlan& plan) const { return HasAllOf(plan) || DivergedIn(plan); }
};

// ToJson and ReadRunRecord keep the bits of every number. ReadRunRecord throws Error at `where` for
// JSON that is no record.
Json ToJson(const RunRecord& record);
RunRecord ReadRunRecord(const Json& json, const std::string& where);

}  // namespace fp4lab::study
