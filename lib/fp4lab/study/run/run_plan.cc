#include "fp4lab/study/run/run_plan.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/train/config.h"

namespace fp4lab::study {

std::int64_t RunPlan::TotalSteps() const {
  std::int64_t steps = TrunkSteps();
  for (const Branch& branch : branches) steps += branch.total_steps - branch.branch_step;
  return steps;
}

void CheckBudgets(std::span<const std::int64_t> budgets, std::int64_t tokens_per_step,
                  const std::string& where) {
  if (budgets.empty()) throw Error(where, "needs at least one number of tokens");
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    const std::string place = where + "/" + std::to_string(i);
    const std::int64_t tokens = budgets[i];
    const std::int64_t below = tokens / tokens_per_step * tokens_per_step;
    if (tokens <= 0 || below != tokens) {
      std::string remedy = std::to_string(std::max(below, std::int64_t{0}) + tokens_per_step);
      if (below > 0) remedy = std::to_string(below) + " or " + remedy;
      throw Error(place, std::to_string(tokens) + " tokens are not a whole number of steps of " +
                             std::to_string(tokens_per_step) + " tokens; the nearest are " +
                             remedy);
    }
    if (tokens / tokens_per_step > kMostSteps) {
      throw Error(place, std::to_string(tokens) + " tokens are " +
                             std::to_string(tokens / tokens_per_step) + " steps; at most " +
                             std::to_string(kMostSteps));
    }
    if (i > 0 && budgets[i - 1] >= tokens) {
      throw Error(place, "budgets must ascend, and " + std::to_string(tokens) + " follows " +
                             std::to_string(budgets[i - 1]));
    }
  }
}

}  // namespace fp4lab::study
