#include "fp4lab/measure/summary.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"

namespace fp4lab::measure {

double Quantile(std::vector<double> values, double p) {
  Expects(!values.empty() && p >= 0 && p <= 1, "Quantile: some values, p in [0, 1]");
  std::sort(values.begin(), values.end());
  const double at = p * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  if (below + 1 == values.size()) return values.back();
  const double part = at - static_cast<double>(below);
  return values[below] + part * (values[below + 1] - values[below]);
}

Summary Summarize(std::span<const double> values) {
  const std::vector<double> v(values.begin(), values.end());
  return {Quantile(v, 0.5), Quantile(v, 0.25), Quantile(v, 0.75), v.size()};
}

Summary RateOf(double amount, std::span<const double> seconds) {
  std::vector<double> rates;
  for (const double s : seconds) rates.push_back(amount / s);
  return Summarize(rates);
}

Summary RatioOf(std::span<const double> a, std::span<const double> b) {
  Expects(a.size() == b.size(), "RatioOf: as many repetitions of one as of the other");
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return Summarize(ratios);
}

}  // namespace fp4lab::measure
