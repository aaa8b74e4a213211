#include "fp4lab/train/model/product_widths.h"

#include <cmath>
#include <string>

#include "fp4lab/recipe/published_recipes.h"
#include "fp4lab/train/model/shapes.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

ProductWidths WidthsOf(const Json& recipe, const ModelConfig& model = {}) {
  return ProductWidthsOf(ReadRecipe(recipe, "test"), model);
}

bool Near(double a, double b) { return std::abs(a - b) < 1e-12; }

TEST_CASE("Products of uniform recipes have the width of the wider operand", "[train]") {
  CHECK(WidthsOf("bf16") == ProductWidths{{16, 1.0}});
  CHECK(WidthsOf("fp32") == ProductWidths{{32, 1.0}});
  CHECK(WidthsOf("te_nvfp4") == ProductWidths{{4, 1.0}});
  CHECK(WidthsOf("te_mxfp8") == ProductWidths{{8, 1.0}});
  const Json mixed = {{"base", "te_nvfp4"},
                      {"fprop", {{"input", {{"format", "mxfp8_e4m3.rceil"}}}}}};
  const ProductWidths widths = WidthsOf(mixed);
  CHECK(widths.size() == 2);
  CHECK(Near(widths.at(8), 1.0 / 3));
  CHECK(Near(widths.at(4), 2.0 / 3));
  const Json plain_operand = {{"base", "te_nvfp4"}, {"wgrad", {{"grad", {{"format", "none"}}}}}};
  CHECK(Near(WidthsOf(plain_operand).at(16), 1.0 / 3));
}

TEST_CASE("The linears of a selection count by their sizes", "[train]") {
  ModelConfig model;
  model.layers = 5;
  model.d_model = 64;
  model.heads = 4;
  model.kv_heads = 2;
  model.ffn = 96;
  model.activation = Activation::kSwiglu;
  const double attention = 64 * (64 + 2 * 32) + 64 * 64, mlp = 64 * (2 * 96) + 96 * 64;
  const double share = mlp / (attention + mlp);
  const ProductWidths widths =
      WidthsOf({{"base", "te_nvfp4"}, {"layers", "mlp"}, {"last_blocks_bf16", 2}}, model);
  CHECK(Near(widths.at(4), share * 3 / 5));
  CHECK(Near(widths.at(16), 1 - share * 3 / 5));
  const Json last = {{"base", "te_nvfp4"},
                     {"then", {{"at", 0.75}, {"recipe", {{"base", "te_mxfp8"}}}}}};
  const ProductWidths changed = WidthsOf(last, model);
  CHECK(Near(changed.at(4), 0.75));
  CHECK(Near(changed.at(8), 0.25));
}

TEST_CASE("The time of products counts each width at its rate", "[train]") {
  CHECK(ProductTime({{16, 1.0}}) == 1.0);
  CHECK(ProductTime({{8, 1.0}}) == 0.5);
  CHECK(ProductTime({{6, 1.0}}) == 0.5);
  CHECK(ProductTime({{4, 1.0}}) == 0.25);
  CHECK(ProductTime({{4, 0.5}, {16, 0.5}}) == 0.625);
  CHECK_FALSE(ProductTime({{4, 0.5}, {32, 0.5}}).has_value());
}

}  // namespace
}  // namespace fp4lab
