#include "fp4lab/study/run/run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab::study {

Run::Run(const TrainConfig& config, const Corpus& corpus, const RunPlan& plan,
         const std::string& where)
    : config_(config), corpus_(&corpus), plan_(plan), trainer_(config, corpus, where) {}

const Branch* Run::NextBranch() const {
  for (const Branch& branch : plan_.branches) {
    if (!record_.PointOf(branch) || !record_.TrunkPointOf(branch.branch_step)) return &branch;
  }
  return nullptr;
}

void Run::Advance() {
  const IeeeArithmetic ieee;
  if (Done()) return;
  if (branch_.total_steps > 0) {
    if (trainer_.Steps() < branch_.total_steps) return StepTowards(branch_);
    return FinishBranch();
  }
  const Branch& next = *NextBranch();
  if (trainer_.Steps() > next.branch_step) StartOver();
  if (trainer_.Steps() == 0) ObserveIfDue(next);
  if (trainer_.Steps() < next.branch_step) return StepTowards(next);
  EnterBranch(next);
}

void Run::StepTowards(const Branch& branch) {
  const std::int64_t step = trainer_.Steps();
  const StepResult result = trainer_.StepOf(branch.total_steps);
  ++record_.steps_made;
  NoteProcessor();
  if (result.non_finite) return Diverge(result.non_finite->step, result.non_finite->tensor);
  last_loss_ = result.loss;
  const bool on_trunk = branch_.total_steps == 0;
  if (on_trunk && step == static_cast<std::int64_t>(record_.losses.size())) {
    record_.losses.push_back(result.loss);
  }
  ObserveIfDue(branch);
}

void Run::NoteProcessor() {
  std::string here = trainer_.Processor();
  std::vector<std::string>& all = record_.processors;
  if (!here.empty() && std::find(all.begin(), all.end(), here) == all.end()) {
    all.push_back(std::move(here));
  }
}

// Observes the state after a step, under the recipe that made the step. A trunk that is trained
// again is observed again, with the same numbers.
void Run::ObserveIfDue(const Branch& branch) {
  const std::int64_t step = trainer_.Steps(), budget = branch_.tokens;
  if (!config_.diagnostics.IsDue(step)) return;
  trainer_.UseRecipeOf(std::max(step - 1, std::int64_t{0}), branch.total_steps);
  Observation seen = trainer_.Observe(&codes_);
  seen.budget = budget;
  std::erase_if(record_.observations,
                [&](const Observation& o) { return o.step == step && o.budget == budget; });
  record_.observations.push_back(std::move(seen));
}

void Run::EnterBranch(const Branch& branch) {
  const std::int64_t steps = trainer_.Steps();
  if (!record_.TrunkPointOf(steps)) {
    trainer_.UseRecipeOf(std::max(steps - 1, std::int64_t{0}), branch.total_steps);
    const Evaluation evaluation = trainer_.Evaluate(EvaluationPrecision::kTraining);
    if (!std::isfinite(evaluation.loss)) return Diverge(steps, "validation.loss");
    record_.trunk_points.push_back({steps, evaluation.loss, trainer_.Diagnose()});
  }
  if (record_.PointOf(branch)) return;
  trunk_ = trainer_.Numbers();
  trunk_codes_ = codes_;
  branch_ = branch;
}

void Run::FinishBranch() {
  trainer_.UseRecipeOf(branch_.total_steps - 1, branch_.total_steps);  // needed after Load
  BranchPoint point{branch_, trainer_.Evaluate(EvaluationPrecision::kTraining), {}};
  if (config_.evaluation.high_precision) {
    point.high = trainer_.Evaluate(EvaluationPrecision::kHigh);
  }
  if (!std::isfinite(point.training.loss) || !std::isfinite(point.high.loss)) {
    return Diverge(trainer_.Steps(), "validation.loss");
  }
  point.texts = trainer_.EvaluateTexts();
  for (const TextLoss& text : point.texts) {
    if (!IsFinite(text)) return Diverge(trainer_.Steps(), "validation.texts." + text.name);
  }
  record_.points.push_back(std::move(point));
  LeaveBranch();
}

void Run::LeaveBranch() {
  trainer_.Return(branch_.branch_step, trunk_);
  trunk_ = {};
  codes_ = std::exchange(trunk_codes_, {});
  branch_ = {};
}

void Run::Diverge(std::int64_t step, const std::string& tensor) {
  record_.diverged = {step, tensor, branch_.tokens};
  if (branch_.total_steps > 0) LeaveBranch();
}

std::int64_t Run::StepsLeft() const {
  if (Done()) return 0;
  std::int64_t left = 0, trunk_end = 0;
  for (const Branch& branch : plan_.branches) {
    if (!record_.PointOf(branch)) left += branch.total_steps - branch.branch_step;
    if (!record_.PointOf(branch)) trunk_end = branch.branch_step;
  }
  std::int64_t trunk_steps = trainer_.Steps();
  if (branch_.total_steps > 0) {
    left -= trainer_.Steps() - branch_.branch_step;
    trunk_steps = branch_.branch_step;
  } else if (trunk_steps > NextBranch()->branch_step) {
    trunk_steps = 0;  // the trunk will start over
  }
  return left + std::max(trunk_end - trunk_steps, std::int64_t{0});
}

void Run::Save(const ByteSink& sink) const {
  const IeeeArithmetic ieee;
  Json run = {{"record", ToJson(record_)},
              {"branch", {branch_.tokens, branch_.branch_step, branch_.total_steps}}};
  if (config_.diagnostics.Asked()) {
    run["codes"] = codes_.ToJson();
    run["trunk_codes"] = trunk_codes_.ToJson();
  }
  trainer_.SaveState(sink, run, trunk_);
}

void Run::Load(std::span<const std::byte> bytes, const std::string& where) {
  const IeeeArithmetic ieee;
  LoadedState state = trainer_.LoadState(bytes, where);
  if (!state.run.is_object() || !state.run.contains("record"))
    throw Error(where, "is a checkpoint of fp4lab train, not of a study");
  JsonObject run(state.run, where);
  std::vector<std::int64_t> branch;
  const Json* record = run.Member("record");
  run.Require("branch", &branch);
  const Json* codes = run.Member("codes");
  const Json* trunk_codes = run.Member("trunk_codes");
  run.Finish();
  const bool in_branch = !state.trunk.empty();
  if (record == nullptr || branch.size() != 3 || in_branch != (branch[2] > 0)) {
    throw Error(where, "does not hold the record of a study's run");
  }
  record_ = ReadRunRecord(*record, where);
  branch_ = {branch[0], branch[1], branch[2]};
  trunk_ = std::move(state.trunk);
  if (codes != nullptr) codes_ = WeightCodes::Read(*codes, run.Where("codes"));
  if (trunk_codes != nullptr) {
    trunk_codes_ = WeightCodes::Read(*trunk_codes, run.Where("trunk_codes"));
  }
  // The plan may differ from that of the saved run: abandon a branch that the plan does not have.
  const bool wanted =
      std::find(plan_.branches.begin(), plan_.branches.end(), branch_) != plan_.branches.end();
  if (branch_.total_steps > 0 && !wanted) {
    std::erase_if(record_.observations,
                  [&](const Observation& o) { return o.budget == branch_.tokens; });
    LeaveBranch();
  }
  if (!record_.DivergedIn(plan_)) record_.diverged.reset();
}

// Returns to the beginning of the trunk; the record keeps its points.
void Run::StartOver() {
  const IeeeArithmetic ieee;
  trainer_ = Trainer(config_, *corpus_);
  codes_ = {};
}

}  // namespace fp4lab::study
