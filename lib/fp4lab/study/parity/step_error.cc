#include "fp4lab/study/parity/step_error.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/numbers/statistics.h"

namespace fp4lab::study {

StepBlocks BlocksOf(std::span<const double> series) {
  const IeeeArithmetic ieee;
  const auto n = static_cast<double>(series.size());
  const auto root = static_cast<std::size_t>(std::ceil(std::sqrt(n)));
  const std::size_t most = std::max<std::size_t>(series.size() / 5, 1);
  const std::size_t own = 2 * BlockLength(series);
  return {std::min(std::max(own, root), most), own > most};
}

double BlockVariance(std::span<const double> series, std::size_t length) {
  const IeeeArithmetic ieee;
  Expects(length >= 1 && length < series.size(), "BlockVariance: 1 <= length < count");
  const std::size_t count = series.size();
  const double mean = Summarize(series).mean;
  double squares = 0;
  for (std::size_t start = 0; start < count; ++start) {
    double sum = 0;
    for (std::size_t i = 0; i < length; ++i) sum += series[(start + i) % count] - mean;
    squares += sum * sum;
  }
  const auto n = static_cast<double>(count), b = static_cast<double>(length);
  return squares / n / b / (n - b);
}

double BlockDegrees(std::size_t count, std::size_t length) {
  const IeeeArithmetic ieee;
  return static_cast<double>(count) / static_cast<double>(length) - 1;
}

std::vector<std::size_t> SpikesOf(std::span<const double> series) {
  const IeeeArithmetic ieee;
  std::vector<double> before, rest(series.size(), 0), distances;
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (!std::isfinite(series[i])) {
      rest[i] = INFINITY;
      continue;
    }
    if (before.size() == kSpikeBefore) {
      rest[i] = series[i] - Quantile(before, 0.5);
      distances.push_back(std::abs(rest[i]));
      before.erase(before.begin());
    }
    before.push_back(series[i]);
  }
  const double width = distances.empty() ? 0 : 1.4826 * Quantile(distances, 0.5);
  std::vector<std::size_t> spikes;
  bool inside = false;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const bool leaps = rest[i] > kSpikeWidths * width && rest[i] > 0;
    if (leaps && !inside) spikes.push_back(i);
    inside = leaps;
  }
  return spikes;
}

double SameRateP(std::size_t a, std::size_t steps_a, std::size_t b, std::size_t steps_b) {
  const IeeeArithmetic ieee;
  if (a + b == 0 || steps_a == 0 || steps_b == 0) return 1;
  const boost::math::binomial of(
      static_cast<double>(a + b),
      static_cast<double>(steps_a) / static_cast<double>(steps_a + steps_b));
  const auto x = static_cast<double>(a);
  const double below = boost::math::cdf(of, x);
  const double above = a == 0 ? 1 : boost::math::cdf(boost::math::complement(of, x - 1));
  return std::min(1.0, 2 * std::min(below, above));
}

}  // namespace fp4lab::study
