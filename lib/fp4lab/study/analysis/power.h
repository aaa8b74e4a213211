// The power of a study: the seeds that intervals of a wanted width take, by the spread between the
// seeds of a pilot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

struct PowerRow {
  enum class Quantity { kGap, kLogRatio };  // nats; ln of the token ratio, crossing estimator
  Quantity quantity = Quantity::kGap;
  std::string arm, reference;
  std::int64_t tokens = 0;      // a budget of the pilot
  std::size_t pilot_seeds = 0;  // seeds with a value
  double deviation = 0.0;       // s.d. over them of the paired value
  double half_width = 0.0;      // of the t interval with `seeds` seeds; infinite below kLeastSeeds
  std::size_t needed = 0;       // least seeds whose interval is as narrow as wanted; 0: over kMost
};

struct PowerOptions {
  std::size_t seeds = 5;    // of the planned study
  double gap = 0.005;       // wanted half-widths: of gaps, nats
  double log_ratio = 0.08;  // of ln r
  double confidence = 0.95;
};

// The most seeds that PowerTable considers.
inline constexpr std::size_t kMostSeeds = 1000;

// The least number of seeds, from kLeastSeeds on, for which t * deviation / sqrt(seeds) is at most
// `half_width`; 0: more than kMostSeeds.
std::size_t SeedsNeeded(double deviation, double half_width, double confidence);

// A row for the gap of each arm, and for the token ratio of the pilot's contrast, at each of its
// budgets that at least two seeds have a value of. Losses are in the precision of the training; a
// ratio is the extend form, or the shrink form where that has more seeds.
std::vector<PowerRow> PowerTable(const Results& pilot, const Analysis& analysis,
                                 const PowerOptions& options);

}  // namespace fp4lab::study
