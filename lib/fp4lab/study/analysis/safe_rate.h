// How large a learning rate each arm bears: the end of its safe rates in a study that sweeps them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// A rate is safe for a seed if its loss at the primary budget is at most this above its loss at the
// arm's best rate, in nats per token. Best is the least mean loss over seeds.
inline constexpr double kSafeRateMargin = 0.05;

struct SafeRate {
  std::string arm;  // as the study file names it
  double best = 0;  // the arm's best rate of the sweep
  // The largest rate of the sweep such that it and every rate from `best` up to it are safe for
  // every seed. 0: at every rate some run is missing or diverged.
  double largest = 0;
  // By seed, in the order of Results::seeds: the rate above `best` at which the excess over the
  // loss at `best` reaches the margin. Between two rates of the sweep the excess is taken as linear
  // in the logarithm of the rate; the crossing before a diverged run is the geometric mean of the
  // two rates. nullopt: the largest rate of the sweep is safe.
  std::vector<std::optional<double>> limits;
  // The limits over the reference's, as a geometric mean over seeds with Student's t interval.
  // nullopt: some limit lies beyond the sweep, or there are fewer than kLeastSeeds seeds.
  std::optional<double> relative;
  std::optional<Interval> interval;
};

// One element for each arm of the study file, in its order. `results` holds one model (ByModel) at
// all rates. Empty for a study without a sweep.
std::vector<SafeRate> SafeRates(const Results& results);

// {"margin": nats, "arms": [{"arm", "best", "largest", "limits", "relative", "interval"}, ...]}.
Json ToJson(const std::vector<SafeRate>& rates);

}  // namespace fp4lab::study
