// Training recipes as data: the format of each operand of each linear.
//
// Base recipes carry MaxText's and Transformer Engine's names:
//   fp32                    binary32 everywhere
//   bf16                    operands of every linear rounded to BF16
//   te_fp8_currentscaling   Float8CurrentScaling: E4M3 forward, E5M2 gradients ("fp8_format":
//                           "HYBRID"; "E4M3": both), one scale a tensor
//   te_mxfp8                MXFP8BlockScaling: E4M3 everywhere, 1x32, E8M0 rounded up (RCEIL)
//   te_nvfp4                NVFP4BlockScaling: the operand table of TE's recipe
//   te_nvfp4_no_rht         te_nvfp4 with disable_rht
//   mxfp4                   te_nvfp4's table in MXFP4: RHT 32 on wgrad, 32x32 weights;
//                           "scale_rule": "rceil" (default: amax / 6 rounded up to a power of two,
//                           what NVIDIA's papers call rounding up, arXiv 2509.25149 appendix B and
//                           2506.08027) | "ceil" (torchao's) | "floor" | "even"; "weight_block":
//                           "2d" | "1d"
//   any row of published_recipes.h, which stands for all of its members
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/nn/linear_recipe.h"

namespace fp4lab {

struct RecipeChange;
struct RecipeRule;

// A resolved recipe: every default and switch has been applied.
struct Recipe {
  std::string base = "bf16";  // the name of the base recipe
  LinearRecipe linear;        // of the selected linears; all others compute as `rest`
  // The head's GEMMs and all unselected linears: BF16 operands (as under TE, whose autocast region
  // is BF16 outside the recipe's modules), or binary32 where the base is fp32.
  LinearRecipe rest;

  // The selection of linears, all of whose conditions must hold. Names are blocks.0.attention.qkv,
  // blocks.0.attention.out, blocks.0.mlp.up, blocks.0.mlp.down; patterns are globs (* and ?) over
  // the whole name.
  std::string layers = "all";       // "all" | "mlp" (MaxText's article, not its code)
  int first_blocks_bf16 = 0;        // Megatron: --num-layers-at-start-in-bf16
  int last_blocks_bf16 = 0;         // Megatron: --num-layers-at-end-in-bf16
  double first_percent_bf16 = 0.0;  // instead, in percent of the model's blocks, rounded up
  double last_percent_bf16 = 0.0;
  std::vector<std::string> include;  // empty: all; else at least one must match
  std::vector<std::string> exclude;  // none may match

  // A list of recipes: the first rule that matches a linear gives its recipe, and what none matches
  // computes as this recipe itself (the list's "rest"). Empty: no list.
  std::vector<RecipeRule> rules;
  std::string rest_name;  // of a list: the base of its "rest"
  double share = 0.0;     // the share of the run from which on this state of a list holds

  // Changes of the recipe during the run, in order: at most one, but for lists, which change
  // wherever a rule begins or ends.
  std::vector<RecipeChange> then;

  friend bool operator==(const Recipe&, const Recipe&) = default;
};
using RecipeConfig = Recipe;

// A change to another recipe, from the step round(at * steps of the run) on; 0 < at < 1.
struct RecipeChange {
  double at = 1.0;
  Recipe recipe;

  friend bool operator==(const RecipeChange&, const RecipeChange&) = default;
};

// A rule of a list: the linears, blocks and steps that it is for, and their recipe. The recipe
// means what it means alone, its own choice of linears and its change included; it is no list.
struct RecipeRule {
  std::vector<std::string> linears = {"*"};  // globs, as Recipe::include; one must match
  // The first and the last blocks, by number or in percent rounded up; all 0: every block.
  int first_blocks = 0, last_blocks = 0;
  double first_percent = 0.0, last_percent = 0.0;
  double from = 0.0, to = 1.0;  // shares of the steps: from round(from * steps) to before `to`'s
  Recipe recipe;

