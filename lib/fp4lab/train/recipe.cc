#include "fp4lab/train/recipe.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/suggest.h"
#include "fp4lab/train/recipe_json.h"

namespace fp4lab {
namespace {

const Dialect& Row(std::string_view name) {
  const Dialect* row = FindDialect(name);
  Expects(row != nullptr, "recipe: a dialect's name");
  return *row;
}

OperandRecipe In(const Dialect& format) { return {.format = format}; }

Recipe Unquantized(std::string_view base, bool bf16) {
  Recipe recipe;
  recipe.base = base;
  recipe.linear.bf16 = recipe.rest.bf16 = bf16;
  return recipe;
}

// One format forward and one for gradients, all rounded to nearest.
Recipe TwoFormats(std::string_view base, const Dialect& forward, const Dialect& gradient) {
  Recipe recipe = Unquantized(base, true);
  recipe.linear.fprop = {In(forward), In(forward)};
  recipe.linear.dgrad = {In(gradient), In(forward)};
  recipe.linear.wgrad = {In(gradient), In(forward)};
  return recipe;
}

// The operand table of NVFP4BlockScaling (Transformer Engine, common/recipe and
// pytorch/quantization.py): 1D blocks for activations and gradients, stochastic rounding of
// gradients, a random Hadamard transform of both wgrad operands, `weight` blocks for weights.
Recipe FourBit(std::string_view base, const Dialect& format, const Dialect& weight, int hadamard) {
  Recipe recipe = TwoFormats(base, format, format);
  LinearRecipe& linear = recipe.linear;
  linear.fprop.b.format = linear.dgrad.b.format = weight;
  linear.dgrad.a.format->rounding = linear.wgrad.a.format->rounding =
      ElementRounding::kStochastic16;
  linear.wgrad.a.hadamard = linear.wgrad.b.hadamard = hadamard;
  return recipe;
}

std::string ReadChoice(JsonObject* o, std::string_view key, std::string value,
                       std::initializer_list<std::string_view> choices) {
  o->Read(key, &value);
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
  std::string all;
  for (const std::string_view c : choices) {
    all += (all.empty() ? "\"" : ", \"") + std::string(c) + "\"";
  }
  throw Error(o->Where(key), "must be one of " + all + ", not \"" + value + "\"");
}

Recipe Fp8CurrentScaling(std::string_view base, JsonObject* o) {
  const std::string format = ReadChoice(o, "fp8_format", "HYBRID", {"HYBRID", "E4M3"});
  return TwoFormats(base, Row("fp8_e4m3"), Row(format == "E4M3" ? "fp8_e4m3" : "fp8_e5m2"));
}

Recipe Mxfp4(std::string_view base, JsonObject* o) {
  const std::string rule = ReadChoice(o, "scale_rule", "rceil", {"rceil", "ceil", "floor", "even"});
  const std::string weight = ReadChoice(o, "weight_block", "2d", {"2d", "1d"});
  const Dialect& format = Row("mxfp4." + rule);
  return FourBit(base, format, weight == "2d" ? Row("mxfp4." + rule + ".2d") : format, 32);
}

struct BaseRecipe {
  std::string_view name;
  Recipe (*make)(std::string_view name, JsonObject* options);
  bool has_switches;  // those of NVFP4BlockScaling
};

constexpr BaseRecipe kBaseRecipes[] = {
    {"fp32", [](std::string_view n, JsonObject*) { return Unquantized(n, false); }, false},
    {"bf16", [](std::string_view n, JsonObject*) { return Unquantized(n, true); }, false},
    {"te_fp8_currentscaling", Fp8CurrentScaling, false},
    {"te_mxfp8",
     [](std::string_view n, JsonObject*) {
       return TwoFormats(n, Row("mxfp8_e4m3.rceil"), Row("mxfp8_e4m3.rceil"));
     },
     false},
    {"te_nvfp4",
     [](std::string_view n, JsonObject*) {
       return FourBit(n, Row("nvfp4.te"), Row("nvfp4.te.2d"), 16);
     },
     true},
    {"te_nvfp4_no_rht",
     [](std::string_view n, JsonObject*) {
       return FourBit(n, Row("nvfp4.te"), Row("nvfp4.te.2d"), 0);
     },
     true},
    {"mxfp4", Mxfp4, true},
};

const BaseRecipe& FindBase(const std::string& name, const std::string& where) {
  for (const BaseRecipe& base : kBaseRecipes) {
    if (base.name == name) return base;
  }
  throw Error(where, "unknown recipe \"" + name + "\"; " + DidYouMean(name, NamesOf(kBaseRecipes)));
}

// The OperandRecipe members of a LinearRecipe, in the order of the table in nvfp4's recipe.
std::vector<OperandRecipe*> Operands(LinearRecipe* linear) {
  return {&linear->fprop.a, &linear->fprop.b, &linear->dgrad.a,
          &linear->dgrad.b, &linear->wgrad.a, &linear->wgrad.b};
}

void ApplySwitches(JsonObject* o, Recipe* recipe) {
  bool no_rht = false, no_stochastic = false, no_2d = false;
  o->Read("disable_rht", &no_rht);
  o->Read("disable_stochastic_rounding", &no_stochastic);
  o->Read("disable_2d_quantization", &no_2d);
  for (OperandRecipe* operand : Operands(&recipe->linear)) {
    if (no_rht) operand->hadamard = 0;
    if (!operand->format) continue;
    Dialect& format = *operand->format;
    if (no_stochastic && IsStochastic(format)) format = WithOwnRounding(format);
    if (no_2d && format.block_rows > 1) {
      const ElementRounding rounding = format.rounding;
      format.block_rows = 1;
      format = Canonical(WithOwnRounding(format));
      format.rounding = rounding;
    }
  }
}

void ReadGemm(JsonObject* o, std::string_view key, std::string_view a, std::string_view b,
              GemmRecipe* gemm) {
  const Json* json = o->Member(key);
  if (json == nullptr) return;
  JsonObject members(*json, o->Where(key));
  if (const Json* operand = members.Member(a)) {
    ReadOperand(*operand, members.Where(a), &gemm->a);
  }
  if (const Json* operand = members.Member(b)) {
    ReadOperand(*operand, members.Where(b), &gemm->b);
  }
  members.Finish();
}

void CheckGemm(const JsonObject& o, std::string_view key, const GemmRecipe& gemm, bool bf16) {
  if (gemm.a.hadamard != gemm.b.hadamard) {
    throw Error(o.Where(key), "both operands of a GEMM need the same \"hadamard\", not " +
                                  std::to_string(gemm.a.hadamard) + " and " +
                                  std::to_string(gemm.b.hadamard));
  }
  if (gemm.a.hadamard != 0 && !bf16) {
    throw Error(o.Where(key), "the Hadamard transform needs \"training_dtype\": \"bf16\"");
  }
}

void ReadDirections(JsonObject* o, LinearRecipe* linear) {
  bool forward_only = false, backward_only = false;
  o->Read("forward_only", &forward_only);
  o->Read("backward_only", &backward_only);
  if (forward_only && backward_only) {
    throw Error(o->Where("backward_only"), "contradicts \"forward_only\"");
  }
  if (forward_only) linear->dgrad = linear->wgrad = GemmRecipe{};
  if (backward_only) linear->fprop = GemmRecipe{};
}

void ReadSelection(JsonObject* o, Recipe* recipe) {
  recipe->layers = ReadChoice(o, "layers", recipe->layers, {"all", "mlp"});
  o->Read("first_blocks_bf16", &recipe->first_blocks_bf16);
  o->Read("last_blocks_bf16", &recipe->last_blocks_bf16);
  o->Read("include", &recipe->include);
  o->Read("exclude", &recipe->exclude);
  for (const char* key : {"first_blocks_bf16", "last_blocks_bf16"}) {
    const int n = key[0] == 'f' ? recipe->first_blocks_bf16 : recipe->last_blocks_bf16;
    if (n < 0) throw Error(o->Where(key), "must not be negative");
  }
}

bool AnyMatches(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& p) { return Matches(p, name); });
}

}  // namespace

