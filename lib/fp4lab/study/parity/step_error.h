// The error of a mean over the steps of a run, whose losses are correlated from step to step.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace fp4lab::study {

// Blocks of neighbouring steps for the mean of a series.
struct StepBlocks {
  std::size_t length = 1;
  // Twice the automatic length is more than a fifth of the series, which is then taken: the steps
  // are correlated over so long that an interval may be too narrow.
  bool capped = false;
};

// max(2 BlockLength(series), sqrt(n)), at most n / 5. By simulation of first-order autoregression
// (tests/study/parity_test.cc) 95 % intervals with them hold the mean in 92 to 97 % of cases unless
// `capped`; BlockLength's own (statistics.h) hold it in 80 to 95 %.
StepBlocks BlocksOf(std::span<const double> series);

// The variance of the mean of the series: that of a circular block bootstrap over all its draws, in
// closed form, times n / (n - length), as blocks vary about the series' own mean. An interval takes
// Student's t with n / length - 1 degrees of freedom. `length` < series.size().
double BlockVariance(std::span<const double> series, std::size_t length);
double BlockDegrees(std::size_t count, std::size_t length);

// Places at which a series leaps: steps whose value lies above the median of the `kSpikeBefore`
// values before it by more than kSpikeWidths times 1.4826 times the median of such distances, as
// the first of neighbours. A value that is not finite is a leap.
inline constexpr std::size_t kSpikeBefore = 25;
inline constexpr double kSpikeWidths = 8;
std::vector<std::size_t> SpikesOf(std::span<const double> series);

// Two-sided p of `a` events in `steps_a` steps against `b` in `steps_b`, if both have one rate:
// the exact conditional test, twice the smaller tail, at most 1.
double SameRateP(std::size_t a, std::size_t steps_a, std::size_t b, std::size_t steps_b);

}  // namespace fp4lab::study
