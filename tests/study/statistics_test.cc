#include "fp4lab/study/numbers/statistics.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "fp4lab/base/random.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

// Normal variates by Box and Muller, from Philox.
std::vector<double> Normal(std::size_t count, std::uint64_t seed) {
  const RandomStream stream{.seed = seed};
  std::vector<double> values;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double u = UniformOpen(stream.Bits32(2 * i)), v = UniformOpen(stream.Bits32(2 * i + 1));
    values.push_back(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
  }
  return values;
}

TEST_CASE("The t quantile gives the printed tables' values", "[study]") {
  // Abramowitz and Stegun, table 26.10, and any textbook: two-sided 90, 95, 99 and 99.9 percent.
  struct Row {
    double degrees, t90, t95, t99, t999;
  };
  constexpr Row kTable[] = {{1, 6.314, 12.706, 63.657, 636.619}, {2, 2.920, 4.303, 9.925, 31.599},
                            {3, 2.353, 3.182, 5.841, 12.924},    {4, 2.132, 2.776, 4.604, 8.610},
                            {5, 2.015, 2.571, 4.032, 6.869},     {7, 1.895, 2.365, 3.499, 5.408},
                            {10, 1.812, 2.228, 3.169, 4.587},    {30, 1.697, 2.042, 2.750, 3.646},
                            {120, 1.658, 1.980, 2.617, 3.373}};
  for (const Row& row : kTable) {
    CAPTURE(row.degrees);
    CHECK(std::abs(StudentQuantile(0.95, row.degrees) - row.t90) < 0.00051);
    CHECK(std::abs(StudentQuantile(0.975, row.degrees) - row.t95) < 0.00051);
    CHECK(std::abs(StudentQuantile(0.995, row.degrees) - row.t99) < 0.00051);
    CHECK(std::abs(StudentQuantile(0.9995, row.degrees) - row.t999) < 0.00051);
  }
  CHECK(StudentQuantile(0.025, 4) == Approx(-StudentQuantile(0.975, 4)).epsilon(1e-14));
  CHECK(StudentQuantile(0.5, 3) == 0);
  CHECK(std::abs(StudentQuantile(0.975, 1e7) - 1.959964) < 1e-5);
}

TEST_CASE("Quantiles of t agree with closed forms", "[study]") {
  constexpr double kPi = 3.14159265358979323846;
  for (const double p : {0.001, 0.3, 0.5, 0.77, 0.99}) {
    CHECK(StudentQuantile(p, 1) == Approx(std::tan(kPi * (p - 0.5))).margin(1e-12).epsilon(1e-10));
    CHECK(StudentQuantile(p, 2) ==
          Approx((2 * p - 1) / std::sqrt(2 * p * (1 - p))).margin(1e-12).epsilon(1e-10));
  }
}

TEST_CASE("Mean, deviation and t interval of a case worked by hand", "[study]") {
  // Of 1, 2, 3, 6: mean 3, squares 4 + 1 + 0 + 9 = 14, s.d. sqrt(14 / 3), t(0.975, 3) = 3.18245.
  const Summary summary = Summarize(std::vector<double>{1, 2, 3, 6});
  CHECK(summary.mean == 3);
  CHECK(summary.deviation == Approx(2.160247));
  CHECK(summary.StandardError() == Approx(1.080123));
  const std::optional<Interval> interval = StudentInterval(summary, 0.95);
  REQUIRE(interval);
  CHECK(interval->low == Approx(3 - 3.1824463 * 1.0801234).epsilon(1e-6));
  CHECK(interval->high == Approx(3 + 3.1824463 * 1.0801234).epsilon(1e-6));
  CHECK(!StudentInterval(Summarize(std::vector<double>{1, 2}), 0.95));
  CHECK(Summarize(std::vector<double>{}).count == 0);
}

TEST_CASE("A 95 percent t interval covers the truth in 95 percent of samples", "[study]") {
  const std::vector<double> noise = Normal(4 * 5000, 1);
  int covered = 0;
  for (std::size_t i = 0; i < 5000; ++i) {
    const Summary summary = Summarize(std::span(noise).subspan(4 * i, 4));
    covered += StudentInterval(summary, 0.95)->Contains(0);
  }
  CHECK(std::abs(covered / 5000.0 - 0.95) < 0.01);  // three standard errors
}

