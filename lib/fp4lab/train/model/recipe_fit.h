// Whether a recipe fits a model: widths, blocks, patterns, and the rules of a list.
#pragma once

#include <string>

#include "fp4lab/train/config.h"

namespace fp4lab {

// Throws Error, at the JSON pointer of the member: for a width or a number of tokens that is no
// multiple of a block or Hadamard group of the linears' recipes; for blocks or linears of the
// recipe that the model does not have; for more hot channels than a linear has; for a rule that
// matches no linear, or none that the rules before it leave. `where`: the place of the
// configuration; `recipe_where`: of its recipe.
void CheckRecipeFits(const TrainConfig& config, const std::string& where,
                     const std::string& recipe_where);

}  // namespace fp4lab
