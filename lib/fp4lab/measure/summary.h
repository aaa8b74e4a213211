// Medians and their spread: how a measurement that other programs disturb is summed up.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace fp4lab::measure {

// The value at quantile p in [0, 1] of `values` (any order, at least one; linear between order
// statistics).
double Quantile(std::vector<double> values, double p);

// The middle of a measurement's repetitions and the middle half of them.
struct Summary {
  double median = 0;
  double low = 0, high = 0;  // quartiles
  std::size_t count = 0;     // repetitions
  friend bool operator==(const Summary&, const Summary&) = default;
};

Summary Summarize(std::span<const double> values);

// Of amount / seconds[i]: the rate at which `amount` was done.
Summary RateOf(double amount, std::span<const double> seconds);

// Of a[i] / b[i]: repetitions i of a and b were made one after the other, so that a machine whose
// speed drifts moves both. Sizes are equal.
Summary RatioOf(std::span<const double> a, std::span<const double> b);

}  // namespace fp4lab::measure
