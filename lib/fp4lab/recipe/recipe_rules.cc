// Lists of recipes: their JSON, and which rule is for a linear.
#include <algorithm>
#include <set>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/recipe/recipe_blocks.h"

namespace fp4lab {
namespace {

constexpr std::string_view kListName = "rules";

// A recipe of a rule, or "rest".
Recipe ReadMember(JsonObject* o, std::string_view key) {
  const Json* json = o->Member(key);
  if (json == nullptr) throw Error(o->Where(key), "is missing: a recipe's name or object");
  Recipe recipe = ReadRecipe(*json, o->Where(key));
  if (recipe.rules.empty()) return recipe;
  throw Error(o->Where(key), "is a list of recipes itself; write its rules into this list");
}

void ReadLinears(JsonObject* o, RecipeRule* rule) {
  const Json* json = o->Member("linears");
  if (json == nullptr) return;
  if (json->is_string()) {
    rule->linears = {json->get<std::string>()};
    return;
  }
  o->Read("linears", &rule->linears);
  if (rule->linears.empty()) throw Error(o->Where("linears"), "needs a pattern");
}

void ReadBlocksOfRule(JsonObject* o, RecipeRule* rule) {
  const Json* json = o->Member("blocks");
  if (json == nullptr) return;
  JsonObject blocks(*json, o->Where("blocks"));
  ReadBlocks(&blocks, "first", &rule->first_blocks, &rule->first_percent);
  ReadBlocks(&blocks, "last", &rule->last_blocks, &rule->last_percent);
  blocks.Finish();
  const bool some = rule->first_blocks > 0 || rule->last_blocks > 0 || rule->first_percent > 0.0 ||
                    rule->last_percent > 0.0;
  if (some) return;
  throw Error(o->Where("blocks"),
              "needs \"first\" or \"last\": a number of blocks above 0, or a "
              "share of them such as \"15%\"; without it a rule is for all");
}

void ReadSteps(JsonObject* o, RecipeRule* rule) {
  const Json* json = o->Member("steps");
  if (json == nullptr) return;
  JsonObject steps(*json, o->Where("steps"));
  steps.Read("from", &rule->from);
  steps.Read("to", &rule->to);
  steps.Finish();
  if (rule->from >= 0.0 && rule->from < rule->to && rule->to <= 1.0) return;
  throw Error(o->Where("steps"), "\"from\" and \"to\" are shares of the run, 0 <= from < to <= 1");
}

RecipeRule ReadRule(const Json& json, const std::string& where, const Recipe& rest) {
  RecipeRule rule;
  JsonObject o(json, where);
  ReadLinears(&o, &rule);
  ReadBlocksOfRule(&o, &rule);
  ReadSteps(&o, &rule);
  rule.recipe = ReadMember(&o, "recipe");
  o.Finish();
  if (rule.recipe.rest == rest.rest) return rule;
  throw Error(o.Where("recipe"), "must have the \"training_dtype\" of \"rest\"");
}

Json RuleJson(const RecipeRule& rule) {
  Json json{{"linears", rule.linears}, {"recipe", ToJson(rule.recipe)}};
  const auto blocks = [&](const char* key, int count, double percent) {
    if (count > 0 || percent > 0.0) json["blocks"][key] = BlocksJson(count, percent);
  };
  blocks("first", rule.first_blocks, rule.first_percent);
  blocks("last", rule.last_blocks, rule.last_percent);
  if (rule.from > 0.0) json["steps"]["from"] = rule.from;
  if (rule.to < 1.0) json["steps"]["to"] = rule.to;
  return json;
}

// The shares of the run from which on a list differs from before, ascending; 0 is not among them.
std::vector<double> ChangesOf(const Recipe& list) {
  std::set<double> shares;
  for (const RecipeRule& rule : list.rules) {
    shares.insert({rule.from, rule.to});
    for (const RecipeChange& change : rule.recipe.then) {
      if (HoldsAt(rule, change.at)) shares.insert(change.at);
    }
  }
  shares.erase(0.0);
  shares.erase(1.0);
  return {shares.begin(), shares.end()};
}

}  // namespace

bool IsListOfRules(const Json& json) { return json.is_object() && json.contains("rules"); }

Recipe RestOf(const Recipe& list) {
  Recipe rest = list;
  rest.base = std::exchange(rest.rest_name, {});
  rest.rules.clear();
  rest.then.clear();
  rest.share = 0.0;
  return rest;
}

Recipe ReadRules(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  JsonObject o(json, where);
  Recipe list = ReadMember(&o, "rest");
  if (!list.then.empty()) {
    throw Error(o.Where("rest"),
                "changes during the run; write the change as a rule with "
                "\"steps\"");
  }
  const Json& rules = *o.Member("rules");
  if (!rules.is_array() || rules.empty()) {
    throw Error(o.Where("rules"), "must be a list of rules, one at least");
  }
  list.rest_name = std::exchange(list.base, std::string(kListName));
  o.Read("name", &list.base);
  o.Finish();
  std::vector<RecipeRule> read;
  for (const Json& rule : rules) {
    read.push_back(ReadRule(rule, o.Where("rules") + "/" + std::to_string(read.size()), list));
  }
  list.rules = std::move(read);
  for (const double share : ChangesOf(list)) {
    RecipeChange change{share, list};
    change.recipe.then.clear();
    change.recipe.share = share;
    list.then.push_back(std::move(change));
  }
  return list;
}

Json RulesJson(const Recipe& list) {
  const IeeeArithmetic ieee;
  Json rules = Json::array();
  for (const RecipeRule& rule : list.rules) rules.push_back(RuleJson(rule));
  Json json{{"rules", std::move(rules)}, {"rest", ToJson(RestOf(list))}};
  if (list.base != kListName) json["name"] = list.base;
  return json;
}

bool Matches(const RecipeRule& rule, std::string_view name, int block, int blocks) {
  const IeeeArithmetic ieee;
  const bool named = std::any_of(rule.linears.begin(), rule.linears.end(),
                                 [&](const std::string& p) { return Matches(p, name); });
  if (!named) return false;
  const int first = KeptBlocks(rule.first_blocks, rule.first_percent, blocks);
  const int last = KeptBlocks(rule.last_blocks, rule.last_percent, blocks);
  const bool all = first == 0 && last == 0;
  return all || block < first || block >= blocks - last;
}

const RecipeRule* RuleOf(const Recipe& recipe, std::string_view name, int block, int blocks) {
  const IeeeArithmetic ieee;
  for (const RecipeRule& rule : recipe.rules) {
    if (HoldsAt(rule, recipe.share) && Matches(rule, name, block, blocks)) return &rule;
  }
  return nullptr;
}

}  // namespace fp4lab
