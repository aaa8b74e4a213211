// The plan of one run: a trunk at constant learning rate and a decay branch for each token budget.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fp4lab::study {

// The decay to one token budget D. All budgets share the trunk of a warm-up-stable-decay schedule;
// a branch leaves it at (1 - decay_fraction) * D, so that an annealed loss costs only its decay.
struct Branch {
  std::int64_t tokens = 0;       // the budget D
  std::int64_t branch_step = 0;  // trunk steps before the decay
  std::int64_t total_steps = 0;  // steps of the whole run, D / tokens a step

  friend bool operator==(const Branch&, const Branch&) = default;
};

struct RunPlan {
  std::int64_t tokens_per_step = 0;
  std::vector<Branch> branches;  // by ascending budget; not empty

  std::int64_t TrunkSteps() const { return branches.back().branch_step; }
  // All optimizer steps: those of the trunk once and those of every decay.
  std::int64_t TotalSteps() const;

  friend bool operator==(const RunPlan&, const RunPlan&) = default;
};

// Throws Error unless `budgets` (tokens) is not empty and ascending and every budget is a whole
// number of steps, from 1 to kMostSteps. The message gives the nearest valid budgets. `where` is
// the place of the list in errors.
void CheckBudgets(std::span<const std::int64_t> budgets, std::int64_t tokens_per_step,
                  const std::string& where);

}  // namespace fp4lab::study
