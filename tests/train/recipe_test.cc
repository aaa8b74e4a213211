#include "fp4lab/recipe/recipe.h"

#include <functional>

#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

Recipe Read(const Json& json) { return ReadRecipe(json, "run.json#/recipe"); }

std::string ReadError(const Json& json) {
  return ErrorOf([&] { Read(json); });
}

OperandRecipe Operand(const char* format, ElementRounding rounding, int hadamard) {
  Dialect d = *FindDialect(format);
  d.rounding = rounding;
  return {.format = d, .hadamard = hadamard};
}
constexpr ElementRounding kRn = ElementRounding::kNearestEven, kSr = ElementRounding::kStochastic16;

void CheckLinear(const LinearRecipe& linear, const LinearRecipe& expected) {
  CHECK(linear.bf16 == expected.bf16);
  CHECK(linear.fprop.a == expected.fprop.a);
  CHECK(linear.fprop.b == expected.fprop.b);
  CHECK(linear.dgrad.a == expected.dgrad.a);
  CHECK(linear.dgrad.b == expected.dgrad.b);
  CHECK(linear.wgrad.a == expected.wgrad.a);
  CHECK(linear.wgrad.b == expected.wgrad.b);
}

TEST_CASE("te_nvfp4 is the operand table of NVFP4BlockScaling", "[train]") {
  CheckLinear(Read("te_nvfp4").linear, {true,
                                        {Operand("nvfp4", kRn, 0), Operand("nvfp4.2d", kRn, 0)},
                                        {Operand("nvfp4", kSr, 0), Operand("nvfp4.2d", kRn, 0)},
                                        {Operand("nvfp4", kSr, 16), Operand("nvfp4", kRn, 16)}});
}

TEST_CASE("te_nvfp4_no_rht differs from te_nvfp4 by disable_rht alone", "[train]") {
  const Recipe by_name = Read("te_nvfp4_no_rht");
  Recipe by_switch = Read({{"base", "te_nvfp4"}, {"disable_rht", true}});
  CHECK(by_name.linear.wgrad.a == Operand("nvfp4", kSr, 0));
  CHECK(by_name.linear.wgrad.b == Operand("nvfp4", kRn, 0));
  by_switch.base = by_name.base;
  CHECK(by_switch == by_name);
}

TEST_CASE("The switches of NVFP4BlockScaling change what their names say", "[train]") {
  const LinearRecipe rounded =
      Read({{"base", "te_nvfp4"}, {"disable_stochastic_rounding", true}}).linear;
  CHECK(rounded.dgrad.a == Operand("nvfp4", kRn, 0));
  CHECK(rounded.wgrad.a == Operand("nvfp4", kRn, 16));
  const LinearRecipe lines = Read({{"base", "te_nvfp4"}, {"disable_2d_quantization", true}}).linear;
  CHECK(lines.fprop.b == Operand("nvfp4", kRn, 0));
  CHECK(lines.dgrad.b == Operand("nvfp4", kRn, 0));
  CHECK(lines.dgrad.a == Operand("nvfp4", kSr, 0));
}

TEST_CASE("mxfp4 is the same table with blocks of 32 and the stated scale rule", "[train]") {
  CheckLinear(Read("mxfp4").linear,
              {true,
               {Operand("mxfp4.rceil", kRn, 0), Operand("mxfp4.rceil.2d", kRn, 0)},
               {Operand("mxfp4.rceil", kSr, 0), Operand("mxfp4.rceil.2d", kRn, 0)},
               {Operand("mxfp4.rceil", kSr, 32), Operand("mxfp4.rceil", kRn, 32)}});
  for (const char* rule : {"floor", "ceil", "even"}) {
    const Recipe recipe = Read({{"base", "mxfp4"}, {"scale_rule", rule}, {"weight_block", "1d"}});
    const std::string name = std::string("mxfp4.") + rule;
    CHECK(recipe.linear.fprop.b == Operand(name.c_str(), kRn, 0));
    CHECK(recipe.linear.wgrad.a == Operand(name.c_str(), kSr, 32));
  }
}

TEST_CASE("FP8 recipes: HYBRID takes E5M2 for gradients, MXFP8 takes E4M3 everywhere", "[train]") {
  CheckLinear(Read("te_fp8_currentscaling").linear,
              {true,
               {Operand("fp8_e4m3", kRn, 0), Operand("fp8_e4m3", kRn, 0)},
               {Operand("fp8_e5m2", kRn, 0), Operand("fp8_e4m3", kRn, 0)},
               {Operand("fp8_e5m2", kRn, 0), Operand("fp8_e4m3", kRn, 0)}});
  const Recipe e4m3 = Read({{"base", "te_fp8_currentscaling"}, {"fp8_format", "E4M3"}});
  CHECK(e4m3.linear.dgrad.a == Operand("fp8_e4m3", kRn, 0));
  const LinearRecipe mx = Read("te_mxfp8").linear;
  for (const GemmRecipe& gemm : {mx.fprop, mx.dgrad, mx.wgrad}) {
    CHECK(gemm.a == Operand("mxfp8_e4m3.rceil", kRn, 0));
    CHECK(gemm.b == Operand("mxfp8_e4m3.rceil", kRn, 0));
  }
}

