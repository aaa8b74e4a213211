// The drawing of a recipe: the operands of a linear's three products.
#include <array>

#include "fp4lab/base/error.h"
#include "fp4lab/io/json.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/recipe/recipe_json.h"
#include "fp4lab/study/draw/draw_figures.h"

namespace fp4lab::study {
namespace {

constexpr double kFlowTop = 60, kGemmHeight = 116, kOperandHeight = 42, kOperandWidth = 330;
constexpr double kProductLeft = 440, kProductWidth = 176;

struct GemmRow {
  const char *name, *formula, *result, *first, *second, *first_tensor, *second_tensor;
};
constexpr std::array kGemmRows = {
    GemmRow{"fprop", "y = x w^T", "y", "input", "weight", "x", "w"},
    GemmRow{"dgrad", "dx = dy w", "dx", "grad", "weight", "dy", "w"},
    GemmRow{"wgrad", "dw = dy^T x", "dw", "grad", "input", "dy", "x"}};

void DrawOperand(Svg* svg, double top, const std::string& name, const std::string& text) {
  const bool quantized = text != "-";
  const std::string colour = quantized ? "s1" : "s0";
  svg->Rect(kDrawingInset, top, kOperandWidth, kOperandHeight, "soft " + colour);
  svg->Text({kDrawingInset + 10, top + 17}, name, "t strong");
  svg->Text({kDrawingInset + 10, top + 34}, quantized ? text : "not quantized", "t small");
}

void DrawGemm(Svg* svg, const GemmRow& gemm, const Json& recipe, double top) {
  const Json& operands = recipe.at(gemm.name);
  const double gap = 10, middle = top + kOperandHeight + gap / 2;
  DrawOperand(svg, top, std::string(gemm.first_tensor) + ", " + gemm.name + "." + gemm.first,
              OperandText(operands.at(gemm.first)));
  DrawOperand(svg, top + kOperandHeight + gap,
              std::string(gemm.second_tensor) + ", " + gemm.name + "." + gemm.second,
              OperandText(operands.at(gemm.second)));
  const double right = kDrawingInset + kOperandWidth;
  for (const double y : {top + kOperandHeight / 2, top + kOperandHeight * 1.5 + gap}) {
    svg->Line({right, y}, {kProductLeft - 34, y}, "thin s0");
    svg->Line({kProductLeft - 34, y}, {kProductLeft - 34, middle}, "thin s0");
  }
  DrawArrow(svg, {kProductLeft - 34, middle}, {kProductLeft, middle}, "s0");
  svg->Rect(kProductLeft, middle - 24, kProductWidth, 48, "soft s2");
  svg->Text({kProductLeft + kProductWidth / 2, middle - 4}, gemm.name, "t strong", Anchor::kMiddle);
  svg->Text({kProductLeft + kProductWidth / 2, middle + 15}, gemm.formula, "t small",
            Anchor::kMiddle);
  const double end = kProductLeft + kProductWidth;
  DrawArrow(svg, {end, middle}, {end + 50, middle}, "s0");
  svg->Text({end + 60, middle + 5}, gemm.result, "t strong");
}

}  // namespace

std::string DrawDataflow(const std::vector<std::string>& recipe) {
  const Json resolved = ToJson(ReadRecipe(recipe[0], "draw dataflow"));
  if (IsListOfRules(resolved)) {
    throw Error(
        "draw dataflow " + recipe[0],
        "is a list of rules; draw the recipes that `fp4lab recipes " + recipe[0] + "` names");
  }
  Svg svg(kDrawingWidth, kFlowTop + kGemmHeight * 3 + 4, "The operands of " + recipe[0],
          "A row per product: its two operands with their dialects, the product, and its result.");
  DrawTitle(&svg, "A linear under " + recipe[0]);
  svg.Text({kDrawingInset, 47}, "x: input, w: weight, y: output; dx, dw, dy: their gradients",
           "t small muted");
  double top = kFlowTop;
  for (const GemmRow& gemm : kGemmRows) {
    DrawGemm(&svg, gemm, resolved, top);
    top += kGemmHeight;
  }
  return svg.Document(true);
}

}  // namespace fp4lab::study
