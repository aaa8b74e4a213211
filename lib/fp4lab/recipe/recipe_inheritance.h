// What an operand keeps of a base recipe although a recipe gives it another format.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab {

// A recipe's JSON that gives an operand a "format" replaces the format alone: stochastic rounding,
// the Hadamard transform, the source ("from") and delayed scaling of the base stay, unless a key of
// their own replaces them. One line per such operand, as "study.json#/arms/a/recipe/dgrad/grad:
// keeps stochastic rounding with 16 bits of te_nvfp4; ...". `recipe` is one that ReadRecipe reads.
std::vector<std::string> InheritedParts(const Json& recipe, const std::string& where);

}  // namespace fp4lab
