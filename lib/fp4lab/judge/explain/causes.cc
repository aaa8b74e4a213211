#include "fp4lab/judge/explain/causes.h"

#include <algorithm>
#include <iterator>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/explain/deviation_values.h"
#include "fp4lab/judge/explain/evidence.h"

namespace fp4lab {
namespace {

struct Hypothesis {
  Cause cause;
  KernelPlan plan;
};

// The order of causes: a lower rank is tried and reported first.
int Rank(Stage stage) {
  switch (stage) {
    case Stage::kLayout:
      return 0;
    case Stage::kNothing:
      return 1;
    case Stage::kInput:
      return 3;
    case Stage::kTensorScale:
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
  KernelPlan plan = PlanOf(KernelUnder(asked, cause), cause.deviations, &applied,
                           cause.value ? &*cause.value : nullptr);
  if (applied != cause.deviations.size()) return std::nullopt;
  return Hypothesis{std::move(cause), plan};
}

void SortByRank(std::vector<Hypothesis>* hypotheses) {
  std::stable_sort(
      hypotheses->begin(), hypotheses->end(),
      [](const Hypothesis& a, const Hypothesis& b) { return Rank(a.cause) < Rank(b.cause); });
}

bool IsLeftOut(const Deviation& d, const SearchOptions& options) {
  return std::find(options.without.begin(), options.without.end(), &d) != options.without.end();
}

// Whether every value of the kind is tried; values of other kinds are read off the bytes.
bool IsListed(ValueKind kind) {
  return kind == ValueKind::kRowOrder || kind == ValueKind::kColumnOrder ||
         kind == ValueKind::kBefore;
}

// An amax, a factor or a part of the output can be fitted to many bytes.
bool FitsMuch(ValueKind kind) {
  return kind != ValueKind::kPlace && kind != ValueKind::kRowShift &&
         kind != ValueKind::kRowTurns && !IsListed(kind);
}

// All single causes, without deviations whose value is read off the bytes.
std::vector<Hypothesis> Singles(const Kernel& asked, ByteMatcher& matcher, const Extent& extent,
                                const SearchOptions& options) {
  const bool has_random = !matcher.options().random.empty();
  std::vector<Hypothesis> singles;
  const auto add = [&](Cause cause) {
    if (auto h = Applied(asked, std::move(cause))) singles.push_back(std::move(*h));
  };
  for (const Deviation& d : Deviations()) {
    if (IsLeftOut(d, options)) continue;
    if (d.kind == ValueKind::kNone) add({.deviations = {&d}});
    if (!IsListed(d.kind)) continue;
    for (const DeviationValue& value : ValuesToTry(d, asked, matcher, extent)) {
      add({.deviations = {&d}, .value = value});
    }
  }
  for (const Dialect* d : ComparableDialects(asked.dialect, has_random)) {
    singles.push_back(*Applied(asked, {.dialect = d}));
  }
  SortByRank(&singles);
  return singles;
}

bool FillsCodes(const Hypothesis& h) { return h.plan.output.codes_filled.has_value(); }
bool FillsScales(const Hypothesis& h) { return h.plan.output.scales_filled.has_value(); }
bool FillsAll(const Hypothesis& h) { return FillsCodes(h) && FillsScales(h); }

// Both causes together, if that differs from each of them alone.
std::optional<Hypothesis> Pair(const Kernel& asked, const Hypothesis& a, const Hypothesis& b) {
  if (a.cause.dialect != nullptr && b.cause.dialect != nullptr) return std::nullopt;
  if (FillsAll(a) || FillsAll(b) || (a.cause.value && b.cause.value)) return std::nullopt;
  Cause both{.dialect = a.cause.dialect != nullptr ? a.cause.dialect : b.cause.dialect};
  for (const Hypothesis* h : {&a, &b}) {
    both.deviations.insert(both.deviations.end(), h->cause.deviations.begin(),
                           h->cause.deviations.end());
    if (h->cause.value) both.value = h->cause.value;
  }
  std::optional<Hypothesis> pair = Applied(asked, std::move(both));
  if (!pair || pair->plan == a.plan || pair->plan == b.plan) return std::nullopt;
  return pair;
}

// The amax and the factor that a stored number states, to be tried beside another cause.
std::vector<Hypothesis> OfStoredNumber(const Kernel& asked, ByteMatcher& matcher,
                                       const Extent& extent, const SearchOptions& options) {
  std::vector<Hypothesis> stated;
  if (matcher.got().tensor_scale.empty()) return stated;
  for (const Deviation& d : Deviations()) {
    if ((d.kind != ValueKind::kAmax && d.kind != ValueKind::kTimes) || IsLeftOut(d, options)) {
      continue;
    }
    for (const DeviationValue& value : ValuesToTry(d, asked, matcher, extent)) {
      if (auto h = Applied(asked, {.deviations = {&d}, .value = value})) stated.push_back(*h);
    }
  }
  return stated;
}

// Deviations that move rows, by one row, to be tried beside another cause, which hides the
// distance. Where a row has one scale, a scale written a block too late is a row too far down.
std::vector<Hypothesis> OfOneRow(const Kernel& asked, const SearchOptions& options) {
  std::vector<Hypothesis> moved;
  for (const Deviation& d : Deviations()) {
    if (d.kind != ValueKind::kRowShift || IsLeftOut(d, options)) continue;
    if (auto h = Applied(asked, {.deviations = {&d}, .value = d.value})) moved.push_back(*h);
  }
  return moved;
}

// Causes together with deviations that apply only after them, as the order of tiles after a layout
// in tiles.
std::vector<Hypothesis> Dependents(const Kernel& asked, const std::vector<Hypothesis>& singles,
                                   const SearchOptions& options) {
  std::vector<Hypothesis> dependents;
  for (const Deviation& d : Deviations()) {
    if (d.kind != ValueKind::kNone || IsLeftOut(d, options)) continue;
    if (Applied(asked, {.deviations = {&d}})) continue;
    for (const Hypothesis& h : singles) {
      if (FillsAll(h)) continue;
      Cause both = h.cause;
      both.deviations.push_back(&d);
      if (auto pair = Applied(asked, std::move(both))) dependents.push_back(std::move(*pair));
    }
  }
  return dependents;
}

// ---- How far the bytes determine the cause

// The plan without one part of the cause: a deviation, or the dialect for part = Parts() - 1.
KernelPlan PlanWithout(const Kernel& asked, const Cause& cause, std::size_t part) {
  Cause rest = cause;
  if (part < cause.deviations.size()) {
    rest.deviations.erase(rest.deviations.begin() + static_cast<std::ptrdiff_t>(part));
  } else {
    rest.dialect = nullptr;
  }
  return PlanOf(KernelUnder(asked, rest), rest.deviations, nullptr,
                rest.value ? &*rest.value : nullptr);
}

std::size_t EvidenceFor(const Kernel& asked, const Cause& cause, ByteMatcher& matcher,
                        bool last_place) {
  std::size_t least = kEnoughDifferences;
  for (std::size_t part = 0; part < cause.Parts(); ++part) {
    least = std::min(least, IndependentDifferences(PlanWithout(asked, cause, part), matcher,
                                                   kEnoughDifferences, last_place));
  }
  return least;
}

// Moves the first cause whose changes all others contain to the front.
void PutCommonFirst(const KernelPlan& plain, std::vector<Hypothesis>* exact) {
  const auto is_common = [&](const Hypothesis& h) {
    return std::all_of(exact->begin(), exact->end(), [&](const Hypothesis& other) {
      return Contains(other.plan, h.plan, plain);
    });
  };
  const auto common = std::find_if(exact->begin(), exact->end(), is_common);
  if (common != exact->end()) std::rotate(exact->begin(), common, std::next(common));
}

std::optional<SearchResult::Near> NearRival(const std::vector<Hypothesis>& singles,
                                            const std::vector<Hypothesis>& exact,
                                            ByteMatcher& matcher, const Extent& extent) {
  std::optional<SearchResult::Near> near;
  for (const Hypothesis& h : singles) {
    const auto same = [&](const Hypothesis& e) { return e.cause == h.cause; };
    if (std::any_of(exact.begin(), exact.end(), same) || !matcher.TensorScaleMatches(h.plan))
      continue;
    const std::size_t limit = near ? near->blocks_left : kClearMargin;
    const std::size_t left = BlocksLeft(h.plan, matcher, limit, extent.differing);
    if (left < limit && matcher.Count(h.plan).comparable) near = {h.cause, left};
  }
  return near;
}

// If all exact causes change only the tensor's amax, they state the same number, and the bytes
// determine only that number. Returns the cause "scales by the amax 3.5", to be put before them.
std::optional<Hypothesis> TheAmaxItself(const Kernel& asked, ByteMatcher& matcher,
                                        const std::vector<Hypothesis>& exact) {
  const bool says_it = exact[0].plan.tensor.amax == AmaxFrom::kGiven;
  if (says_it || asked.dialect.row_scaled) return std::nullopt;
  std::optional<float> amax;
  for (const Hypothesis& h : exact) {
    KernelPlan rest = h.plan;
    rest.tensor = PlanOf(asked).tensor;
    TensorScalePlan origin;
    origin.amax = h.plan.tensor.amax;
    origin.rows_left_out = h.plan.tensor.rows_left_out;
    origin.rounded = h.plan.tensor.rounded;
    if (rest != PlanOf(asked) || h.plan.tensor != origin) return std::nullopt;
    amax = matcher.MakeEvaluator(h.plan).amax()[0];
  }
  return Applied(
      asked, {.deviations = {FindDeviation("amax-stale")}, .value = DeviationValue{.amax = *amax}});
}

// Whether the cause describes the bytes more than it explains them. A rounded D, for example, gives
// the factors of a wrong amax; saturation, or a scale that is far too large, makes all codes one.
bool IsFitted(const Hypothesis& h, const Extent& extent) {
  if (FillsCodes(h) || FillsScales(h)) return true;
  const Cause& cause = h.cause;
  const auto is_fitted = [&](const Deviation* d) {
    const Rectangle whole{0, 0, extent.rows, extent.cols};
    return d->kind == ValueKind::kFactorAmax || d->kind == ValueKind::kScaleAmax ||
           (d->kind == ValueKind::kUnwritten && cause.value && cause.value->region == whole);
  };
  return std::any_of(cause.deviations.begin(), cause.deviations.end(), is_fitted);
}

void Weigh(const Kernel& asked, ByteMatcher& matcher, const Extent& extent,
           const std::vector<Hypothesis>& singles, std::vector<Hypothesis> exact,
           SearchResult* result) {
  const KernelPlan plain = PlanOf(asked);
  PutCommonFirst(plain, &exact);
  const std::optional<Hypothesis> amax = TheAmaxItself(asked, matcher, exact);
  if (amax) exact.insert(exact.begin(), *amax);
  for (const Hypothesis& h : exact) {
    result->exact.push_back(h.cause);
    if (!amax && !Contains(h.plan, exact[0].plan, plain)) result->rivals.push_back(h.cause);
  }
  result->evidence = EvidenceFor(asked, exact[0].cause, matcher, !result->sets.empty());
  if (!result->rivals.empty()) {
    result->certainty = Certainty::kNotToldApart;
  } else if (result->evidence < kEnoughDifferences) {
    result->certainty = Certainty::kTooFew;
  } else if (IsFitted(exact[0], extent)) {
    result->certainty = Certainty::kFitted;
  } else {
    result->near = NearRival(singles, exact, matcher, extent);
    result->certainty = result->near ? Certainty::kNearRival : Certainty::kForced;
  }
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
    const std::size_t least = best ? best->counts.NotGiven() : original;
    // A cause that leaves more than half of the differences explains little.
    const bool helps = counts.NotGiven() < least && 2 * counts.NotGiven() <= original;
    if (counts.comparable && helps) best = {h->cause, counts};
  }
  return best;
}

// Whether the same files could hold the bytes of d, and d has other formulas than `dialect`.
bool IsOtherOfItsKind(const Dialect& d, const Dialect& dialect) {
  const bool d_numbers = ScaleTypeOf(d, {}) != ScaleType::kByte;
  const bool numbers = ScaleTypeOf(dialect, {}) != ScaleType::kByte;
  const bool scales = d_numbers || numbers || d.scale == dialect.scale;
  return d.element == dialect.element && scales && d.block_rows == dialect.block_rows &&
         d.block_cols == dialect.block_cols && !SameFormulas(d, dialect);
}

}  // namespace

std::string_view Name(Certainty certainty) {
  switch (certainty) {
    case Certainty::kForced:
      return "cause";
    case Certainty::kNotToldApart:
      return "not told apart";
    case Certainty::kTooFew:
    case Certainty::kFitted:
    case Certainty::kNearRival:
      return "consistent with";
    case Certainty::kNone:
      break;
  }
  return "none";
}

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
    if (d->kind != ValueKind::kNone) text += ": " + Text(d->kind, cause.value.value_or(d->value));
  }
  return "The kernel " + text + ".";
}

