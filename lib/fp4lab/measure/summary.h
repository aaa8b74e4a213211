// Medians and quartiles: summaries of measurements that other programs disturb.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace fp4lab::measure {

// The value at quantile p in [0, 1] of `values` (any order, at least one; linear between order
// statistics).
double Quantile(std::vector<double> values, double p);

// The median and the quartiles of a measurement's repetitions.
struct Summary {
  double median = 0;
  double low = 0, high = 0;  // quartiles
  std::size_t count = 0;     // repetitions
  friend bool operator==(const Summary&, const Summary&) = default;
};

Summary Summarize(std::span<const double> values);

// Summary of the rates amount / seconds[i].
Summary RateOf(double amount, std::span<const double> seconds);

// Summary of the ratios a[i] / b[i]. Repetitions i of a and b must have been made one after the
// other, so that drift in the machine's speed affects both. The sizes must be equal.
Summary RatioOf(std::span<const double> a, std::span<const double> b);

}  // namespace fp4lab::measure
