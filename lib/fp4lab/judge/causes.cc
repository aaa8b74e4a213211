#include "fp4lab/judge/causes.h"

#include <algorithm>
#include <cctype>

namespace fp4lab {
namespace {

struct Hypothesis {
  Cause cause;
  KernelPlan plan;
};

// Less is tried, and told, first.
int Rank(Stage stage) {
  switch (stage) {
    case Stage::kLayout:
      return 0;
    case Stage::kNothing:
      return 1;
    case Stage::kInput:
      return 3;
    case Stage::kLevelTwo:
      return 4;
    case Stage::kScale:
      return 5;
    case Stage::kElement:
      return 6;
  }
  return 7;
}
int Rank(const Cause& cause) {
  int rank = cause.dialect != nullptr ? 2 : 0;
  for (const Deviation* d : cause.deviations) rank += Rank(d->stage);
  return rank;
}

std::optional<Hypothesis> Applied(const Kernel& asked, Cause cause) {
  std::size_t applied = 0;
  KernelPlan plan = PlanOf(KernelUnder(asked, cause), cause.deviations, &applied);
  if (applied != cause.deviations.size()) return std::nullopt;
  return Hypothesis{std::move(cause), plan};
}

std::vector<Hypothesis> Singles(const Kernel& asked, bool has_random) {
  std::vector<Hypothesis> singles;
  for (const Deviation& d : Deviations()) {
    if (auto h = Applied(asked, {.deviations = {&d}})) singles.push_back(std::move(*h));
  }
  for (const Dialect* d : ComparableDialects(asked.dialect, has_random)) {
    singles.push_back(*Applied(asked, {.dialect = d}));
  }
  std::stable_sort(singles.begin(), singles.end(), [](const Hypothesis& a, const Hypothesis& b) {
    return Rank(a.cause) < Rank(b.cause);
  });
  return singles;
}

bool FillsAll(const Hypothesis& h) {
  return h.plan.output.codes_filled.has_value() && h.plan.output.scales_filled.has_value();
}

// Both together, where that differs from either alone.
std::optional<Hypothesis> Pair(const Kernel& asked, const Hypothesis& a, const Hypothesis& b) {
  if (a.cause.dialect != nullptr && b.cause.dialect != nullptr) return std::nullopt;
  if (FillsAll(a) || FillsAll(b)) return std::nullopt;
  Cause both{.dialect = a.cause.dialect != nullptr ? a.cause.dialect : b.cause.dialect};
  for (const Hypothesis* h : {&a, &b}) {
    both.deviations.insert(both.deviations.end(), h->cause.deviations.begin(),
                           h->cause.deviations.end());
  }
  std::optional<Hypothesis> pair = Applied(asked, std::move(both));
  if (!pair || pair->plan == a.plan || pair->plan == b.plan) return std::nullopt;
  return pair;
}

void SortByRank(std::vector<Cause>* causes) {
  std::stable_sort(causes->begin(), causes->end(),
                   [](const Cause& a, const Cause& b) { return Rank(a) < Rank(b); });
}

std::optional<SearchResult::Partial> BestPartial(const std::vector<Hypothesis>& singles,
                                                 ByteMatcher& matcher, std::size_t original) {
  std::vector<std::pair<std::size_t, const Hypothesis*>> scored;
  for (const Hypothesis& h : singles) scored.emplace_back(matcher.SampleMismatches(h.plan), &h);
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  scored.resize(std::min<std::size_t>(scored.size(), 4));
  std::optional<SearchResult::Partial> best;
  for (const auto& [mismatches, h] : scored) {
    const MatchCounts counts = matcher.Count(h->plan);
    const std::size_t least = best ? best->counts.Different() : original;
    if (counts.comparable && counts.Different() < least) best = {h->cause, counts};
  }
  return best;
}

// The same files could hold its bytes, and its formula is another.
bool IsOtherOfItsKind(const Dialect& d, const Dialect& dialect) {
  return d.element == dialect.element && d.scale == dialect.scale &&
         d.block_rows == dialect.block_rows && d.block_cols == dialect.block_cols &&
         !SameFormulas(d, dialect);
}

}  // namespace

std::string Name(const Cause& cause) {
  std::string name = cause.dialect != nullptr ? std::string(cause.dialect->name) : "";
  for (const Deviation* d : cause.deviations) {
    name += (name.empty() ? "" : " + ") + std::string(d->name);
  }
  return name;
}

std::string Sentence(const Cause& cause) {
  std::string text;
  if (cause.dialect != nullptr) text = "computes " + std::string(cause.dialect->name);
  for (const Deviation* d : cause.deviations) {
    text += (text.empty() ? "" : ", and ") + std::string(d->what);
  }
  return "The kernel " + text + ".";
}

Kernel KernelUnder(const Kernel& asked, const Cause& cause) {
  Kernel kernel = asked;
  if (cause.dialect != nullptr) kernel.dialect = *cause.dialect;
  return kernel;
}

std::vector<const Dialect*> ComparableDialects(const Dialect& dialect, bool has_random) {
  std::vector<const Dialect*> others;
  for (const Dialect& d : Dialects()) {
    if (!IsOtherOfItsKind(d, dialect) || IsApproximate(d)) continue;
    if (IsStochastic(d) && !has_random) continue;
    others.push_back(&d);
  }
  return others;
}

std::vector<const Dialect*> ComparableSets(const Dialect& dialect) {
  std::vector<const Dialect*> sets;
  for (const Dialect& d : Dialects()) {
    if (IsOtherOfItsKind(d, dialect) && IsApproximate(d)) sets.push_back(&d);
  }
  return sets;
}

SearchResult FindCauses(const Kernel& asked, ByteMatcher& matcher, std::size_t original,
                        const SearchOptions& options) {
  SearchResult result;
  const std::vector<Hypothesis> singles = Singles(asked, !matcher.options().random.empty());
  for (const Hypothesis& h : singles) {
    ++result.tried;
    if (matcher.Matches(h.plan)) result.exact.push_back(h.cause);
  }
  for (const Dialect* d : ComparableSets(asked.dialect)) {
    ++result.tried;
    const Kernel kernel = KernelUnder(asked, {.dialect = d});
    if (LiesInSet(kernel, matcher)) result.sets.push_back(d);
  }
  if (!result.exact.empty() || !result.sets.empty()) return result;
  if (options.pairs) {
    for (std::size_t a = 0; a < singles.size(); ++a) {
      for (std::size_t b = a + 1; b < singles.size(); ++b) {
        const std::optional<Hypothesis> pair = Pair(asked, singles[a], singles[b]);
        if (!pair) continue;
        ++result.tried;
        if (matcher.Matches(pair->plan)) result.exact.push_back(pair->cause);
      }
    }
    SortByRank(&result.exact);
  }
  if (result.exact.empty()) result.best = BestPartial(singles, matcher, original);
  return result;
}

}  // namespace fp4lab