TEST_CASE("forward_only and backward_only leave the other GEMMs in BF16", "[train]") {
  const Recipe full = Read("te_nvfp4");
  const Recipe forward = Read({{"base", "te_nvfp4"}, {"forward_only", true}});
  CHECK(forward.linear.fprop == full.linear.fprop);
  CHECK(forward.linear.dgrad == GemmRecipe{});
  CHECK(forward.linear.wgrad == GemmRecipe{});
  const Recipe backward = Read({{"base", "te_nvfp4"}, {"backward_only", true}});
  CHECK(backward.linear.fprop == GemmRecipe{});
  CHECK(backward.linear.wgrad == full.linear.wgrad);
  CHECK(backward.linear.bf16);
}

TEST_CASE("An operand can be overridden, by name or spelled out", "[train]") {
  const Recipe recipe = Read(
      {{"base", "te_nvfp4"},
       {"fprop",
        {{"input", {{"format", "mxfp4.ceil"}}},
         {"weight",
          {{"format",
            {{"element", "e2m1"}, {"scale", "e8m0"}, {"block", {1, 16}}, {"rule", "ceil"}}}}}}}});
  CHECK(recipe.linear.fprop.a == Operand("mxfp4.ceil", kRn, 0));
  const Dialect custom = Canonical(DialectUnder(BlockScale::kCeil, FormatId::kE2M1, 1, 16));
  CHECK(recipe.linear.fprop.b.format == custom);
  CHECK(recipe.linear.dgrad == Read("te_nvfp4").linear.dgrad);
}

TEST_CASE("The resolved JSON reads back as the same recipe", "[train]") {
  std::vector<Json> recipes;
  for (const std::string& name : RecipeNames()) recipes.push_back(name);
  CHECK(recipes.size() == 7);
  recipes.push_back({{"base", "mxfp4"}, {"scale_rule", "even"}, {"weight_block", "1d"}});
  recipes.push_back({{"base", "te_nvfp4"}, {"forward_only", true}, {"layers", "mlp"}});
  recipes.push_back({{"base", "te_nvfp4"}, {"backward_only", true}, {"last_blocks_bf16", 1}});
  recipes.push_back({{"base", "te_nvfp4"}, {"include", {"*.mlp.*"}}, {"exclude", {"blocks.0.*"}}});
  recipes.push_back(
      {{"base", "bf16"},
       {"training_dtype", "fp32"},
       {"wgrad",
        {{"grad",
          {{"format",
            {{"element", "e2m1"}, {"scale", "e4m3"}, {"block", {1, 32}}, {"rule", "nvfp4"}}},
           {"rounding", "stochastic"}}}}}});
  recipes.push_back(
      {{"base", "te_nvfp4"},
       {"dgrad", {{"grad", {{"random_bits", 8}, {"random", "transformer_engine"}}}}}});
  for (const Json& json : recipes) {
    const Recipe recipe = Read(json);
    CAPTURE(json.dump());
    CHECK(Read(ToJson(recipe)) == recipe);
    CHECK(ToJson(Read(ToJson(recipe))) == ToJson(recipe));
  }
}

TEST_CASE("Which linears are quantized follows layers, blocks and patterns", "[train]") {
  const auto selected = [](const Recipe& r, std::string_view name, int block) {
    return &RecipeOf(r, name, block, 4) == &r.linear;
  };
  const Recipe all = Read("te_nvfp4");
  CHECK(selected(all, "blocks.0.attention.qkv", 0));
  CHECK(selected(all, "blocks.3.mlp.down", 3));
  const Recipe mlp = Read({{"base", "te_nvfp4"}, {"layers", "mlp"}});
  CHECK_FALSE(selected(mlp, "blocks.1.attention.out", 1));
  CHECK(selected(mlp, "blocks.1.mlp.up", 1));
  const Recipe ends =
      Read({{"base", "te_nvfp4"}, {"first_blocks_bf16", 1}, {"last_blocks_bf16", 2}});
  CHECK_FALSE(selected(ends, "blocks.0.mlp.up", 0));
  CHECK(selected(ends, "blocks.1.mlp.up", 1));
  CHECK_FALSE(selected(ends, "blocks.2.mlp.up", 2));
  const Recipe named = Read({{"base", "te_nvfp4"},
                             {"include", {"blocks.?.mlp.*", "*.qkv"}},
                             {"exclude", {"blocks.1.*"}}});
  CHECK(selected(named, "blocks.2.attention.qkv", 2));
  CHECK(selected(named, "blocks.2.mlp.down", 2));
  CHECK_FALSE(selected(named, "blocks.2.attention.out", 2));
  CHECK_FALSE(selected(named, "blocks.1.mlp.down", 1));
  CHECK(RecipeOf(named, "blocks.1.mlp.down", 1, 4) == LinearRecipe{});
}

