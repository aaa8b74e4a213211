// Which deviations and which other dialects turn a kernel's reference into the bytes that it wrote.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/judge/match.h"

namespace fp4lab {

// One way in which bytes may have come about: another dialect, deviations, or both.
struct Cause {
  const Dialect* dialect = nullptr;  // nullptr: the one that the kernel should be
  std::vector<const Deviation*> deviations = {};

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
};

struct SearchResult {
  // Those that give all bytes, fewest parts first, layout before arithmetic. They cannot be told
  // apart on this input.
  std::vector<Cause> exact = {};
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
SearchResult FindCauses(const Kernel& asked, ByteMatcher& matcher, std::size_t original,
                        const SearchOptions& options = {});

// Other dialects whose bytes the same files could hold: equal element, scale and block, another
// formula. Stochastic ones only where random bits are given; none whose answer is a set.
std::vector<const Dialect*> ComparableDialects(const Dialect& dialect, bool has_random);
// Those whose answer is a set.
std::vector<const Dialect*> ComparableSets(const Dialect& dialect);

}  // namespace fp4lab
