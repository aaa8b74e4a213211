#include "fp4lab/train/model/recipe_plan.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab {
namespace {

// Linears that one rule gives one recipe.
using Use = std::pair<std::string, std::string>;  // recipe, rule
// The names of a block's linears and the blocks in which they have the same recipe.
using Place = std::pair<std::set<int>, std::vector<std::string>>;

// "moe.experts.*.up" for "moe.experts.3.up".
std::string WithoutNumber(const std::string& name) {
  std::string text;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(name[i])) == 0) {
      text += name[i];
    } else if (text.back() != '*') {
      text += '*';
    }
  }
  return text;
}

// The name of a recipe that is no list, as the plan shows it.
std::string LabelOf(const Recipe& recipe) {
  const bool same = recipe.linear == ReadRecipe(Json(recipe.base), "plan").linear;
  return recipe.base + (same ? "" : " (changed)");
}

Use UseOf(const Recipe& state, const std::string& name, int block, int blocks) {
  const RecipeRule* rule = RuleOf(state, name, block, blocks);
  const Recipe own = rule != nullptr       ? RecipeAtShare(rule->recipe, state.share)
                     : state.rules.empty() ? state
                                           : RestOf(state);
  const bool selected = &RecipeOf(own, name, block, blocks) == &own.linear;
  const std::string label = selected ? LabelOf(own) : own.rest.bf16 ? "bf16" : "fp32";
  if (state.rules.empty()) return {label, ""};
  return {label, rule == nullptr ? "rest" : std::to_string(rule - state.rules.data())};
}

std::string BlocksText(const std::set<int>& blocks, int all) {
  if (blocks.size() == static_cast<std::size_t>(all)) return "all";
  std::string text;
  for (auto first = blocks.begin(); first != blocks.end();) {
    auto last = first;
    while (std::next(last) != blocks.end() && *std::next(last) == *last + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(*first);
    if (last != first) text += "-" + std::to_string(*last);
    first = std::next(last);
  }
  return text;
}

// The rows of one state of the recipe, without their steps.
std::vector<RecipePlanRow> RowsOf(const Recipe& state, const ModelConfig& model) {
  std::vector<std::string> names;                            // of a block, experts as one
  std::map<std::string, std::map<Use, std::set<int>>> uses;  // of each name
  std::vector<Use> order;
  for (const Part* part : PartsOf(model)) {
    for (const LinearShape& linear : part->linears(model)) {
      if (linear.router) continue;
      const std::string short_name = WithoutNumber(linear.name);
      if (std::find(names.begin(), names.end(), short_name) == names.end()) {
        names.push_back(short_name);
      }
      for (int block = 0; block < model.layers; ++block) {
        if (!HasPart(model, block, *part)) continue;
        const std::string name = "blocks." + std::to_string(block) + "." + linear.name;
        const Use use = UseOf(state, name, block, model.layers);
        if (std::find(order.begin(), order.end(), use) == order.end()) order.push_back(use);
        uses[short_name][use].insert(block);
      }
    }
  }
  std::vector<RecipePlanRow> rows;
  for (const Use& use : order) {
    std::vector<Place> places;
    for (const std::string& name : names) {
      const auto found = uses[name].find(use);
      if (found == uses[name].end()) continue;
      auto place = std::find_if(places.begin(), places.end(),
                                [&](const Place& p) { return p.first == found->second; });
      if (place == places.end()) place = places.insert(places.end(), {found->second, {}});
      place->second.push_back(name);
    }
    for (const auto& [blocks, linears] : places) {
      rows.push_back({"", BlocksText(blocks, model.layers),
                      linears.size() == names.size() ? "all" : Joined(linears, ", "), use.first,
                      use.second});
    }
  }
  return rows;
}

bool SameUse(const RecipePlanRow& a, const RecipePlanRow& b) {
  return std::tie(a.blocks, a.linears, a.recipe, a.rule) ==
         std::tie(b.blocks, b.linears, b.recipe, b.rule);
}

std::string ShareText(double share) {
  const std::string text = Json(share).dump();
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

}  // namespace

std::vector<RecipePlanRow> RecipePlanOf(const Recipe& recipe, const ModelConfig& model) {
  const IeeeArithmetic ieee;
  struct Timed {
    RecipePlanRow row;
    double from, to;
  };
  std::vector<Timed> all;
  const std::size_t states = recipe.then.size() + 1;
  for (std::size_t i = 0; i < states; ++i) {
    const double from = i == 0 ? 0.0 : recipe.then[i - 1].at;
    const double to = i + 1 < states ? recipe.then[i].at : 1.0;
    const Recipe& state = i == 0 ? recipe : recipe.then[i - 1].recipe;
    for (RecipePlanRow& row : RowsOf(state, model)) {
      const auto before = std::find_if(all.begin(), all.end(), [&](const Timed& t) {
        return t.to == from && SameUse(t.row, row);
      });
      if (before != all.end()) {
        before->to = to;
      } else {
        all.push_back({std::move(row), from, to});
      }
    }
  }
  std::vector<RecipePlanRow> rows;
  for (Timed& t : all) {
    const bool whole = t.from == 0.0 && t.to == 1.0;
    t.row.steps = whole ? "all" : ShareText(t.from) + "-" + ShareText(t.to);
    rows.push_back(std::move(t.row));
  }
  return rows;
}

}  // namespace fp4lab
