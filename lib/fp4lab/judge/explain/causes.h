// The search for causes: deviations and other dialects that turn the reference into the bytes that
// a kernel wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/judge/explain/extent.h"
#include "fp4lab/judge/explain/stochastic_cause.h"
#include "fp4lab/judge/kernels/match.h"

namespace fp4lab {

// A possible cause of a kernel's bytes: another dialect, deviations, or both.
struct Cause {
  const Dialect* dialect = nullptr;  // nullptr: the dialect that the kernel should compute
  std::vector<const Deviation*> deviations = {};
  // The value of the deviation that takes one; absent: the table's value.
  std::optional<DeviationValue> value = {};

  std::size_t Parts() const { return deviations.size() + (dialect != nullptr ? 1 : 0); }
  friend bool operator==(const Cause&, const Cause&) = default;
};

// "ties-away", "nvfp4.modelopt + codes-high-first".
std::string Name(const Cause& cause);
// "The kernel rounds ties away from zero.", for people.
std::string Sentence(const Cause& cause);
Kernel KernelUnder(const Kernel& asked, const Cause& cause);

struct SearchOptions {
  bool pairs = true;
  // Deviations to leave out of the search, to test how explain treats an unknown wrong kernel.
  std::vector<const Deviation*> without = {};
};

// How far the bytes determine the cause.
enum class Certainty : std::uint8_t {
  kForced,        // one cause gives all bytes, with enough evidence for each part and no near rival
  kNotToldApart,  // several causes give all bytes
  kTooFew,        // one cause, but fewer than kEnoughDifferences (explain/evidence.h) support it
  kFitted,        // one cause, but fitted to the bytes: other errors can give them too
  kNearRival,     // one cause, but another one leaves fewer than kClearMargin blocks different
  kNone           // no cause gives all bytes
};
// "cause", "not told apart", "consistent with" or "none".
std::string_view Name(Certainty certainty);

struct SearchResult {
  // The causes that give all bytes, fewest parts first, layout before arithmetic. If there is a
  // cause whose changes all others contain, it comes first.
  std::vector<Cause> exact = {};
  Certainty certainty = Certainty::kNone;
  // The number of independent differences that support the weakest part of exact[0], counted up to
  // kEnoughDifferences.
  std::size_t evidence = 0;
  // The causes of `exact` that do not contain the changes of exact[0]: other explanations.
  std::vector<Cause> rivals = {};
  // A single cause that leaves few blocks different.
  struct Near {
    Cause cause;
    std::size_t blocks_left = 0;
  };
  std::optional<Near> near = {};
  // Approximate dialects whose sets of answers hold the bytes.
  std::vector<const Dialect*> sets = {};
  // If `exact` and `sets` are empty: stochastic rounding whose neighbouring codes hold the bytes.
  std::optional<StochasticCause> stochastic = {};
  // Whether an accepted distribution is the only explanation.
  bool IsStochastic() const {
    return exact.empty() && sets.empty() && stochastic && stochastic->Accepted();
  }
  // If there is none of the above: the single cause that leaves the fewest codes and scales
  // different. A code or scale that it places beyond the kernel's bytes counts as different.
  struct Partial {
    Cause cause;
    MatchCounts counts;
  };
  std::optional<Partial> best = {};
  std::size_t tried = 0;
};

// Searches for the causes of a kernel's bytes. `original`: the number of codes and scales that
// differ from the reference; a partial cause must leave fewer. `extent`: the differences from the
// reference.
SearchResult FindCauses(const Kernel& asked, ByteMatcher& matcher, std::size_t original,
                        const Extent& extent, const SearchOptions& options = {});

// The directed case (judge/cases/case.h) on which the causes write the most different answers,
// among small cases and for the first few causes. nullopt if no case tells any of them apart.
struct DecidingCase {
  std::string name;
  // The number of causes that were compared, and of different answers among them.
  std::size_t causes = 0, answers = 0;
};
std::optional<DecidingCase> FindDecidingCase(const Kernel& kernel, std::span<const Cause> causes);

// Other dialects whose bytes the same files could hold: equal element and scale formats and block
// shape, but other formulas. Stochastic dialects only if random bits are given; no approximate
// dialects.
std::vector<const Dialect*> ComparableDialects(const Dialect& dialect, bool has_random);
// The approximate ones among such dialects.
std::vector<const Dialect*> ComparableSets(const Dialect& dialect);

}  // namespace fp4lab
