// One (arm, seed) run of a study, a step at a time: trunk, branches, evaluations, saved states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/study/run_plan.h"
#include "fp4lab/study/run_record.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab::study {

// The trunk trains at constant rate; where a branch leaves it, the whole state is saved, the branch
// decays to its budget on the data that the trunk would have seen next, is evaluated, and the trunk
// goes on from the saved state. So a branch is bit for bit the run that a schedule of that length
// would have made from scratch.
class Run {
 public:
  Run(const TrainConfig& config, const Corpus& corpus, const RunPlan& plan,
      const std::string& where);

  bool Done() const { return record_.Completes(plan_); }
  // One optimizer step, or what is due between two steps: an evaluation, leaving the trunk, going
  // back to it. Does nothing when Done().
  void Advance();

  const RunRecord& Record() const { return record_; }
  // Optimizer steps that are still to be made, and that Done() takes in all from a fresh start.
  std::int64_t StepsLeft() const;
  std::int64_t StepsOfPlan() const { return plan_.TotalSteps(); }
  double LastLoss() const { return last_loss_; }
  void AddSeconds(double seconds) { record_.seconds += seconds; }

  // Everything, with a SHA-256. Load, on a new Run of the same configuration, goes on from there;
  // it throws Error for bytes that are damaged or from another configuration. The plan may differ:
  // points that both plans ask for stay, and the trunk is gone over again only if the new plan has
  // a branch before its saved place.
  std::vector<std::byte> Save() const;
  void Load(std::span<const std::byte> bytes, const std::string& where);

 private:
  // The first branch of the plan that has no point yet; nullptr: none.
  const Branch* NextBranch() const;
  void StepTowards(const Branch& branch);
  void EnterBranch(const Branch& branch);
  void FinishBranch();
  void LeaveBranch();
  void Diverge(std::int64_t step, const std::string& tensor);
  void StartOver();

  TrainConfig config_;
  const Corpus* corpus_;
  RunPlan plan_;
  Trainer trainer_;
  RunRecord record_;
  Branch branch_;                       // the branch being made; total_steps 0: on the trunk
  std::vector<std::byte> trunk_state_;  // where that branch left the trunk
  double last_loss_ = 0.0;
};

}  // namespace fp4lab::study
