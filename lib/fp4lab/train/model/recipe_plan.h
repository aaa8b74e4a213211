// Which linears of a model compute under which recipe, and when: the plan of a run.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/train/config.h"

namespace fp4lab {

// Linears of one recipe. The head is none of a block and computes as Recipe::rest; a router
// multiplies in binary32.
struct RecipePlanRow {
  std::string steps;    // "all", or shares of the run: "0-0.85"
  std::string blocks;   // "all", "0-22", "0, 3-5"
  std::string linears;  // "all", or names within a block: "mlp.up, mlp.down"; "*" for all experts
  std::string recipe;   // a recipe's name; " (changed)" follows where an arm changes its operands
  std::string rule;     // of a list: the rule's index, or "rest"; else empty
};

// Every linear at every step stands in one row.
std::vector<RecipePlanRow> RecipePlanOf(const Recipe& recipe, const ModelConfig& model);

}  // namespace fp4lab
