#include "fp4lab/recipe/recipe.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/nn/linear/accumulated.h"
#include "fp4lab/recipe/published_recipes.h"
#include "fp4lab/recipe/recipe_blocks.h"
#include "fp4lab/recipe/recipe_json.h"

namespace fp4lab {
namespace {

constexpr std::string_view kInBlocks = "blocks";  // Gemm's order: no accumulation of its own

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
// gradients, a random Hadamard transform of both wgrad operands, the dialect `weight` for weights.
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
  bool has_switches;  // the switches of NVFP4BlockScaling
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

const BaseRecipe* FindBase(std::string_view name) {
  const auto row = std::find_if(std::begin(kBaseRecipes), std::end(kBaseRecipes),
                                [&](const BaseRecipe& base) { return base.name == name; });
  return row == std::end(kBaseRecipes) ? nullptr : row;
}

// The OperandRecipe members of a LinearRecipe, in the order of LinearOperand.
template <class Linear>
auto Operands(Linear* linear) {
  return std::array{&linear->fprop.a, &linear->fprop.b, &linear->dgrad.a,
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
  if (gemm.a.hadamard != gemm.b.hadamard ||
      (gemm.a.hadamard != 0 && gemm.a.signs != gemm.b.signs)) {
    throw Error(o.Where(key), "both operands of a GEMM need the same \"hadamard\", not " +
                                  HadamardJson(gemm.a).dump() + " and " +
                                  HadamardJson(gemm.b).dump());
  }
  if (gemm.a.hadamard != 0 && !bf16) {
    throw Error(o.Where(key), "the Hadamard transform needs \"training_dtype\": \"bf16\"");
  }
  if (gemm.accumulation == nullptr) return;
  const std::string place = o.Where("accumulation") + "/" + std::string(key);
  if (!bf16) throw Error(place, "needs \"training_dtype\": \"bf16\"");
  const std::string problem = WhyNotAccumulated(gemm);
  if (!problem.empty()) throw Error(place, problem);
}

// Throws Error if an operand of fprop, or a gradient, is to be made of fprop's values.
void CheckSource(const JsonObject& o, std::string_view gemm, std::string_view operand,
                 const OperandRecipe& recipe) {
  if (!recipe.from_fprop) return;
  throw Error(o.Where(gemm) + "/" + std::string(operand) + "/from",
              "is for dgrad's weight and wgrad's input");
}

// Throws Error for a side term that the operand cannot have.
void CheckSide(const std::string& where, LinearOperand operand, const OperandRecipe& recipe,
               const GemmRecipe& gemm) {
  const SideTerm& side = recipe.side;
  const std::string place = where + "/side";
  if (!side) return;
  if (IsWeight(operand)) throw Error(place, "is for inputs and gradients, not for weights");
  if (!side.Is(SideTermKind::kPatch)) return;
  if (!recipe.format) {
    throw Error(place,
                "\"patch\" gives back a residual, which an operand that is not quantized "
                "does not have; write \"side\": \"none\"");
  }
  if (recipe.hadamard != 0) {
    throw Error(place,
                "\"patch\" has no residual of single channels under the Hadamard transform; "
                "write \"hadamard\": 0 in both operands, or another term");
  }
  if (gemm.accumulation != nullptr) {
    throw Error(place, "\"patch\" is for products without an \"accumulation\" of their own");
  }
}

// Throws Error for windows of scales that the operand cannot have.
void CheckScaleWindow(const std::string& where, const OperandRecipe& recipe,
                      const GemmRecipe& gemm) {
  if (recipe.scale_window == 0) return;
  const std::string place = where + "/scale_window", none = "; write \"scale_window\": 0";
  if (!recipe.format || !HasTensorScale(*recipe.format)) {
    throw Error(place, "is for formats with a tensor scale, which a window has instead" + none);
  }
  const Dialect& d = *recipe.format;
  if (d.row_scaled) {
    throw Error(place, "contradicts the format's scale of each row" + none);
  }
  if (d.block_rows != 1) {
    throw Error(place,
                "a window lies in one row; give the format blocks of one row, as "
                "\"block\": [1, 16]");
  }
  if (recipe.scale_window % d.block_cols != 0) {
    throw Error(place, std::to_string(recipe.scale_window) +
                           " is not a multiple of the format's block of " +
                           std::to_string(d.block_cols));
  }
  if (d.unbias != Unbias::kNone) {
    throw Error(place, "\"unbias\" corrects blocks under one tensor scale" + none);
  }
  if (recipe.random == RandomGenerator::kTransformerEngine ||
      recipe.random == RandomGenerator::kWordPerRow) {
    throw Error(place,
                "the generator of \"random\" counts rows, which windows cut; write "
                "\"random\": \"philox\"");
  }
  if (gemm.accumulation != nullptr) {
    throw Error(place, "windows add in an order of their own, without \"accumulation\"" + none);
  }
}

void CheckSides(const JsonObject& o, const LinearRecipe& linear) {
  for (std::size_t i = 0; i < kLinearOperands; ++i) {
    const auto operand = static_cast<LinearOperand>(i);
    const std::string name(OperandName(operand));
    const std::size_t dot = name.find('.');
    const GemmRecipe& gemm = *std::array{&linear.fprop, &linear.dgrad, &linear.wgrad}[i / 2];
    const std::string where = o.Where(name.substr(0, dot)) + "/" + name.substr(dot + 1);
    CheckSide(where, operand, *Operands(&linear)[i], gemm);
    CheckScaleWindow(where, *Operands(&linear)[i], gemm);
  }
  if (linear.wgrad.b.from_fprop && linear.fprop.a.side) {
    throw Error(o.Where("wgrad") + "/input/from",
                "\"fprop\" is for an input of fprop without a side term, which its values lack");
  }
}

// Reads "delayed_scaling", which holds for all operands with one tensor scale.
void ReadDelayedScaling(JsonObject* o, LinearRecipe* linear) {
  if (o->Member("delayed_scaling") == nullptr) return;
  DelayedScaling delayed;
  ReadDelayed(o, &delayed);
  bool any = delayed.length == 0;
  for (OperandRecipe* operand : Operands(linear)) {
    if (!CanBeDelayed(*operand)) continue;
    operand->delayed = delayed;
    any = true;
  }
  if (!any) throw Error(o->Where("delayed_scaling"), "no operand has a scale of its tensor");
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
  ReadBlocks(o, "first_blocks_bf16", &recipe->first_blocks_bf16, &recipe->first_percent_bf16);
  ReadBlocks(o, "last_blocks_bf16", &recipe->last_blocks_bf16, &recipe->last_percent_bf16);
  o->Read("include", &recipe->include);
  o->Read("exclude", &recipe->exclude);
}

void ReadAccumulation(JsonObject* o, LinearRecipe* linear) {
  const Json* json = o->Member("accumulation");
  if (json == nullptr) return;
  JsonObject members(*json, o->Where("accumulation"));
  const auto read = [&](std::string_view key, GemmRecipe* gemm) {
    if (members.Member(key) == nullptr) return;
    std::string name;
    members.Read(key, &name);
    gemm->accumulation = name == kInBlocks ? nullptr : FindAccumulation(name);
    if (gemm->accumulation != nullptr || name == kInBlocks) return;
    std::vector<std::string> known = NamesOf(Accumulations());
    known.emplace_back(kInBlocks);
    throw Error(members.Where(key),
                "unknown accumulation \"" + name + "\"; " + DidYouMean(name, known));
  };
  read("fprop", &linear->fprop);
  read("dgrad", &linear->dgrad);
  read("wgrad", &linear->wgrad);
  members.Finish();
}

void ReadThen(JsonObject* o, Recipe* recipe) {
  const Json* json = o->Member("then");
  if (json == nullptr) return;
  JsonObject members(*json, o->Where("then"));
  RecipeChange change;
  members.Require("at", &change.at);
  if (!(change.at > 0.0 && change.at < 1.0)) {
    throw Error(members.Where("at"), "must be a share of the run between 0 and 1");
  }
  const Json* next = members.Member("recipe");
  if (next == nullptr) throw Error(o->Where("then"), "needs the key \"recipe\"");
  change.recipe = ReadRecipe(*next, members.Where("recipe"));
  members.Finish();
  if (!change.recipe.then.empty()) {
    throw Error(members.Where("recipe") + "/then", "a run changes its recipe once");
  }
  if (!(change.recipe.rest == recipe->rest)) {
    throw Error(members.Where("recipe"), "must have the same \"training_dtype\"");
  }
  recipe->then = {change};
}

bool AnyMatches(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& p) { return Matches(p, name); });
}

}  // namespace

