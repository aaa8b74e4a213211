#include "fp4lab/train/model/recipe_fit.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab {
namespace {

// The numbers of which the axes of a linear's matrices must be multiples.
struct Multiples {
  int in = 1, out = 1, tokens = 1;
};

void AddOperand(const OperandRecipe& operand, int* reduction, int* other) {
  if (operand.hadamard > 0) *reduction = std::lcm(*reduction, operand.hadamard);
  if (operand.scale_window > 0) *reduction = std::lcm(*reduction, operand.scale_window);
  if (!operand.format || operand.format->block_cols == 0) return;
  *reduction = std::lcm(*reduction, operand.format->block_cols);
  *other = std::lcm(*other, operand.format->block_rows);
}

void AddLinear(const LinearRecipe& recipe, Multiples* all) {
  Multiples& m = *all;
  AddOperand(recipe.fprop.a, &m.in, &m.tokens);
  AddOperand(recipe.fprop.b, &m.in, &m.out);
  AddOperand(recipe.dgrad.a, &m.out, &m.tokens);
  AddOperand(recipe.dgrad.b, &m.out, &m.in);
  AddOperand(recipe.wgrad.a, &m.tokens, &m.out);
  AddOperand(recipe.wgrad.b, &m.tokens, &m.in);
}

std::string NameOf(int block, const LinearShape& linear) {
  return "blocks." + std::to_string(block) + "." + linear.name;
}

// The multiples of all recipes that the part's linears will have. A recipe that is no list asks
// them of every linear, selected or not.
Multiples MultiplesOf(const Recipe& recipe, const ModelConfig& model, const Part& part) {
  Multiples m;
  if (recipe.rules.empty()) {
    for (const LinearRecipe* linear : LinearRecipesOf(recipe)) AddLinear(*linear, &m);
    return m;
  }
  const auto add = [&](const Recipe& state) {
    for (const LinearShape& linear : part.linears(model)) {
      for (int block = 0; block < model.layers && !linear.router; ++block) {
        if (!HasPart(model, block, part)) continue;
        AddLinear(RecipeOf(state, NameOf(block, linear), block, model.layers), &m);
      }
    }
  };
  add(recipe);
  for (const RecipeChange& change : recipe.then) add(change.recipe);
  return m;
}

void CheckMultiple(const std::string& where, std::string_view what, std::int64_t value,
                   int multiple) {
  if (value % multiple == 0) return;
  throw Error(where, std::string(what) + " " + std::to_string(value) +
                         " is not a multiple of the recipe's block of " + std::to_string(multiple));
}

// A linear that may be quantized.
struct PlacedLinear {
  std::string name;
  int block = 0;
  std::size_t in = 0, out = 0;
};
void AddLinears(const ModelConfig& m, int block, std::span<const Part* const> parts,
                std::vector<PlacedLinear>* linears) {
  for (const Part* part : parts) {
    for (const LinearShape& linear : part->linears(m)) {
      if (linear.router) continue;
      linears->push_back({NameOf(block, linear), block, linear.in, linear.out});
    }
  }
}

std::vector<PlacedLinear> LinearsOf(const ModelConfig& m) {
  std::vector<PlacedLinear> linears;
  for (int i = 0; i < m.layers; ++i) AddLinears(m, i, PartsOfBlock(m, i), &linears);
  return linears;
}

// Throws Error for a pattern that matches no linear: it would silently select, or exclude, nothing.
void CheckPatterns(const std::vector<std::string>& patterns, const ModelConfig& m,
                   const std::string& where) {
  const std::vector<PlacedLinear> linears = LinearsOf(m);
  std::vector<std::string> names;
  for (const PlacedLinear& linear : linears) {
    const std::string name = "blocks.N" + linear.name.substr(linear.name.find('.', 7));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  const std::string known = Joined(names, ", ");
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const auto holds = [&](const PlacedLinear& l) { return Matches(patterns[i], l.name); };
    if (std::any_of(linears.begin(), linears.end(), holds)) continue;
    throw Error(where + "/" + std::to_string(i),
                "\"" + patterns[i] + "\" matches no linear; there are " + known + ", N from 0 to " +
                    std::to_string(m.layers - 1));
  }
}

// Throws Error for a side term with more hot channels than the tensor of some linear has.
void CheckHotChannels(const Recipe& state, const ModelConfig& m, const std::string& where) {
  for (const PlacedLinear& linear : LinearsOf(m)) {
    const auto operands = OperandsOf(RecipeOf(state, linear.name, linear.block, m.layers));
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const bool is_input = i == kFpropInput || i == kWgradInput;
      const std::size_t channels = is_input ? linear.in : linear.out;
      if (HotChannelCount(operands[i]->side, channels) <= channels) continue;
      throw Error(where, "the side term of " + std::string(OperandName(LinearOperand(i))) +
                             " has " + std::to_string(operands[i]->side.channels) +
                             " hot channels, and " + linear.name + " has " +
                             std::to_string(channels) +
                             " there; fewer \"channels\", or a share of them such as \"1%\"");
    }
  }
}

void CheckRules(const Recipe& recipe, const ModelConfig& m, const std::string& where);

