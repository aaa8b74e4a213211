// Recipes that quantize some of their operands, for the shares of operands in a difference.
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/recipe/recipe.h"

namespace fp4lab {

Recipe WithQuantized(const Recipe& recipe, unsigned quantized) {
  const IeeeArithmetic ieee;
  Recipe partly = recipe;
  for (RecipeRule& rule : partly.rules) rule.recipe = WithQuantized(rule.recipe, quantized);
  unsigned bit = 1;
  for (GemmRecipe* gemm : {&partly.linear.fprop, &partly.linear.dgrad, &partly.linear.wgrad}) {
    bool any = false;
    for (OperandRecipe* operand : {&gemm->a, &gemm->b}) {
      if ((quantized & bit) == 0 || !operand->format) {
        operand->format.reset();
        operand->delayed = {};
        operand->from_fprop = false;
        operand->side = {};
        operand->scale_window = 0;
      }
      any = any || operand->format.has_value();
      bit <<= 1;
    }
    if (any) continue;
    gemm->a = {};
    gemm->b = {};
    gemm->accumulation = nullptr;
  }
  return partly;
}

}  // namespace fp4lab