// A glob: '*' matches any run of characters, '?' any one. On a mismatch, the last '*' takes one
// character more; earlier ones need not, because their runs are as short as possible.
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

namespace {

// The recipe that `name` stands for, under the options and switches of that base recipe in `o`.
Recipe Start(const std::string& name, const std::string& where, JsonObject* o) {
  if (const BaseRecipe* base = FindBase(name)) {
    Recipe recipe = base->make(base->name, o);
    if (base->has_switches) ApplySwitches(o, &recipe);
    return recipe;
  }
  if (const PublishedRecipe* published = FindPublishedRecipe(name)) {
    Recipe recipe = ReadRecipe(published->recipe, "data/recipes.json#" + name);
    recipe.base = name;
    if (recipe.rules.empty()) return recipe;
    for (RecipeChange& state : recipe.then) state.recipe.base = name;
    return recipe;
  }
  std::vector<std::string> known = NamesOf(kBaseRecipes);
  for (const PublishedRecipe& row : PublishedRecipes()) known.push_back(row.name);
  throw Error(where, "unknown recipe \"" + name + "\"; " +
                         DidYouMean(name, known, "`fp4lab recipes` lists them all"));
}

}  // namespace

Recipe ReadRecipe(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  if (IsListOfRules(json)) return ReadRules(json, where);
  const Json object = json.is_string() ? Json{{"base", json}} : json;
  JsonObject o(object, where);
  std::string name;
  o.Require("base", &name);
  Recipe recipe = Start(name, json.is_string() ? where : o.Where("base"), &o);
  if (!recipe.rules.empty()) {
    if (object.size() == 1) return recipe;
    throw Error(o.Where("base"), "\"" + name +
                                     "\" is a list of recipes, which has no other keys; "
                                     "write \"rules\" with the change");
  }
  ReadGemm(&o, "fprop", "input", "weight", &recipe.linear.fprop);
  ReadGemm(&o, "dgrad", "grad", "weight", &recipe.linear.dgrad);
  ReadGemm(&o, "wgrad", "grad", "input", &recipe.linear.wgrad);
  ReadDelayedScaling(&o, &recipe.linear);
  ReadAccumulation(&o, &recipe.linear);
  ReadDirections(&o, &recipe.linear);
  const std::string dtype =
      ReadChoice(&o, "training_dtype", recipe.linear.bf16 ? "bf16" : "fp32", {"bf16", "fp32"});
  recipe.linear.bf16 = recipe.rest.bf16 = dtype == "bf16";
  ReadSelection(&o, &recipe);
  ReadThen(&o, &recipe);
  o.Finish();
  CheckSource(o, "fprop", "input", recipe.linear.fprop.a);
  CheckSource(o, "fprop", "weight", recipe.linear.fprop.b);
  CheckSource(o, "dgrad", "grad", recipe.linear.dgrad.a);
  CheckSource(o, "wgrad", "grad", recipe.linear.wgrad.a);
  CheckGemm(o, "fprop", recipe.linear.fprop, recipe.linear.bf16);
  CheckGemm(o, "dgrad", recipe.linear.dgrad, recipe.linear.bf16);
  CheckGemm(o, "wgrad", recipe.linear.wgrad, recipe.linear.bf16);
  CheckSides(o, recipe.linear);
  return recipe;
}

