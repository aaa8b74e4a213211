// Training recipes as data: which linear takes which operand in which format.
//
// Base recipes carry MaxText's and Transformer Engine's names:
//   fp32                    binary32 everywhere
//   bf16                    operands of every linear rounded to BF16
//   te_fp8_currentscaling   Float8CurrentScaling: E4M3 forward, E5M2 gradients ("fp8_format":
//                           "HYBRID"; "E4M3": both), one scale a tensor
//   te_mxfp8                MXFP8BlockScaling: E4M3 everywhere, 1x32, E8M0 rounded up (RCEIL)
//   te_nvfp4                NVFP4BlockScaling: the operand table of TE's recipe
//   te_nvfp4_no_rht         the same with disable_rht
//   mxfp4                   the same table in MXFP4: RHT 32 on wgrad, 32x32 weights; "scale_rule":
//                           "rceil" (default: amax / 6 rounded up to a power of two, what NVIDIA's
//                           papers call rounding up, arXiv 2509.25149 appendix B and 2506.08027) |
//                           "ceil" (torchao's) | "floor" | "even"; "weight_block": "2d" | "1d"
//   any row of published_recipes.h, which stands for all of its members
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/nn/linear.h"

namespace fp4lab {

struct RecipeChange;

// A resolved recipe: nothing is left to a default or a switch.
struct Recipe {
  std::string base = "bf16";  // where it started
  LinearRecipe linear;        // of the selected linears; the others compute as `rest`
  // The head's GEMMs and all unselected linears: BF16 operands (as under TE, whose autocast region
  // is BF16 outside the recipe's modules), or binary32 where the base is fp32.
  LinearRecipe rest;

  // Which linears are selected: every condition must hold. Names are blocks.0.attention.qkv,
  // blocks.0.attention.out, blocks.0.mlp.up, blocks.0.mlp.down; patterns are globs (* and ?) over
  // the whole name.
  std::string layers = "all";       // "all" | "mlp" (MaxText: the MLP's GEMMs only)
  int first_blocks_bf16 = 0;        // Megatron: --num-layers-at-start-in-bf16
  int last_blocks_bf16 = 0;         // Megatron: --num-layers-at-end-in-bf16
  double first_percent_bf16 = 0.0;  // instead, in percent of the model's blocks, rounded up
  double last_percent_bf16 = 0.0;
  std::vector<std::string> include;  // empty: all; else at least one must match
  std::vector<std::string> exclude;  // none may match

  // Changes of the recipe during the run; at most one.
  std::vector<RecipeChange> then;

  friend bool operator==(const Recipe&, const Recipe&) = default;
};
using RecipeConfig = Recipe;

// From the step round(at * steps of the run) on another recipe holds; 0 < at < 1.
struct RecipeChange {
  double at = 1.0;
  Recipe recipe;

  friend bool operator==(const RecipeChange&, const RecipeChange&) = default;
};

// The recipe of a step, which counts from 0, of a run of `total_steps`.
const Recipe& RecipeAt(const Recipe& recipe, std::int64_t step, std::int64_t total_steps);
// The first step of the last recipe; 0 where there is one only.
std::int64_t LastChange(const Recipe& recipe, std::int64_t total_steps);

// A name, or an object: "base" and any of
//   disable_rht, disable_stochastic_rounding, disable_2d_quantization (NVFP4BlockScaling's
//   switches; mxfp4 takes them too), fp8_format, scale_rule, weight_block, forward_only,
//   backward_only (quantize only fprop, or only dgrad and wgrad), fprop {input, weight}, dgrad
//   {grad, weight}, wgrad {grad, input}: operands
//     {"format", "rounding", "random_bits", "random", "hadamard", "from", "delayed_scaling"}, each
//     key optional (recipe_json.h); formats are dialects, by name or spelled out (dialect_json.h),
//   delayed_scaling {"amax_history_len", "amax_compute_algo"} or false: of all operands whose
//   tensor has a scale, accumulation {fprop, dgrad, wgrad: a name of `fp4lab gemm --models`,
//   "exact", ...; "blocks"}, training_dtype ("bf16" | "fp32"), layers, first_blocks_bf16 and
//   last_blocks_bf16 (blocks, or "15%" of them, rounded up), include, exclude, then {"at": share of
//   the steps, "recipe"}: another recipe, of the same training_dtype, from there on.
// Applied in this order: base, its options, switches, operands, delayed_scaling, forward_only /
// backward_only.
// Error at the JSON pointer for what is unknown or contradicts itself.
Recipe ReadRecipe(const Json& json, const std::string& where);
// The resolved form, every operand spelled out; ReadRecipe gives the same Recipe back.
Json ToJson(const Recipe& recipe);

// The base recipes above, without the published ones.
std::vector<std::string> RecipeNames();

// Floats that a run keeps of each operand for delayed scaling, in the recipe or in the one that it
// changes to; 0 where there is none.
std::size_t AmaxHistoryFloats(const Recipe& recipe);

// The operands in the order of LinearOperand.
std::array<const OperandRecipe*, kLinearOperands> OperandsOf(const LinearRecipe& linear);

// Whether a pattern of include or exclude holds for a linear's name.
bool Matches(std::string_view pattern, std::string_view name);

// What the linear `name` of block `block` (of `blocks`) computes with.
const LinearRecipe& RecipeOf(const Recipe& recipe, std::string_view name, int block, int blocks);

}  // namespace fp4lab
