// One operand of a recipe as JSON, for the six operands of ReadRecipe and ToJson.
#pragma once

#include <string>

#include "fp4lab/io/json.h"
#include "fp4lab/nn/linear_recipe.h"

namespace fp4lab {

// Overwrites the members of *operand whose keys are there:
//   "format"       "none", or a dialect as ReadDialect reads it (dialect_json.h)
//   "rounding"     "nearest_even" (the format's own), "toward_zero" or "stochastic"
//   "random_bits"  bits of stochastic rounding: 4, 8, 16 or 32 an element
//   "random"       the generator of these bits: philox | transformer_engine (of 8 bits an
//                  element) | linear_counter | word_per_row
//   "hadamard"     0 (none), 2, 4 .. 128, or {"size", "signs": te | none | seeded | fresh}
//   "from"         "tensor", or "fprop": the tensor that fprop's operand decodes to (dgrad's
//                  weight, wgrad's input)
//   "delayed_scaling"  false, or ReadDelayed's object: the operand is quantized with the amaxes of
//                  the steps before; for formats with one scale for the tensor
//   "side"         "none", "mean", or {"term": mean | columns | patch, "channels": hot channels, 8
//                  or "1%", "by": amax (when absent) | norm}: what of the tensor stays in high
//                  precision (nn/side/side_term.h). For fprop's input, wgrad's input and
//                  gradients; "patch" needs a format, no transform and no accumulation
//   "scale_window" 0, or 64 or 128: elements along the reduction axis that share an outer scale, in
//                  each row. For formats with a tensor scale above blocks of one row
void ReadOperand(const Json& json, const std::string& where, OperandRecipe* operand);
Json ToJson(const OperandRecipe& operand);
// Reads the member "delayed_scaling": false, or {"amax_history_len": steps, 1024 when absent,
// "amax_compute_algo": "max" (when absent) | "most_recent"}, Transformer Engine's names.
void ReadDelayed(JsonObject* o, DelayedScaling* delayed);
// Whether the operand has one tensor scale, as delayed scaling needs.
bool CanBeDelayed(const OperandRecipe& operand);
// An operand of the resolved JSON in words: "nvfp4.te, stochastic, H16"; "-": not quantized.
std::string OperandText(const Json& operand);
Json HadamardJson(const OperandRecipe& operand);
// The value of "side"; "none" without a side term.
Json SideJson(const SideTerm& side);

}  // namespace fp4lab
