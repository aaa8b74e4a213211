// Which deviations and which other dialects turn a kernel's reference into the bytes that it wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/judge/extent.h"
#include "fp4lab/judge/match.h"

namespace fp4lab {

// One way in which bytes may have come about: another dialect, deviations, or both.
struct Cause {
  const Dialect* dialect = nullptr;  // nullptr: the one that the kernel should be
  std::vector<const Deviation*> deviations = {};
  // Of the deviation that takes one, if not the table's.
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
  // Left out of the search: what explain says of a wrong kernel that it does not know.
  std::vector<const Deviation*> without = {};
};

// What the bytes say about the causes that give all of them.
enum class Certainty : std::uint8_t {
  kForced,        // one cause, enough differences speak for each of its parts, no other comes near
  kNotToldApart,  // several
  kTooFew,        // one, but fewer than kEnoughDifferences (judge/evidence.h) speak for it
  kNearRival,     // one, but another leaves fewer than kClearMargin blocks different
  kNone           // none
};
// "cause", "not told apart", "consistent with" or "none".
std::string_view Name(Certainty certainty);

struct SearchResult {
  // Those that give all bytes, fewest parts first, layout before arithmetic; before them the one
  // whose changes all others make as well, if there is one.
  std::vector<Cause> exact = {};
  Certainty certainty = Certainty::kNone;
  // How many independent differences speak for the weakest part of exact[0], counted up to
  // kEnoughDifferences.
  std::size_t evidence = 0;
  // Those of `exact` that do not make the changes of exact[0]: other explanations.
  std::vector<Cause> rivals = {};
  // A single cause that leaves few blocks different.
  struct Near {
    Cause cause;
    std::size_t blocks_left = 0;
  };
  std::optional<Near> near = {};
  // Approximate dialects whose sets of answers hold the bytes.
  std::vector<const Dialect*> sets = {};
  // Where there is neither: the single one that leaves the fewest codes and scales different.
  struct Partial {
    Cause cause;
    MatchCounts counts;
  };
  std::optional<Partial> best = {};
  std::size_t tried = 0;
};

// `original`: how many codes and scales of the reference differ; a partial cause must leave fewer.
// `extent`: of the reference.
SearchResult FindCauses(const Kernel& asked, ByteMatcher& matcher, std::size_t original,
                        const Extent& extent, const SearchOptions& options = {});

// The directed case (judge/case.h) on which most of the causes write different bytes, of small
// cases and the first few causes. nullopt where none tells any apart.
struct DecidingCase {
  std::string name;
  std::size_t causes = 0, answers = 0;  // looked at; groups of those with other bytes
};
std::optional<DecidingCase> FindDecidingCase(const Kernel& kernel, std::span<const Cause> causes);

// Other dialects whose bytes the same files could hold: equal element, scale and block, another
// formula. Stochastic ones only where random bits are given; none whose answer is a set.
std::vector<const Dialect*> ComparableDialects(const Dialect& dialect, bool has_random);
// Those whose answer is a set.
std::vector<const Dialect*> ComparableSets(const Dialect& dialect);

}  // namespace fp4lab
