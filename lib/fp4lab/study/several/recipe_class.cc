#include "fp4lab/study/several/recipe_class.h"

#include <algorithm>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/train/model/linear_plan.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab::study {
namespace {

int BitsOf(const OperandRecipe& operand) {
  return operand.format ? FormatOf(operand.format->element).bits : 16;
}
int BitsOf(const GemmRecipe& gemm) { return std::max(BitsOf(gemm.a), BitsOf(gemm.b)); }

// The recipe of the linears that a recipe selects; of a list, that of fewest bits forward, the
// first of equal ones.
const LinearRecipe& MainOf(const Recipe& recipe) {
  const LinearRecipe* main = &recipe.linear;
  for (const RecipeRule& rule : recipe.rules) {
    const LinearRecipe& linear = rule.recipe.linear;
    if (BitsOf(linear.fprop) < BitsOf(main->fprop)) main = &linear;
  }
  return *main;
}

// What a recipe selects of a model's blocks.
struct Selection {
  bool some_linears = false;  // of a block, not all
  bool some_blocks = false;   // of the model, not all
};

Selection SelectionOf(const Recipe& recipe, const ModelConfig& model) {
  Selection selection;
  const LinearPlan plan(model, recipe);
  const std::vector<int> block_of = MakeLayout(model).block_of_linear;
  std::vector<int> all(static_cast<std::size_t>(model.layers)), selected(all.size());
  for (std::size_t linear = 0; linear < block_of.size(); ++linear) {
    const auto block = static_cast<std::size_t>(block_of[linear]);
    ++all[block];
    const LinearRecipe& own = plan.RecipeOf({}, linear);
    const bool main = recipe.rules.empty() ? &own != &plan.Rest() : own == MainOf(recipe);
    if (main) ++selected[block];
  }
  int blocks = 0;
  for (std::size_t block = 0; block < all.size(); ++block) {
    selection.some_linears |= selected[block] > 0 && selected[block] < all[block];
    blocks += selected[block] > 0 ? 1 : 0;
  }
  selection.some_blocks = blocks < model.layers;
  return selection;
}

}  // namespace

ForwardClass ForwardClassOf(const Recipe& recipe) {
  const GemmRecipe& fprop = MainOf(recipe).fprop;
  if (BitsOf(fprop) > 8) return ForwardClass::kWide;
  if (BitsOf(fprop) > 4) return ForwardClass::k8Bits;
  const Dialect& input = *fprop.a.format;
  if (input.element != FormatId::kE2M1) return ForwardClass::kOther4;
  if (input.block_cols == 0) return ForwardClass::kOther4;  // one scale for a tensor or a row
  if (input.scale == FormatId::kE8M0) return ForwardClass::kMxfp4;
  return input.scale == FormatId::kE4M3 && input.block_cols == 16 &&
                 input.tensor_scale != TensorScaleRule::kNone
             ? ForwardClass::kNvfp4
             : ForwardClass::kOther4;
}

std::size_t PlanClassOf(const Recipe& recipe, const ModelConfig& model) {
  const IeeeArithmetic ieee;
  const LinearRecipe& main = MainOf(recipe);
  const int forward = BitsOf(main.fprop);
  const int backward = std::max(BitsOf(main.dgrad), BitsOf(main.wgrad));
  if (forward > 4) return backward > 4 ? kEightBitPlan : forward > 8 ? 1 : 2;
  if (!recipe.then.empty()) return 11;
  const Selection selection = SelectionOf(recipe, model);
  if (selection.some_linears) return 9;
  const ForwardClass scales = ForwardClassOf(recipe);
  if (selection.some_blocks) return scales == ForwardClass::kMxfp4 ? 10 : 8;
  if (scales == ForwardClass::kOther4) return 5;
  if (scales == ForwardClass::kMxfp4) return backward > 4 ? 6 : 7;
  return backward > 4 ? 3 : kNvfp4Plan;
}

bool IsPartial(const Recipe& recipe, const ModelConfig& model) {
  const IeeeArithmetic ieee;
  const Selection selection = SelectionOf(recipe, model);
  return !recipe.then.empty() || selection.some_linears || selection.some_blocks;
}

RecipeExtras ExtrasOf(const Recipe& recipe) {
  RecipeExtras extras;
  for (const OperandRecipe* operand : OperandsOf(MainOf(recipe))) {
    extras.hadamard += operand->hadamard != 0 ? 1 : 0;
    if (!operand->format) continue;
    extras.stochastic += IsStochastic(*operand->format) ? 1 : 0;
    extras.two_scales += operand->format->adaptive != Adaptive::kNo ? 1 : 0;
    extras.ms_eden += operand->format->unbias != Unbias::kNone ? 1 : 0;
  }
  return extras;
}

}  // namespace fp4lab::study