// Glob: '*' any run of characters, '?' any one. Where the name does not go on as the pattern does,
// the last '*' takes one character more: earlier ones need not, as they were as short as could be.
bool Matches(std::string_view pattern, std::string_view name) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t p = 0, n = 0, star = kNone, star_end = 0;  // the last '*', where its run ends in name
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != kNone) {
      p = star + 1;
      n = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == kNone;
}

Recipe ReadRecipe(const Json& json, const std::string& where) {
  const Json object = json.is_string() ? Json{{"base", json}} : json;
  JsonObject o(object, where);
  std::string name;
  o.Require("base", &name);
  const BaseRecipe& base = FindBase(name, json.is_string() ? where : o.Where("base"));
  Recipe recipe = base.make(base.name, &o);
  if (base.has_switches) ApplySwitches(&o, &recipe);
  ReadGemm(&o, "fprop", "input", "weight", &recipe.linear.fprop);
  ReadGemm(&o, "dgrad", "grad", "weight", &recipe.linear.dgrad);
  ReadGemm(&o, "wgrad", "grad", "input", &recipe.linear.wgrad);
  ReadDirections(&o, &recipe.linear);
  const std::string dtype =
      ReadChoice(&o, "training_dtype", recipe.linear.bf16 ? "bf16" : "fp32", {"bf16", "fp32"});
  recipe.linear.bf16 = recipe.rest.bf16 = dtype == "bf16";
  ReadSelection(&o, &recipe);
  o.Finish();
  CheckGemm(o, "fprop", recipe.linear.fprop, recipe.linear.bf16);
  CheckGemm(o, "dgrad", recipe.linear.dgrad, recipe.linear.bf16);
  CheckGemm(o, "wgrad", recipe.linear.wgrad, recipe.linear.bf16);
  return recipe;
}

