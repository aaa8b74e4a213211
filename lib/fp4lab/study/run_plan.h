// The plan of one run: a trunk at constant learning rate and a decay branch for each token budget.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fp4lab::study {

// Warm-up, stable and decay give one annealed loss a budget D at the price of the decay alone: the
// trunk is shared, and at (1 - decay_fraction) * D it is left for the decay to D.
struct Branch {
  std::int64_t tokens = 0;       // the budget D
  std::int64_t branch_step = 0;  // trunk steps before the decay
  std::int64_t total_steps = 0;  // steps of the whole run, D / tokens a step

  friend bool operator==(const Branch&, const Branch&) = default;
};

struct RunPlan {
  std::int64_t tokens_per_step = 0;
  std::vector<Branch> branches;  // ascending

  std::int64_t TrunkSteps() const { return branches.back().branch_step; }
  // All optimizer steps: the trunk once and every decay.
  std::int64_t TotalSteps() const;

  friend bool operator==(const RunPlan&, const RunPlan&) = default;
};

// The budgets that a plan accepts are whole, ascending numbers of steps. `where` names the list in
// errors. Throws Error, with the nearest budgets that would do.
void CheckBudgets(std::span<const std::int64_t> budgets, std::int64_t tokens_per_step,
                  const std::string& where);

}  // namespace fp4lab::study
