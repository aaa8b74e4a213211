#include "fp4lab/study/numbers/statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/random.h"

namespace fp4lab::study {
namespace {

// The multiply-shift map of 32 random bits to [0, n): its bias, at most n / 2^32, is below 1e-6 for
// any count of seeds or chunks.
std::size_t Below(std::uint32_t bits, std::size_t n) {
  return static_cast<std::size_t>((std::uint64_t{bits} * n) >> 32);
}

}  // namespace

double StudentQuantile(double p, double degrees) {
  const IeeeArithmetic ieee;
  Expects(p > 0 && p < 1 && degrees > 0, "StudentQuantile: 0 < p < 1, degrees > 0");
  return boost::math::quantile(boost::math::students_t(degrees), p);
}

double Summary::StandardError() const {
  const IeeeArithmetic ieee;
  return count < 2 ? 0 : deviation / std::sqrt(static_cast<double>(count));
}

Summary Summarize(std::span<const double> values) {
  const IeeeArithmetic ieee;
  Summary summary{.count = values.size()};
  if (values.empty()) return summary;
  const auto n = static_cast<double>(values.size());
  for (const double v : values) summary.mean += v;
  summary.mean /= n;
  if (values.size() < 2) return summary;
  double squares = 0;
  for (const double v : values) squares += (v - summary.mean) * (v - summary.mean);
  summary.deviation = std::sqrt(squares / (n - 1));
  return summary;
}

std::optional<Interval> StudentInterval(const Summary& summary, double confidence) {
  const IeeeArithmetic ieee;
  Expects(confidence > 0 && confidence < 1, "StudentInterval: 0 < confidence < 1");
  if (summary.count < kLeastSeeds) return std::nullopt;
  const double half = summary.StandardError() *
                      StudentQuantile(0.5 + confidence / 2, static_cast<double>(summary.count) - 1);
  return Interval{summary.mean - half, summary.mean + half};
}

std::optional<Interval> FiellerInterval(std::span<const double> numerators,
                                        std::span<const double> denominators, double confidence) {
  const IeeeArithmetic ieee;
  Expects(numerators.size() == denominators.size(), "FiellerInterval: pairs");
  if (numerators.size() < kLeastSeeds) return std::nullopt;
  const Summary a = Summarize(numerators), b = Summarize(denominators);
  const auto n = static_cast<double>(a.count);
  double products = 0;
  for (std::size_t i = 0; i < a.count; ++i) {
    products += (numerators[i] - a.mean) * (denominators[i] - b.mean);
  }
  const double t = StudentQuantile(0.5 + confidence / 2, n - 1);
  const double aa = t * t * a.deviation * a.deviation / n,
               bb = t * t * b.deviation * b.deviation / n;
  const double ab = t * t * products / (n - 1) / n;
  // The ratios r with (a - r b)^2 <= t^2 variance(a - r b): a quadratic inequality in r.
  const double square = b.mean * b.mean - bb, middle = a.mean * b.mean - ab;
  if (!(square > 0)) return std::nullopt;
  const double root = std::sqrt(std::max(middle * middle - square * (a.mean * a.mean - aa), 0.0));
  return Interval{(middle - root) / square, (middle + root) / square};
}

double Quantile(std::vector<double> values, double p) {
  const IeeeArithmetic ieee;
  Expects(!values.empty() && p >= 0 && p <= 1, "Quantile: some values, 0 <= p <= 1");
  std::sort(values.begin(), values.end());
  const double position = p * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double weight = position - static_cast<double>(below);
  if (weight == 0 || values[below] == values[above]) return values[below];  // infinities too
  return (1 - weight) * values[below] + weight * values[above];
}

Interval PercentileInterval(const std::vector<double>& values, double confidence) {
  const IeeeArithmetic ieee;
  const double tail = (1 - confidence) / 2;
  return {Quantile(values, tail), Quantile(values, 1 - tail)};
}

std::vector<double> NonIncreasing(std::span<const double> values) {
  const IeeeArithmetic ieee;
  struct Pool {
    double sum;
    std::size_t count;
    double Mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const double v : values) {
    pools.push_back({v, 1});
    while (pools.size() > 1 && pools.back().Mean() > pools[pools.size() - 2].Mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back() = {pools.back().sum + last.sum, pools.back().count + last.count};
    }
  }
  std::vector<double> result;
  for (const Pool& pool : pools) {
    // A pool of one keeps its value's bits.
    result.insert(result.end(), pool.count, pool.count == 1 ? pool.sum : pool.Mean());
  }
  return result;
}

BootstrapDraw DrawBootstrap(std::size_t seeds, std::size_t chunks, std::size_t block,
                            std::uint32_t draw) {
  const IeeeArithmetic ieee;
  Expects(block >= 1, "DrawBootstrap: blocks of a chunk at least");
  constexpr std::uint64_t kKey = 0x626F6F7473747261;  // "bootstra"
  const RandomStream seed_bits{.seed = kKey, .step = draw, .tensor = 0};
  const RandomStream chunk_bits{.seed = kKey, .step = draw, .tensor = 1};
  BootstrapDraw result;
  for (std::size_t i = 0; i < seeds; ++i) {
    result.seeds.push_back(Below(seed_bits.Bits32(i), seeds));
  }
  result.chunk_counts.assign(chunks, 0);
  for (std::size_t first = 0; first < chunks; first += block) {
    const std::size_t start = Below(chunk_bits.Bits32(first / block), chunks);
    for (std::size_t i = 0; i < std::min(block, chunks - first); ++i) {
      ++result.chunk_counts[(start + i) % chunks];
    }
  }
  return result;
}

std::size_t BlockLength(std::span<const double> series) {
  const IeeeArithmetic ieee;
  const auto n = static_cast<double>(series.size());
  const Summary summary = Summarize(series);
  if (series.size() < 8 || !(summary.deviation > 0)) return 1;
  const auto covariance = [&](std::size_t lag) {
    double sum = 0;
    for (std::size_t i = lag; i < series.size(); ++i) {
      sum += (series[i] - summary.mean) * (series[i - lag] - summary.mean);
    }
    return sum / n;
  };
  // The correlation has died out after the lag m if the next `quiet` correlations are small.
  const auto quiet = static_cast<std::size_t>(std::max(5.0, std::sqrt(std::log10(n))));
  const auto most =
      std::min(static_cast<std::size_t>(std::ceil(std::sqrt(n))) + quiet, series.size() - 1);
  const double small = 2 * std::sqrt(std::log10(n) / n) * covariance(0);
  std::size_t m = 0;
  for (std::size_t lag = 1; lag <= most && lag <= m + quiet; ++lag) {
    if (std::abs(covariance(lag)) >= small) m = lag;
  }
  const auto width = static_cast<double>(std::min(2 * std::max<std::size_t>(m, 1), most));
  double spectrum = covariance(0), curvature = 0;  // by the flat-top window
  for (std::size_t lag = 1; static_cast<double>(lag) <= width; ++lag) {
    const double share = static_cast<double>(lag) / width;
    const double weighted = std::min(1.0, 2 * (1 - share)) * covariance(lag);
    spectrum += 2 * weighted;
    curvature += 2 * static_cast<double>(lag) * weighted;
  }
  const double denominator = 4.0 / 3.0 * spectrum * spectrum;
  const double length = std::cbrt(2 * curvature * curvature / denominator * n);
  const double longest = std::ceil(std::min(3 * std::sqrt(n), n / 3));
  return static_cast<std::size_t>(std::clamp(std::ceil(length), 1.0, longest));
}

}  // namespace fp4lab::study
