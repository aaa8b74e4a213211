#include "fp4lab/judge/explain/tally.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/cases/case_stream.h"
#include "fp4lab/judge/explain/evidence.h"
#include "fp4lab/judge/explain/explain.h"

namespace fp4lab {
namespace {

// Moves to the front the first cause whose changes are contained in all causes that explain every
// case.
Certainty Weigh(const Kernel& kernel, CauseTally* tally) {
  const auto begin = tally->causes.begin();
  const auto end = std::find_if(begin, tally->causes.end(), [&](const CauseCount& c) {
    return c.is_set || c.explains != tally->cases;  // a set allows the bytes without implying them
  });
  if (begin == end) {
    const bool set = begin != tally->causes.end() && begin->explains == tally->cases;
    return set ? Certainty::kTooFew : Certainty::kNone;
  }
  const auto plan = [&](const CauseCount& c) {
    return PlanOf(KernelUnder(kernel, c.cause), c.cause.deviations);
  };
  const auto common = std::find_if(begin, end, [&](const CauseCount& c) {
    return std::all_of(begin, end, [&](const CauseCount& other) {
      return Contains(plan(other), plan(c), PlanOf(kernel));
    });
  });
  if (common == end) return Certainty::kNotToldApart;
  std::rotate(begin, common, std::next(common));
  return begin->evidence < kEnoughDifferences ? Certainty::kTooFew : Certainty::kForced;
}

}  // namespace

CauseTally TallyCauses(const Kernel& kernel, const std::filesystem::path& folder) {
  const IeeeArithmetic ieee;
  CauseTally tally;
  std::map<std::string, CauseCount> counts;
  const auto count = [&](const std::string& name, bool is_set, const Cause& cause,
                         std::size_t evidence) {
    CauseCount& c = counts.try_emplace(name, CauseCount{name, is_set, cause}).first->second;
    ++c.explains;
    c.evidence += evidence;
  };
  for (const std::size_t index : AnsweredCases(folder)) {
    const AnsweredCase c = ReadAnsweredCase(folder, index);
    const StoredMatrix stored =
        StoredAnswer(ShapeOf(kernel.dialect, c.x.rows, c.x.cols, kernel.layout), c.answer);
    ExplainOptions options;
    options.dialect.random = c.random;
    options.search.pairs = options.deciding_case = false;
    const Explanation e = Explain(kernel, c.x.View(), stored, options);
    if (e.equal) continue;
    ++tally.cases;
    for (const Cause& cause : e.causes.exact) {
      // A cause that only states an amax is skipped if another cause states its origin.
      const bool is_number =
          !cause.deviations.empty() && cause.deviations[0]->kind == ValueKind::kAmax;
      if (is_number && e.causes.exact.size() > 1) continue;
      count(Name(cause), false, cause, e.causes.evidence);
    }
    for (const Dialect* d : e.causes.sets) count(std::string(d->name), true, {}, 0);
  }
  for (auto& [name, c] : counts) tally.causes.push_back(std::move(c));
  std::stable_sort(
      tally.causes.begin(), tally.causes.end(), [](const CauseCount& a, const CauseCount& b) {
        return a.explains != b.explains ? a.explains > b.explains : a.is_set < b.is_set;
      });
  tally.certainty = Weigh(kernel, &tally);
  return tally;
}

std::string Text(const Kernel& kernel, const CauseTally& tally) {
  const IeeeArithmetic ieee;
  const std::string name(kernel.dialect.name);
  if (tally.cases == 0) return "Equal: all cases are those of " + name + "\n";
  constexpr std::size_t kShown = 12;
  std::string text = std::to_string(tally.cases) + " cases differ from " + name +
                     ". Single causes, and how many of these cases each explains:\n";
  for (std::size_t i = 0; i < std::min(kShown, tally.causes.size()); ++i) {
    const CauseCount& c = tally.causes[i];
    char line[32];
    std::snprintf(line, sizeof line, "  %4zu  ", c.explains);
    text += line + c.name + (c.is_set ? "  (a set of answers)" : "") + "\n";
  }
  if (tally.causes.empty()) return text + "  none\n";
  const std::string first = tally.causes.front().name;
  switch (tally.certainty) {
    case Certainty::kForced:
      return text + "Cause: " + first + ": it explains all of them.\n";
    case Certainty::kNotToldApart:
      return text + "Cause: not determined by these cases: several causes explain all " +
             std::to_string(tally.cases) + ".\n";
    case Certainty::kTooFew:
    case Certainty::kNearRival:
      return text + "Cause: consistent with " + first + ": it explains all of them" +
             (tally.causes.front().is_set ? ", as an answer that a set allows.\n"
                                          : ", but the evidence is small.\n");
    case Certainty::kNone:
      break;
  }
  return text +
         "No single cause explains all cases: run explain --input ... on the cases that the first "
         "cause does not explain.\n";
}

Json ToJson(const Kernel& kernel, const CauseTally& tally) {
  const IeeeArithmetic ieee;
  Json causes = Json::array();
  for (const CauseCount& c : tally.causes) {
    causes.push_back({{"name", c.name}, {"set", c.is_set}, {"explains", c.explains}});
  }
  return {{"dialect", kernel.dialect.name},
          {"equal", tally.cases == 0},
          {"cases", tally.cases},
          {"verdict", Name(tally.certainty)},
          {"causes", std::move(causes)}};
}

}  // namespace fp4lab