Kernel KernelUnder(const Kernel& asked, const Cause& cause) {
  Kernel kernel = asked;
  if (cause.dialect != nullptr) kernel.dialect = *cause.dialect;
  return kernel;
}

std::vector<const Dialect*> ComparableDialects(const Dialect& dialect, bool has_random) {
  const IeeeArithmetic ieee;
  std::vector<const Dialect*> others;
  for (const Dialect& d : Dialects()) {
    if (!IsOtherOfItsKind(d, dialect) || IsApproximate(d)) continue;
    if (IsStochastic(d) && !has_random) continue;
    others.push_back(&d);
  }
  return others;
}

std::vector<const Dialect*> ComparableSets(const Dialect& dialect) {
  const IeeeArithmetic ieee;
  std::vector<const Dialect*> sets;
  for (const Dialect& d : Dialects()) {
    if (IsOtherOfItsKind(d, dialect) && IsApproximate(d)) sets.push_back(&d);
  }
  return sets;
}

SearchResult FindCauses(const Kernel& asked, ByteMatcher& matcher, std::size_t original,
                        const Extent& extent, const SearchOptions& options) {
  const IeeeArithmetic ieee;
  SearchResult result;
  const std::vector<Hypothesis> singles = Singles(asked, matcher, extent, options);
  std::vector<Hypothesis> exact;
  const auto keep_if_exact = [&](const Hypothesis& h) {
    ++result.tried;
    const bool matches = matcher.Matches(h.plan);
    if (matches) exact.push_back(h);
    return matches;
  };
  for (const Hypothesis& h : singles) keep_if_exact(h);
  for (const Dialect* d : ComparableSets(asked.dialect)) {
    ++result.tried;
    const Kernel kernel = KernelUnder(asked, {.dialect = d});
    if (LiesInSet(kernel, matcher)) result.sets.push_back(d);
  }
  // Values that fit many bytes are tried only if no other cause gives the bytes.
  const bool explained = !exact.empty();
  for (const Deviation& d : Deviations()) {
    if (d.kind == ValueKind::kNone || IsListed(d.kind) || IsLeftOut(d, options)) continue;
    if (explained && FitsMuch(d.kind)) continue;
    if (d.kind == ValueKind::kAmax && !exact.empty()) continue;  // TheAmaxItself
    for (const DeviationValue& value : ValuesToTry(d, asked, matcher, extent)) {
      const auto h = Applied(asked, {.deviations = {&d}, .value = value});
      if (h && keep_if_exact(*h)) break;
    }
  }
  if (exact.empty() && result.sets.empty()) {
    result.stochastic = FindStochasticCause(asked, matcher);
    if (result.IsStochastic()) return result;
  }
  if (exact.empty() && result.sets.empty() && options.pairs) {
    for (const Hypothesis& h : Dependents(asked, singles, options)) keep_if_exact(h);
    std::vector<Hypothesis> parts = singles;
    for (Hypothesis& h : OfStoredNumber(asked, matcher, extent, options)) parts.push_back(h);
    for (Hypothesis& h : OfOneRow(asked, options)) parts.push_back(h);
    for (std::size_t a = 0; a < parts.size(); ++a) {
      for (std::size_t b = a + 1; b < parts.size(); ++b) {
        if (const auto pair = Pair(asked, parts[a], parts[b])) keep_if_exact(*pair);
      }
    }
    SortByRank(&exact);
  }
  if (exact.empty() && result.sets.empty()) {
    result.best = BestPartial(singles, matcher, original);
  }
  if (!exact.empty()) Weigh(asked, matcher, extent, singles, std::move(exact), &result);
  return result;
}

}  // namespace fp4lab