TEST_CASE("A pattern of any length and any number of stars is matched at once", "[train]") {
  const auto selects = [](const std::string& pattern, const std::string& name) {
    const Recipe recipe = Read({{"base", "te_nvfp4"}, {"include", {pattern}}});
    return &RecipeOf(recipe, name, 0, 1) == &recipe.linear;
  };
  const std::string name = "blocks.0.mlp.down";
  CHECK_FALSE(selects(std::string(25, '*') + "x", name));
  CHECK(selects(std::string(1'000'000, '*'), name));
  CHECK(selects(std::string(1'000'000, '*') + "down", name));
  CHECK_FALSE(selects(std::string(1'000'000, '?'), name));
  CHECK(selects("*?????", name));
  CHECK(selects("b*0.m*n", name));
  CHECK(selects("*own*", name));
  CHECK(selects("*.*.*.*", name));
  CHECK_FALSE(selects("*.*.*.*.*", name));
  CHECK_FALSE(selects("b*0.m*w", name));
  CHECK_FALSE(selects("", name));
}

TEST_CASE("Recipes that cannot be are refused at their JSON pointer", "[train]") {
  CHECK(ReadError("te_nvfp5")
            .find("run.json#/recipe: unknown recipe \"te_nvfp5\"; did you mean \"te_nvfp4\"?") ==
        0);
  CHECK(ReadError({{"base", "te_nvfp4"}, {"delayed_scaling", {{"amax_history_len", 0}}}})
            .find("run.json#/recipe/delayed_scaling/amax_history_len: must be 1 to") == 0);
  CHECK(ReadError({{"base", "te_nvfp4"}, {"delayed_scaling", {{"amax_compute_algo", "mean"}}}})
            .find("run.json#/recipe/delayed_scaling/amax_compute_algo: must be \"max\"") == 0);
  CHECK(ReadError({{"base", "mxfp4"}, {"delayed_scaling", Json::object()}})
            .find("run.json#/recipe/delayed_scaling: no operand has a scale") == 0);
  CHECK(
      ReadError({{"base", "mxfp4"}, {"fprop", {{"input", {{"delayed_scaling", Json::object()}}}}}})
          .find("run.json#/recipe/fprop/input/delayed_scaling: is for formats") == 0);
  CHECK(ReadError({{"base", "x"}}).find("run.json#/recipe/base: unknown recipe") == 0);
  CHECK(ReadError({{"base", "bf16"}, {"disable_rht", true}}).find("run.json#/recipe/disable_rht") ==
        0);
  CHECK(ReadError({{"base", "te_nvfp4"}, {"scale_rule", "ceil"}})
            .find("run.json#/recipe/scale_rule: unknown key") == 0);
  CHECK(ReadError({{"base", "mxfp4"}, {"scale_rule", "up"}})
            .find("run.json#/recipe/scale_rule: must be one of \"rceil\"") == 0);
  CHECK(ReadError({{"base", "te_nvfp4"}, {"wgrad", {{"grad", {{"hadamard", 0}}}}}})
            .find("run.json#/recipe/wgrad: both operands of a GEMM need the same") == 0);
  CHECK(ReadError({{"base", "te_nvfp4"}, {"training_dtype", "fp32"}})
            .find("run.json#/recipe/wgrad: the Hadamard transform needs") == 0);
  CHECK(ReadError({{"base", "te_nvfp4"}, {"forward_only", true}, {"backward_only", true}})
            .find("run.json#/recipe/backward_only: contradicts") == 0);
  CHECK(ReadError({{"base", "te_nvfp4"}, {"fprop", {{"grad", Json::object()}}}})
            .find("run.json#/recipe/fprop/grad: unknown key") == 0);
  CHECK(ReadError({{"base", "te_nvfp4"}, {"fprop", {{"input", {{"format", "fp3"}}}}}})
            .find("run.json#/recipe/fprop/input/format: unknown format \"fp3\"") == 0);
  CHECK(ReadError({{"base", "te_nvfp4"},
                   {"dgrad", {{"grad", {{"format", "none"}, {"rounding", "stochastic"}}}}}})
            .find("run.json#/recipe/dgrad/grad/rounding: an operand that is not quantized") == 0);
  CHECK(ReadError({{"base", "te_nvfp4"},
                   {"dgrad",
                    {{"grad",
                      {{"format",
                        {{"element", "e2m1"},
                         {"scale", "e8m0"},
                         {"block", {1, 16}},
                         {"rule", "nvfp4"}}}}}}}})
            .find("run.json#/recipe/dgrad/grad/format/scale: the rule nvfp4 makes") == 0);
}

}  // namespace
}  // namespace fp4lab
