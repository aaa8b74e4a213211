// Lists of recipes as JSON: {"rules": [...], "rest"}; recipe.h states the keys.
#pragma once

#include <string>

#include "fp4lab/io/json.h"
#include "fp4lab/recipe/recipe.h"

namespace fp4lab {

// Whether the JSON of a recipe is a list's.
bool IsListOfRules(const Json& json);
// Throws Error at the JSON pointer of anything unknown or contradictory.
Recipe ReadRules(const Json& json, const std::string& where);
// The resolved form of a list: every rule with all members, every recipe spelled out.
Json RulesJson(const Recipe& list);

// The shares of the run from which on a list differs from before, ascending; 0 is not among them.
std::vector<double> ChangesOf(const Recipe& list);

}  // namespace fp4lab
