#include "fp4lab/train/model/product_widths.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab {
namespace {

int Bits(const OperandRecipe& operand, bool bf16) {
  if (operand.format) return FormatOf(operand.format->element).bits;
  return bf16 ? 16 : 32;
}

// The products of hot channels, as shares of a GEMM's, summed over the three GEMMs.
double SharesOfHotChannels(const LinearRecipe& linear, const LinearShape& shape) {
  const auto share = [](const OperandRecipe& operand, std::size_t channels) {
    return static_cast<double>(HotChannelCount(operand.side, channels)) /
           static_cast<double>(channels);
  };
  return share(linear.fprop.a, shape.in) + share(linear.dgrad.a, shape.out) +
         share(linear.wgrad.a, shape.out) + share(linear.wgrad.b, shape.in);
}

// The widths under the recipe as it is before it changes.
ProductWidths WidthsAtFirst(const Recipe& recipe, const ModelConfig& model) {
  ProductWidths widths;
  double total = 0.0;
  for (int block = 0; block < model.layers; ++block) {
    const std::string prefix = "blocks." + std::to_string(block) + ".";
    for (const Part* part : PartsOfBlock(model, block)) {
      for (const LinearShape& shape : part->linears(model)) {
        if (shape.router) continue;
        const LinearRecipe& linear = RecipeOf(recipe, prefix + shape.name, block, model.layers);
        const double products =
            shape.share * static_cast<double>(shape.in) * static_cast<double>(shape.out);
        for (const GemmRecipe* gemm : {&linear.fprop, &linear.dgrad, &linear.wgrad}) {
          widths[std::max(Bits(gemm->a, linear.bf16), Bits(gemm->b, linear.bf16))] += products;
          total += products;
        }
        const double hot = SharesOfHotChannels(linear, shape) * products;
        if (hot > 0.0) widths[linear.bf16 ? 16 : 32] += hot;
      }
    }
  }
  for (auto& [bits, share] : widths) share /= total;
  return widths;
}

}  // namespace

ProductWidths ProductWidthsOf(const Recipe& recipe, const ModelConfig& model) {
  const IeeeArithmetic ieee;
  ProductWidths widths = WidthsAtFirst(recipe, model);
  const std::vector<RecipeChange>& then = recipe.then;
  for (std::size_t i = 0; i < then.size(); ++i) {
    if (i == 0) {
      for (auto& [bits, share] : widths) share *= then[0].at;
    }
    const double end = i + 1 < then.size() ? then[i + 1].at : 1.0;
    for (const auto& [bits, share] : WidthsAtFirst(then[i].recipe, model)) {
      widths[bits] += (end - then[i].at) * share;
    }
  }
  return widths;
}

std::optional<double> ProductTime(const ProductWidths& widths) {
  const IeeeArithmetic ieee;
  double time = 0.0;
  for (const auto& [bits, share] : widths) {
    if (bits > 16) return std::nullopt;
    time += share / (bits > 8 ? 1.0 : bits > 4 ? 2.0 : 4.0);
  }
  return time;
}

}  // namespace fp4lab