TEST_CASE("Quantiles interpolate between order statistics", "[study]") {
  CHECK(Quantile({4, 1, 3, 2}, 0) == 1);
  CHECK(Quantile({4, 1, 3, 2}, 1) == 4);
  CHECK(Quantile({4, 1, 3, 2}, 0.5) == 2.5);
  CHECK(Quantile({7}, 0.3) == 7);
  CHECK(PercentileInterval({0, 1, 2, 3, 4}, 0.5) == Interval{1, 3});
}

TEST_CASE("Monotone repair pools what violates the order and nothing else", "[study]") {
  using V = std::vector<double>;
  CHECK(NonIncreasing(V{3, 2.5, 1}) == V{3, 2.5, 1});
  CHECK(NonIncreasing(V{3, 1, 2}) == V{3, 1.5, 1.5});
  CHECK(NonIncreasing(V{1, 2, 3}) == V{2, 2, 2});
  CHECK(NonIncreasing(V{5, 1, 2, 4.5, 0}) == V{5, 2.5, 2.5, 2.5, 0});
  CHECK(NonIncreasing(V{}).empty());
}

TEST_CASE("Monotone repair is the nearest monotone sequence", "[study]") {
  // No monotone sequence on a grid is nearer.
  const std::vector<double> y = {0.3, 0.9, 0.1, 0.4};
  const auto distance = [&](const std::vector<double>& z) {
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += (y[i] - z[i]) * (y[i] - z[i]);
    return sum;
  };
  const double best = distance(NonIncreasing(y));
  for (int a = 0; a <= 20; ++a) {
    for (int b = 0; b <= a; ++b) {
      for (int c = 0; c <= b; ++c) {
        for (int d = 0; d <= c; ++d) {
          REQUIRE(distance({a / 20.0, b / 20.0, c / 20.0, d / 20.0}) >= best - 1e-12);
        }
      }
    }
  }
}

TEST_CASE("A bootstrap draw depends on its number alone and takes every seed and chunk alike",
          "[study]") {
  const BootstrapDraw draw = DrawBootstrap(5, 37, 1, 11);
  CHECK(draw.seeds == DrawBootstrap(5, 37, 1, 11).seeds);
  CHECK(draw.chunk_counts == DrawBootstrap(5, 37, 1, 11).chunk_counts);
  CHECK(draw.chunk_counts != DrawBootstrap(5, 37, 1, 12).chunk_counts);
  CHECK(std::accumulate(draw.chunk_counts.begin(), draw.chunk_counts.end(), 0u) == 37);
  CHECK(DrawBootstrap(3, 0, 1, 0).chunk_counts.empty());
  std::vector<int> seed_counts(5), chunk_counts(37);
  for (std::uint32_t i = 0; i < kBootstrapDraws; ++i) {
    const BootstrapDraw d = DrawBootstrap(5, 37, 1, i);
    for (const std::size_t s : d.seeds) ++seed_counts[s];
    for (std::size_t c = 0; c < 37; ++c) chunk_counts[c] += static_cast<int>(d.chunk_counts[c]);
  }
  // Binomial with mean 2000 and s.d. 40 and 44: five deviations.
  for (const int count : seed_counts) CHECK(std::abs(count - kBootstrapDraws) < 200);
  for (const int count : chunk_counts) CHECK(std::abs(count - kBootstrapDraws) < 220);
}

TEST_CASE("Blocks of chunks are whole neighbourhoods that wrap around", "[study]") {
  for (std::uint32_t d = 0; d < 50; ++d) {
    const BootstrapDraw draw = DrawBootstrap(2, 37, 5, d);
    std::size_t sum = 0, rises = 0;
    for (std::size_t c = 0; c < 37; ++c) {
      sum += draw.chunk_counts[c];
      rises += draw.chunk_counts[c] > draw.chunk_counts[(c + 36) % 37];
    }
    CHECK(sum == 37);
    CHECK(rises <= 8);  // no more than there are blocks
  }
}