Json ToJson(const Recipe& recipe) {
  const IeeeArithmetic ieee;
  if (!recipe.rules.empty()) return RulesJson(recipe);
  const LinearRecipe& linear = recipe.linear;
  Json json{{"base", recipe.base},
            {"training_dtype", linear.bf16 ? "bf16" : "fp32"},
            {"fprop", {{"input", ToJson(linear.fprop.a)}, {"weight", ToJson(linear.fprop.b)}}},
            {"dgrad", {{"grad", ToJson(linear.dgrad.a)}, {"weight", ToJson(linear.dgrad.b)}}},
            {"wgrad", {{"grad", ToJson(linear.wgrad.a)}, {"input", ToJson(linear.wgrad.b)}}},
            {"layers", recipe.layers},
            {"first_blocks_bf16", BlocksJson(recipe.first_blocks_bf16, recipe.first_percent_bf16)},
            {"last_blocks_bf16", BlocksJson(recipe.last_blocks_bf16, recipe.last_percent_bf16)},
            {"include", recipe.include},
            {"exclude", recipe.exclude}};
  const auto put = [&](const char* key, const GemmRecipe& gemm) {
    if (gemm.accumulation != nullptr) json["accumulation"][key] = gemm.accumulation->name;
  };
  put("fprop", linear.fprop);
  put("dgrad", linear.dgrad);
  put("wgrad", linear.wgrad);
  for (const RecipeChange& change : recipe.then) {
    json["then"] = {{"at", change.at}, {"recipe", ToJson(change.recipe)}};
  }
  return json;
}