Json ToJson(const Recipe& recipe) {
  const LinearRecipe& linear = recipe.linear;
  return {{"base", recipe.base},
          {"training_dtype", linear.bf16 ? "bf16" : "fp32"},
          {"fprop", {{"input", ToJson(linear.fprop.a)}, {"weight", ToJson(linear.fprop.b)}}},
          {"dgrad", {{"grad", ToJson(linear.dgrad.a)}, {"weight", ToJson(linear.dgrad.b)}}},
          {"wgrad", {{"grad", ToJson(linear.wgrad.a)}, {"input", ToJson(linear.wgrad.b)}}},
          {"layers", recipe.layers},
          {"first_blocks_bf16", recipe.first_blocks_bf16},
          {"last_blocks_bf16", recipe.last_blocks_bf16},
          {"include", recipe.include},
          {"exclude", recipe.exclude}};
}

std::vector<std::string> RecipeNames() {
  std::vector<std::string> names;
  for (const BaseRecipe& base : kBaseRecipes) names.emplace_back(base.name);
  return names;
}

const LinearRecipe& RecipeOf(const Recipe& recipe, std::string_view name, int block, int blocks) {
  const bool in_layers = recipe.layers == "all" || name.find(".mlp.") != std::string_view::npos;
  const bool in_blocks =
      block >= recipe.first_blocks_bf16 && block < blocks - recipe.last_blocks_bf16;
  const bool included = recipe.include.empty() || AnyMatches(recipe.include, name);
  const bool selected = in_layers && in_blocks && included && !AnyMatches(recipe.exclude, name);
  return selected ? recipe.linear : recipe.rest;
}

}  // namespace fp4lab
