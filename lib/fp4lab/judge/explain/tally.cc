#include "fp4lab/judge/explain/tally.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
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
    return PlanOf(KernelUnder(kernel, c.cause), c.cause.deviations, nullptr,
                  c.cause.value ? &*c.cause.value : nullptr);
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

namespace {

// A case that differs, with the causes that explain it.
struct Explained {
  AnsweredCase c;
  StoredMatrix stored;
  std::vector<Cause> exact;
  std::vector<const Dialect*> sets;
  std::size_t evidence = 0;
};

// Whether a cause's value means the same on every input, as a factor does; an amax or rows belong
// to one input.
bool HoldsForAllInputs(const Cause& cause) {
  return cause.value &&
         std::any_of(cause.deviations.begin(), cause.deviations.end(),
                     [](const Deviation* d) { return d->kind == ValueKind::kTimes; });
}

// Whether a cause's value may be that of every input: a factor, or an amax that a kernel never
// renews.
bool MayHoldForAllInputs(const Cause& cause) {
  return HoldsForAllInputs(cause) ||
         (cause.value &&
          std::any_of(cause.deviations.begin(), cause.deviations.end(), [](const Deviation* d) {
            return d->kind == ValueKind::kFactorAmax || d->kind == ValueKind::kScaleAmax;
          }));
}

// The name that causes are counted by: two numbers are two causes.
std::string CountedName(const Cause& cause) {
  return HoldsForAllInputs(cause) ? Name(cause) + " " + ShortestText(cause.value->amax)
                                  : Name(cause);
}

std::vector<Explained> ExplainAll(const Kernel& kernel, const std::filesystem::path& folder,
                                  const std::vector<float>& amax) {
  std::vector<Explained> all;
  for (const std::size_t index : AnsweredCases(folder)) {
    Explained one{.c = ReadAnsweredCase(folder, index), .stored = {}, .exact = {}, .sets = {}};
    one.stored = StoredAnswer(ShapeOf(kernel.dialect, one.c.x.rows, one.c.x.cols, kernel.layout),
                              one.c.answer);
    ExplainOptions options;
    options.dialect = {.amax = amax, .random = one.c.random};
    options.search.pairs = options.deciding_case = false;
    const Explanation e = Explain(kernel, one.c.x.View(), one.stored, options);
    if (e.equal) continue;
    one.exact = e.causes.exact;
    one.sets = e.causes.sets;
    one.evidence = e.causes.evidence;
    all.push_back(std::move(one));
  }
  return all;
}

// Tries each cause that may hold for all inputs on the cases that it was not read off.
void TryOnAll(const Kernel& kernel, const std::vector<float>& amax, std::vector<Explained>* cases) {
  std::map<std::string, Cause> general;
  for (const Explained& e : *cases) {
    for (const Cause& cause : e.exact) {
      if (!MayHoldForAllInputs(cause)) continue;
      general.emplace(Name(cause) + " " + ShortestText(cause.value->amax), cause);
    }
  }
  for (const auto& [key, cause] : general) {
    const std::string name = CountedName(cause);
    const KernelPlan plan =
        PlanOf(KernelUnder(kernel, cause), cause.deviations, nullptr, &*cause.value);
    for (Explained& e : *cases) {
      const bool known = std::any_of(e.exact.begin(), e.exact.end(),
                                     [&](const Cause& c) { return CountedName(c) == name; });
      const DialectOptions options{.amax = amax, .random = e.c.random};
      ByteMatcher matcher(e.c.x.View(), e.stored, options);
      if (!known && matcher.Matches(plan)) e.exact.push_back(cause);
    }
  }
}

}  // namespace

CauseTally TallyCauses(const Kernel& kernel, const std::filesystem::path& folder,
                       const std::vector<float>& amax) {
  const IeeeArithmetic ieee;
  std::vector<Explained> cases = ExplainAll(kernel, folder, amax);
  TryOnAll(kernel, amax, &cases);
  CauseTally tally{.cases = cases.size()};
  std::map<std::string, CauseCount> counts;
  const auto count = [&](const std::string& name, bool is_set, const Cause& cause,
                         std::size_t evidence) {
    CauseCount& c = counts.try_emplace(name, CauseCount{name, is_set, cause}).first->second;
    ++c.explains;
    c.evidence += evidence;
  };
  for (const Explained& e : cases) {
    for (const Cause& cause : e.exact) {
      // A cause that only states an amax is skipped if another cause states its origin.
      const bool is_number =
          !cause.deviations.empty() && cause.deviations[0]->kind == ValueKind::kAmax;
      if (is_number && e.exact.size() > 1) continue;
      count(CountedName(cause), false, cause, e.evidence);
    }
    for (const Dialect* d : e.sets) count(std::string(d->name), true, {}, 0);
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
  const std::string all = std::to_string(tally.cases);
  std::string text = CountText(tally.cases, "case") + (tally.cases == 1 ? " differs" : " differ") +
                     " from " + name +
                     ". Single causes, and how many of these cases each explains:\n";
  for (std::size_t i = 0; i < std::min(kShown, tally.causes.size()); ++i) {
    const CauseCount& c = tally.causes[i];
    char line[48];
    std::snprintf(line, sizeof line, "  %4zu of %zu  ", c.explains, tally.cases);
    text += line + c.name + (c.is_set ? "  (a set of answers)" : "") + "\n";
  }
  if (tally.causes.empty()) {
    return text +
           "  none\nDo:    Run fp4lab identify on one case: the dialect or the layout may be "
           "another.\n";
  }
  const std::string first = tally.causes.front().name;
  switch (tally.certainty) {
    case Certainty::kForced:
      return text + "Cause: " + first + ": it explains all of them.\n";
    case Certainty::kNotToldApart:
      return text + "Cause: not determined by these cases: several causes explain all " + all +
             ".\n";
    case Certainty::kTooFew:
    case Certainty::kFitted:
    case Certainty::kNearRival:
      return text + "Cause: consistent with " + first + ": it explains all of them" +
             (tally.causes.front().is_set ? ", as an answer that a set allows.\n"
                                          : ", but the evidence is small.\n");
    case Certainty::kNone:
      break;
  }
  return text + "Cause: none explains all " + all + "; " + first + " explains " +
         std::to_string(tally.causes.front().explains) + " of " + all +
         ".\n"
         "Do:    Run explain --input ... on a case that it does not explain. If the dialect or "
         "the\n"
         "       layout is in doubt, run fp4lab identify on one case.\n";
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