void CheckSelection(const Recipe& recipe, const ModelConfig& m, const std::string& where) {
  if (!recipe.rules.empty()) return CheckRules(recipe, m, where);
  const std::string most = "more blocks in BF16 than the model's " + std::to_string(m.layers);
  for (const RecipeChange& change : recipe.then) {
    CheckSelection(change.recipe, m, where + "/then/recipe");
  }
  if (recipe.first_blocks_bf16 > m.layers) throw Error(where + "/first_blocks_bf16", most);
  if (recipe.last_blocks_bf16 > m.layers - recipe.first_blocks_bf16) {
    throw Error(
        where + "/last_blocks_bf16",
        most + (recipe.first_blocks_bf16 > 0
                    ? ", the first " + std::to_string(recipe.first_blocks_bf16) + " included"
                    : ""));
  }
  CheckPatterns(recipe.include, m, where + "/include");
  CheckPatterns(recipe.exclude, m, where + "/exclude");
}

// Throws Error for a pattern that matches no linear of any part, so that it is misspelled. A
// pattern for a part that this model does not have stays, beside others in its rule.
void CheckSpelling(const RecipeRule& rule, const ModelConfig& m, const std::string& where) {
  std::vector<PlacedLinear> linears;
  AddLinears(m, 0, Parts(), &linears);
  std::vector<std::string> known;
  for (const PlacedLinear& linear : linears) known.push_back("*" + linear.name.substr(8));
  for (int i = 1; i < m.layers; ++i) AddLinears(m, i, Parts(), &linears);
  for (std::size_t i = 0; i < rule.linears.size(); ++i) {
    const std::string& pattern = rule.linears[i];
    const auto holds = [&](const PlacedLinear& l) { return Matches(pattern, l.name); };
    if (std::any_of(linears.begin(), linears.end(), holds)) continue;
    const std::string place = rule.linears.size() > 1 ? "/" + std::to_string(i) : "";
    throw Error(where + "/linears" + place,
                "\"" + pattern + "\" matches no linear; " + DidYouMean(pattern, known));
  }
}

// Which rules come first somewhere, and which come before a rule that matches, rule by rule.
struct RuleUse {
  bool matches = false, used = false;
  std::set<std::size_t> hidden_by;
};

void CheckRules(const Recipe& recipe, const ModelConfig& m, const std::string& where) {
  const std::vector<RecipeRule>& rules = recipe.rules;
  const auto place = [&](std::size_t i) { return where + "/rules/" + std::to_string(i); };
  std::vector<const Recipe*> states = {&recipe};
  for (const RecipeChange& change : recipe.then) states.push_back(&change.recipe);
  std::vector<RuleUse> uses(rules.size());
  for (const PlacedLinear& linear : LinearsOf(m)) {
    std::vector<std::size_t> matching;
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (Matches(rules[i], linear.name, linear.block, m.layers)) matching.push_back(i);
    }
    for (const Recipe* state : states) {
      const std::size_t* first = nullptr;
      for (const std::size_t& i : matching) {
        if (!HoldsAt(rules[i], state->share)) continue;
        uses[i].matches = true;
        if (first == nullptr) {
          uses[i].used = true;
          first = &i;
        } else {
          uses[i].hidden_by.insert(*first);
        }
      }
    }
  }
  for (std::size_t i = 0; i < rules.size(); ++i) {
    CheckSpelling(rules[i], m, place(i));
    if (rules[i].first_blocks > m.layers || rules[i].last_blocks > m.layers) {
      const bool first = rules[i].first_blocks > m.layers;
      throw Error(place(i) + "/blocks/" + (first ? "first" : "last"),
                  "the model has " + std::to_string(m.layers) + " blocks");
    }
    if (!uses[i].matches) {
      throw Error(place(i), "matches no linear of this model, whose parts are " +
                                Joined(m.parts, ", ") + "; leave the rule out");
    }
    if (!uses[i].used) {
      std::vector<std::string> before;
      for (const std::size_t k : uses[i].hidden_by) before.push_back(std::to_string(k));
      throw Error(place(i),
                  "is never used: rules before it are for all of its linears and steps (" +
                      Joined(before, ", ") + "); put it before them, or leave it out");
    }
    CheckSelection(rules[i].recipe, m, place(i) + "/recipe");
  }
  CheckSelection(RestOf(recipe), m, where + "/rest");
}

}  // namespace

void CheckRecipeFits(const TrainConfig& c, const std::string& where,
                     const std::string& recipe_where) {
  const IeeeArithmetic ieee;
  const Json empty = Json::object();
  const JsonObject root(empty, where);
  const std::string model = root.Where("model");
  const std::vector<const Part*> parts = PartsOf(c.model, model);
  Multiples all;
  for (const Part* part : parts) {
    const Multiples m = MultiplesOf(c.recipe, c.model, *part);
    all = {std::lcm(all.in, m.in), std::lcm(all.out, m.out), std::lcm(all.tokens, m.tokens)};
  }
  CheckMultiple(model + "/d_model", "d_model", c.model.d_model, std::lcm(all.in, all.out));
  for (const Part* part : parts) {
    const Multiples m = MultiplesOf(c.recipe, c.model, *part);
    for (const PartWidth& w : part->widths(c.model)) {
      const int multiple =
          w.tokens ? m.tokens : std::lcm(w.reduces ? m.in : 1, w.remains ? m.out : 1);
      CheckMultiple(model + "/" + std::string(w.key), w.what, w.value, multiple);
    }
  }
  CheckMultiple(root.Where("batch"), "tokens in a micro-batch:", TokensPerStep(c) / c.micro_batches,
                all.tokens);
  CheckSelection(c.recipe, c.model, recipe_where);
  CheckHotChannels(c.recipe, c.model, recipe_where);
  for (const RecipeChange& change : c.recipe.then) {
    CheckHotChannels(change.recipe, c.model, recipe_where);
  }
}

}  // namespace fp4lab
