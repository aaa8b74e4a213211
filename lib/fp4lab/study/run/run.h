// One (arm, seed) run of a study, a step at a time: trunk, branches, evaluations, saved states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/data/corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/run/record/run_record.h"
#include "fp4lab/study/run/run_plan.h"
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
  // Makes one optimizer step, or takes the action due between two steps: an evaluation, the change
  // from the trunk to a branch, the return to the trunk. Does nothing when Done().
  void Advance();

  const RunRecord& Record() const { return record_; }
  // Optimizer steps still to be made.
  std::int64_t StepsLeft() const;
  // Optimizer steps of the whole plan from a fresh start.
  std::int64_t StepsOfPlan() const { return plan_.TotalSteps(); }
  double LastLoss() const { return last_loss_; }
  void AddSeconds(double seconds) { record_.seconds += seconds; }

  // The checkpoint of the run: the trainer's (train/checkpoint.h), whose "run" is {"record",
  // "branch": [tokens, branch_step, total_steps], all 0 on the trunk}, and "codes" and
  // "trunk_codes" (WeightCodes) in a run that is observed. Load, called on a new Run of
  // the same configuration, continues from it and throws Error for bytes that are damaged, from
  // another configuration or of no study; the Run is then of no use. The plan may differ from that
  // of the saved run: points of both plans are kept, and the trunk is trained again only if the new
  // plan has a branch before the saved step.
  void Save(const ByteSink& sink) const;
  void Load(std::span<const std::byte> bytes, const std::string& where);

 private:
  // The first branch of the plan that has no point yet; nullptr: none.
  const Branch* NextBranch() const;
  void StepTowards(const Branch& branch);
  void NoteProcessor();
  void ObserveIfDue(const Branch& branch);
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
  Branch branch_;             // the branch being trained; total_steps 0: on the trunk
  std::vector<float> trunk_;  // the trainer's numbers where branch_ left the trunk; empty: on it
  WeightCodes codes_, trunk_codes_;  // of the last observations, and where branch_ left the trunk
  double last_loss_ = 0.0;
};

}  // namespace fp4lab::study
