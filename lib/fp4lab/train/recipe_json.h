// One operand of a recipe as JSON (what ReadRecipe and ToJson use for each of the six).
#pragma once

#include <string>

#include "fp4lab/io/json.h"
#include "fp4lab/nn/linear.h"

namespace fp4lab {

// Overwrites the members whose keys are there. {"format": ..., "rounding": ..., "hadamard": ...}
void ReadOperand(const Json& json, const std::string& where, OperandRecipe* operand);
Json ToJson(const OperandRecipe& operand);

// A block format: its name where kBlockFormats has one, else an object
// {"element": "e2m1", "scale": "e8m0", "block": [1, 16], "rule": "ceil"}.
BlockFormat ReadBlockFormat(const Json& json, const std::string& where);
Json ToJson(const BlockFormat& format);

}  // namespace fp4lab
