#include "fp4lab/study/analysis/statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>

#include "fp4lab/base/error.h"
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
  Expects(p > 0 && p < 1 && degrees > 0, "StudentQuantile: 0 < p < 1, degrees > 0");
  return boost::math::quantile(boost::math::students_t(degrees), p);
}

double Summary::StandardError() const {
  return count < 2 ? 0 : deviation / std::sqrt(static_cast<double>(count));
}

Summary Summarize(std::span<const double> values) {
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
  Expects(confidence > 0 && confidence < 1, "StudentInterval: 0 < confidence < 1");
  if (summary.count < kLeastSeeds) return std::nullopt;
  const double half = summary.StandardError() *
                      StudentQuantile(0.5 + confidence / 2, static_cast<double>(summary.count) - 1);
  return Interval{summary.mean - half, summary.mean + half};
}

double Quantile(std::vector<double> values, double p) {
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
  const double tail = (1 - confidence) / 2;
  return {Quantile(values, tail), Quantile(values, 1 - tail)};
}

std::vector<double> NonIncreasing(std::span<const double> values) {
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

BootstrapDraw DrawBootstrap(std::size_t seeds, std::size_t chunks, std::uint32_t draw) {
  constexpr std::uint64_t kKey = 0x626F6F7473747261;  // "bootstra"
  const RandomStream seed_bits{.seed = kKey, .step = draw, .tensor = 0};
  const RandomStream chunk_bits{.seed = kKey, .step = draw, .tensor = 1};
  BootstrapDraw result;
  for (std::size_t i = 0; i < seeds; ++i) {
    result.seeds.push_back(Below(seed_bits.Bits32(i), seeds));
  }
  result.chunk_counts.assign(chunks, 0);
  for (std::size_t i = 0; i < chunks; i += 4) {
    const PhiloxBlock block = chunk_bits.Block(i / 4);
    for (std::size_t j = 0; j < std::min<std::size_t>(4, chunks - i); ++j) {
      ++result.chunk_counts[Below(block[j], chunks)];
    }
  }
  return result;
}

}  // namespace fp4lab::study