  friend bool operator==(const RecipeRule&, const RecipeRule&) = default;
};

// Whether the rule is for the linear `name` in block `block` of `blocks`, at some step.
bool Matches(const RecipeRule& rule, std::string_view name, int block, int blocks);
// Whether the rule is for the steps that follow the share of the run.
inline bool HoldsAt(const RecipeRule& rule, double share) {
  return rule.from <= share && share < rule.to;
}
// The recipe of what no rule of a list is for.
Recipe RestOf(const Recipe& list);
// The rule of recipe.rules that gives the linear its recipe at recipe.share; null: none does.
const RecipeRule* RuleOf(const Recipe& recipe, std::string_view name, int block, int blocks);

// The recipe of step `step` (the first step is 0) of a run of `total_steps`.
const Recipe& RecipeAt(const Recipe& recipe, std::int64_t step, std::int64_t total_steps);
// The recipe that holds from the share of the run on.
const Recipe& RecipeAtShare(const Recipe& recipe, double share);
// The first step of the second recipe and of the last one; 0 if the recipe does not change.
std::int64_t FirstChange(const Recipe& recipe, std::int64_t total_steps);
std::int64_t LastChange(const Recipe& recipe, std::int64_t total_steps);

// Reads a name, or an object: "base" and any of
//   disable_rht, disable_stochastic_rounding, disable_2d_quantization
//       NVFP4BlockScaling's switches; mxfp4 takes them too
//   fp8_format, scale_rule, weight_block
//       options of the base recipes above
//   forward_only, backward_only
//       quantize only fprop, or only dgrad and wgrad
//   fprop {input, weight}, dgrad {grad, weight}, wgrad {grad, input}
//       operands {"format", "rounding", "random_bits", "random", "hadamard", "from",
//       "delayed_scaling", "side", "scale_window"}, each key optional (recipe_json.h); formats are
//       dialects, by name or spelled out (dialect_json.h)
//   delayed_scaling {"amax_history_len", "amax_compute_algo"} or false
//       of all operands whose tensor has a scale
//   accumulation {fprop, dgrad, wgrad: name}
//       a name of `fp4lab gemm --models`, "exact", ...; "blocks": Gemm's order
//   training_dtype
//       "bf16" | "fp32"
//   layers, include, exclude
//       Recipe's members of these names
//   first_blocks_bf16, last_blocks_bf16
//       blocks, or "15%" of them, rounded up
//   then {"at": share of the steps, "recipe"}
//       another recipe, of the same training_dtype, from there on
// A list of recipes is an object of these keys alone:
//   rules [{"linears", "blocks", "steps", "recipe"}, ...]
//       linears: a pattern or several, all when absent; blocks: {"first", "last"}, as
//       first_blocks_bf16; steps: {"from", "to"}, shares of the run; recipe: a name or an object
//   rest
//       the recipe of all linears that no rule is for; it does not change during the run
//   name
//       Recipe::base, "rules" when absent
// Applied in this order: base, its options, switches, operands, delayed_scaling, forward_only /
// backward_only. Throws Error at the JSON pointer of anything unknown or contradictory.
Recipe ReadRecipe(const Json& json, const std::string& where);
// The resolved form, with every operand spelled out; ReadRecipe gives the same Recipe back.
Json ToJson(const Recipe& recipe);

// The parts of ReadRecipe and ToJson that are for lists. Whether the JSON of a recipe is a list's:
bool IsListOfRules(const Json& json);
Recipe ReadRules(const Json& json, const std::string& where);
Json RulesJson(const Recipe& list);

// The names of the base recipes above, without the published recipes.
std::vector<std::string> RecipeNames();

// The number of floats that a run keeps for each operand's delayed scaling, in the recipe or in the
// recipe that it changes to; 0 without delayed scaling.
std::size_t AmaxHistoryFloats(const Recipe& recipe);

// Every LinearRecipe that a linear of the blocks may have, at some step; Recipe::rest is not among
// them.
std::vector<const LinearRecipe*> LinearRecipesOf(const Recipe& recipe);

// The operands in the order of LinearOperand.
std::array<const OperandRecipe*, kLinearOperands> OperandsOf(const LinearRecipe& linear);

// The recipe with the operands whose bit (1 << LinearOperand) is in `quantized` as they are, and
// the others not quantized. A transform stays on both operands of a GEMM while one is quantized.
// Recipes that this one changes to stay as they are.
Recipe WithQuantized(const Recipe& recipe, unsigned quantized);

// Whether a pattern of include or exclude matches a linear's name.
bool Matches(std::string_view pattern, std::string_view name);

// The recipe of the linear `name` in block `block` of `blocks`; of a list, at Recipe::share.
const LinearRecipe& RecipeOf(const Recipe& recipe, std::string_view name, int block, int blocks);

}  // namespace fp4lab
