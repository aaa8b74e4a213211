#include "fp4lab/study/analysis/criteria.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/study/analysis/verdicts.h"

namespace fp4lab::study {
namespace {

struct Kind {
  const char* name;
  std::size_t least_arms, most_arms;
  std::vector<std::string> keys;  // besides "kind", "arms", "claim", "source"
  CriterionResult (*evaluate)(const Context&, const Criterion&);
};

const std::array<Kind, 6>& Kinds() {
  static const std::array<Kind, 6> kKinds = {{
      {"mean_order", 2, 99, {"tokens"}, MeanOrder},
      {"seed_order", 2, 99, {"seed_share", "tokens"}, SeedOrder},
      {"gap_ratio", 2, 2, {"high", "low", "tokens"}, GapRatio},
      {"token_ratio", 2, 2, {"excludes_one", "high", "low", "minimum_tokens"}, RatioRange},
      {"token_ratio_grows", 2, 2, {"minimum_tokens"}, RatioGrows},
      {"small_gap", 2, 2, {"share", "standard_errors"}, SmallGap},
  }};
  return kKinds;
}

const Kind* FindKind(const std::string& name) {
  const auto found = std::find_if(Kinds().begin(), Kinds().end(),
                                  [&](const Kind& kind) { return kind.name == name; });
  return found == Kinds().end() ? nullptr : &*found;
}

Criterion ReadCriterion(const Json& json, const std::string& where) {
  Criterion criterion;
  JsonObject o(json, where);
  o.Require("kind", &criterion.kind);
  o.Read("claim", &criterion.claim);
  o.Read("source", &criterion.source);
  if (!criterion.claim.empty() && criterion.source.empty()) {
    throw Error(o.Where("claim"), "needs the key \"source\": where the claim was published");
  }
  const Kind* kind = FindKind(criterion.kind);
  if (kind == nullptr) {
    throw Error(o.Where("kind"), "there is no criterion \"" + criterion.kind + "\"; " +
                                     DidYouMean(criterion.kind, NamesOf(Kinds())));
  }
  o.Require("arms", &criterion.arms);
  if (criterion.arms.size() < kind->least_arms || criterion.arms.size() > kind->most_arms) {
    throw Error(o.Where("arms"), kind->most_arms == 2 ? "must be two arms" : "needs two arms");
  }
  const auto read = [&](const char* key, auto* value) {
    if (std::count(kind->keys.begin(), kind->keys.end(), key) > 0) o.Read(key, value);
  };
  read("tokens", &criterion.tokens);
  read("low", &criterion.low);
  read("high", &criterion.high);
  read("minimum_tokens", &criterion.minimum_tokens);
  read("seed_share", &criterion.seed_share);
  read("share", &criterion.share);
  read("standard_errors", &criterion.standard_errors);
  read("excludes_one", &criterion.excludes_one);
  o.Finish();
  const std::set<std::string> known = {"all", "largest", "primary"};
  if (!known.contains(criterion.tokens)) {
    throw Error(o.Where("tokens"), "must be \"all\", \"primary\" or \"largest\"");
  }
  if (std::count(kind->keys.begin(), kind->keys.end(), "high") > 0 &&
      !(criterion.low < criterion.high)) {
    throw Error(o.Where("high"), "must lie above \"low\"");
  }
  return criterion;
}

}  // namespace

void CheckCriteria(const Json& criteria, const std::vector<std::string>& arms,
                   const std::string& where) {
  const IeeeArithmetic ieee;
  if (!criteria.is_array()) throw Error(where, "must be an array");
  for (std::size_t i = 0; i < criteria.size(); ++i) {
    const std::string place = where + "/" + std::to_string(i);
    for (const std::string& arm : ReadCriterion(criteria[i], place).arms) {
      if (std::find(arms.begin(), arms.end(), arm) == arms.end()) {
        throw Error(place + "/arms", "there is no arm \"" + arm + "\"; " + DidYouMean(arm, arms));
      }
    }
  }
}

std::vector<CriterionResult> EvaluateCriteria(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  const Json& criteria = results.question.criteria;
  CheckCriteria(criteria, results.arms, "results.json#/study/analysis/criteria");
  const Context context{results, analysis, LossesOf(results, Precision::kTraining)};
  std::vector<CriterionResult> verdicts;
  for (const Json& json : criteria) {
    const Criterion criterion = ReadCriterion(json, "criteria");
    verdicts.push_back(FindKind(criterion.kind)->evaluate(context, criterion));
    verdicts.back().claim = criterion.claim;
    verdicts.back().source = criterion.source;
  }
  return verdicts;
}

}  // namespace fp4lab::study