TEST_CASE("The block length follows the autocorrelation", "[study]") {
  const RandomStream stream{.seed = 7};
  const auto series = [&](double correlation, std::uint64_t from) {
    std::vector<double> values;
    double last = 0;
    for (std::uint64_t i = 0; i < 400; ++i) {
      double noise = 0;  // nearly normal
      for (std::uint64_t k = 0; k < 12; ++k) {
        noise += static_cast<double>(stream.Bits32(12 * (from + i) + k)) / 4294967296.0 - 0.5;
      }
      values.push_back(last = correlation * last + noise);
    }
    return values;
  };
  double independent = 0, correlated = 0, strongly = 0;
  for (std::uint64_t study = 0; study < 20; ++study) {
    independent += static_cast<double>(BlockLength(series(0, 1000 * study))) / 20;
    correlated += static_cast<double>(BlockLength(series(0.5, 1000 * study))) / 20;
    strongly += static_cast<double>(BlockLength(series(0.9, 1000 * study))) / 20;
  }
  // AR(1): (2 G^2 / D n)^(1/3) with G / spectrum = 2 r / (1 - r^2) is 10.2 for r = 0.5 and 37.6 for
  // 0.9, where 400 values are few.
  CHECK(independent < 4);
  CHECK(correlated == Approx(10.2).epsilon(0.3));
  CHECK(strongly == Approx(37.6).epsilon(0.4));
  CHECK(BlockLength(std::vector<double>(100, 1.5)) == 1);
  CHECK(BlockLength(std::vector<double>{1, 2, 3}) == 1);
}

TEST_CASE("Fieller's interval holds the ratios that a paired t test does not reject", "[study]") {
  const std::vector<double> a = {0.095, 0.101, 0.090, 0.098}, b = {0.061, 0.066, 0.057, 0.065};
  const auto interval = FiellerInterval(a, b, 0.95);
  REQUIRE(interval);
  CHECK(interval->Contains(0.384 / 0.249));
  for (const double end : {interval->low, interval->high}) {
    std::vector<double> differences;
    for (std::size_t i = 0; i < 4; ++i) differences.push_back(a[i] - end * b[i]);
    const Summary summary = Summarize(differences);
    CHECK(std::abs(summary.mean) / summary.StandardError() == Approx(StudentQuantile(0.975, 3)));
  }
  CHECK(!FiellerInterval(a, std::vector<double>{0.01, -0.01, 0.02, -0.01}, 0.95));
  CHECK(!FiellerInterval(std::vector<double>{1, 2}, std::vector<double>{1, 2}, 0.95));
}

TEST_CASE("The bootstrap interval of a mean agrees with the normal one for many seeds", "[study]") {
  const std::vector<double> values = Normal(200, 3);
  const Summary summary = Summarize(values);
  std::vector<double> means;
  for (std::uint32_t i = 0; i < kBootstrapDraws; ++i) {
    double sum = 0;
    for (const std::size_t s : DrawBootstrap(200, 0, 1, i).seeds) sum += values[s];
    means.push_back(sum / 200);
  }
  const Interval interval = PercentileInterval(means, 0.95);
  CHECK((interval.high - interval.low) / (2 * 1.96 * summary.StandardError()) ==
        Approx(1).epsilon(0.08));
  CHECK(interval.Contains(summary.mean));
}

TEST_CASE("Bootstrap intervals cover a true mean gap nearly as often as they say", "[study]") {
  // 300 studies of 8 seeds. The percentile bootstrap is too narrow by about sqrt(7 / 8) and by
  // normal in place of t quantiles: it should cover some 90 percent, not 95 and not 80.
  const std::vector<double> noise = Normal(8 * 300, 5);
  int covered = 0;
  for (std::size_t study = 0; study < 300; ++study) {
    std::vector<double> means;
    for (std::uint32_t i = 0; i < 500; ++i) {
      double sum = 0;
      for (const std::size_t s : DrawBootstrap(8, 0, 1, i).seeds) sum += noise[8 * study + s];
      means.push_back(sum / 8);
    }
    covered += PercentileInterval(means, 0.95).Contains(0);
  }
  CHECK(covered >= 300 * 0.85);
  CHECK(covered <= 300 * 0.95);
}

}  // namespace
}  // namespace fp4lab::study