namespace {

std::int64_t StepOf(const RecipeChange& change, std::int64_t total_steps) {
  return std::llround(change.at * static_cast<double>(total_steps));
}

}  // namespace

std::int64_t FirstChange(const Recipe& recipe, std::int64_t total_steps) {
  const IeeeArithmetic ieee;
  return recipe.then.empty() ? 0 : StepOf(recipe.then.front(), total_steps);
}

std::int64_t LastChange(const Recipe& recipe, std::int64_t total_steps) {
  const IeeeArithmetic ieee;
  return recipe.then.empty() ? 0 : StepOf(recipe.then.back(), total_steps);
}

const Recipe& RecipeAt(const Recipe& recipe, std::int64_t step, std::int64_t total_steps) {
  const IeeeArithmetic ieee;
  const Recipe* at = &recipe;
  for (const RecipeChange& change : recipe.then) {
    if (step >= StepOf(change, total_steps)) at = &change.recipe;
  }
  return *at;
}

const Recipe& RecipeAtShare(const Recipe& recipe, double share) {
  const IeeeArithmetic ieee;
  const Recipe* at = &recipe;
  for (const RecipeChange& change : recipe.then) {
    if (share >= change.at) at = &change.recipe;
  }
  return *at;
}

std::vector<const LinearRecipe*> LinearRecipesOf(const Recipe& recipe) {
  std::vector<const LinearRecipe*> all = {&recipe.linear};
  const auto add = [&](const Recipe& other) {
    const std::vector<const LinearRecipe*> more = LinearRecipesOf(other);
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const RecipeRule& rule : recipe.rules) add(rule.recipe);
  for (const RecipeChange& change : recipe.then) {
    if (recipe.rules.empty()) add(change.recipe);  // a list's states have the same rules
  }
  return all;
}

std::array<const OperandRecipe*, kLinearOperands> OperandsOf(const LinearRecipe& linear) {
  return Operands(&linear);
}

std::size_t AmaxHistoryFloats(const Recipe& recipe) {
  int longest = 0;
  for (const LinearRecipe* linear : LinearRecipesOf(recipe)) {
    for (const OperandRecipe* operand : OperandsOf(*linear)) {
      longest = std::max(longest, int{operand->delayed.length});
    }
  }
  return longest > 0 ? AmaxHistoryFloats(longest) : 0;
}

std::vector<std::string> RecipeNames() {
  std::vector<std::string> names;
  for (const BaseRecipe& base : kBaseRecipes) names.emplace_back(base.name);
  return names;
}

const LinearRecipe& RecipeOf(const Recipe& recipe, std::string_view name, int block, int blocks) {
  const IeeeArithmetic ieee;
  if (const RecipeRule* rule = RuleOf(recipe, name, block, blocks)) {
    return RecipeOf(RecipeAtShare(rule->recipe, recipe.share), name, block, blocks);
  }
  const bool in_layers = recipe.layers == "all" || name.find(".mlp.") != std::string_view::npos;
  const bool in_blocks =
      block >= KeptBlocks(recipe.first_blocks_bf16, recipe.first_percent_bf16, blocks) &&
      block < blocks - KeptBlocks(recipe.last_blocks_bf16, recipe.last_percent_bf16, blocks);
  const bool included = recipe.include.empty() || AnyMatches(recipe.include, name);
  const bool selected = in_layers && in_blocks && included && !AnyMatches(recipe.exclude, name);
  return selected ? recipe.linear : recipe.rest;
}

}  // namespace fp4lab
