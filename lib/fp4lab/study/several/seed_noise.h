// The noise of seeds in a league of recipes, pooled over its recipes.
//
// Three to five seeds of one recipe say little of its noise, but a league has many recipes. In each
// pool of recipes the losses are fitted by loss = recipe + seed; the rest has one standard
// deviation for the pool. The difference of two recipes over n common seeds has the variance (a^2 +
// b^2 + c^2) / n: a and b are the standard deviations of their pools, and c, 0 within a pool, is
// that of what the seeds do to one pool and not to the other. Intervals are Student's, with
// Satterthwaite's degrees of freedom (Biometrics Bulletin 2 (1946) 110). A pool of one recipe has
// no known noise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fp4lab::study {

using SeedLosses = std::map<std::uint64_t, double>;  // nats, by seed
// In the order in which recipes were read.
using RecipeLosses = std::vector<std::pair<std::string, SeedLosses>>;

// Without recipes whose losses an earlier one has, too: the same computation under two names.
RecipeLosses DistinctLosses(const RecipeLosses& losses);

// The fit of a pool. `losses`: of two recipes or more.
class NoisePool {
 public:
  explicit NoisePool(const RecipeLosses& losses);

  std::size_t recipes = 0;
  double deviation = 0, freedom = 0;          // of the rest, and its degrees of freedom
  std::map<std::uint64_t, double> effects;    // of the seeds; their mean is 0
  std::map<std::uint64_t, std::size_t> runs;  // how many recipes have the seed
};

struct Variance {
  double value = 0, freedom = 0;
};

class SeedNoise {
 public:
  // `pools`: the pool of each recipe, in the order of `losses`; empty: its noise is not known.
  SeedNoise(const RecipeLosses& losses, const std::vector<std::string>& pools);

  const std::map<std::string, NoisePool>& Pools() const { return pools_; }
  // Of the difference of a recipe of pool `a` and one of pool `b` in one seed. Both are in Pools().
  Variance OfOneSeed(const std::string& a, const std::string& b) const;
  // The half-width at `confidence` of the mean difference over `seeds` common seeds; nullopt where
  // a pool's noise is not known.
  std::optional<double> HalfWidth(const std::string& a, const std::string& b, std::size_t seeds,
                                  double confidence) const;

 private:
  // Of what seeds do to one pool and not to the other: the square of its standard deviation.
  Variance Between(const NoisePool& a, const NoisePool& b) const;

  std::map<std::string, NoisePool> pools_;
};

}  // namespace fp4lab::study
