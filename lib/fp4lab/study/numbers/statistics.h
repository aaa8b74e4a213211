// The small-sample statistics of a study: t intervals, monotone repair, the paired bootstrap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace fp4lab::study {

// The t below which Student's t with `degrees` > 0 degrees of freedom lies with probability p,
// 0 < p < 1. StudentQuantile(0.975, 4) = 2.7764.
double StudentQuantile(double p, double degrees);

// The share of cases in which data show what they "could show".
inline constexpr double kPower = 0.8;

struct Interval {
  double low = 0, high = 0;
  bool Contains(double x) const { return low <= x && x <= high; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

struct Summary {
  std::size_t count = 0;
  double mean = 0;
  double deviation = 0;  // s.d. with count - 1 in the denominator; 0 for count < 2
  double StandardError() const;
};

Summary Summarize(std::span<const double> values);

// mean +- t * s.d. / sqrt(count) at the two-sided `confidence` in (0, 1). nullopt below
// `kLeastSeeds` values: with two values t is 12.7 and the interval says nothing.
inline constexpr std::size_t kLeastSeeds = 3;
std::optional<Interval> StudentInterval(const Summary& summary, double confidence);

// The ratio of the means of paired values, sum(numerators) / sum(denominators), with Fieller's
// interval at the two-sided `confidence`: the ratios that a paired t test does not reject. nullopt
// below kLeastSeeds pairs, and where the mean denominator is not distinguishable from 0, so that
// the set of these ratios is unbounded. Fieller, J. R. Stat. Soc. B 16 (1954) 175.
std::optional<Interval> FiellerInterval(std::span<const double> numerators,
                                        std::span<const double> denominators, double confidence);

// The value at quantile p of `values` (any order; linear between order statistics, R's type 7).
double Quantile(std::vector<double> values, double p);
// The central `confidence` part of `values`, by Quantile.
Interval PercentileInterval(const std::vector<double>& values, double confidence);

// The non-increasing sequence nearest to `values` in least squares: pool adjacent violators.
std::vector<double> NonIncreasing(std::span<const double> values);

// One draw of the two-level paired bootstrap. `seeds` holds as many seed indices as there are
// seeds, with replacement; `chunk_counts[c]` says how often chunk c of the validation text was
// drawn. All arms and budgets share a draw, so that differences stay paired. Chunks are drawn once
// a draw and not once a seed, since every seed is validated on the same text: the noise of the text
// does not average out over seeds. Chunks are drawn in blocks of neighbours, since neighbouring
// chunks, often of one document, are alike.
struct BootstrapDraw {
  std::vector<std::size_t> seeds;
  std::vector<std::uint32_t> chunk_counts;
};

// Draw number `draw`: a pure function of its arguments (Philox). `chunks` may be 0. Blocks are
// `block` >= 1 chunks long and wrap around the end of the text (circular block bootstrap).
BootstrapDraw DrawBootstrap(std::size_t seeds, std::size_t chunks, std::size_t block,
                            std::uint32_t draw);

// The block length for the circular block bootstrap of the mean of `series`, from its
// autocorrelation: Politis and White, Econometric Reviews 23 (2004) 53, with the correction of
// Patton, Politis and White, ibid. 28 (2009) 372. At least 1; 1 for a series of fewer than 8 values
// or of one value throughout.
std::size_t BlockLength(std::span<const double> series);

inline constexpr int kBootstrapDraws = 2000;

}  // namespace fp4lab::study
