#include "fp4lab/study/several/effects.h"

#include <algorithm>
#include <boost/math/distributions/fisher_f.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab::study {

std::array<double, 3> ShapleyShares(std::span<const double, 8> values) {
  const IeeeArithmetic ieee;
  std::array<double, 3> shares{};
  std::array<std::size_t, 3> order = {0, 1, 2};
  do {
    std::size_t corner = 0;
    for (const std::size_t factor : order) {
      const std::size_t next = corner | (std::size_t{4} >> factor);
      shares[factor] += (values[next] - values[corner]) / 6;
      corner = next;
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return shares;
}

MeanInterval WelchDifference(std::span<const double> a, std::span<const double> b,
                             double confidence) {
  const IeeeArithmetic ieee;
  Expects(a.size() > 1 && b.size() > 1, "WelchDifference: two values or more");
  const Summary x = Summarize(a), y = Summarize(b);
  const double p = x.StandardError() * x.StandardError();
  const double q = y.StandardError() * y.StandardError();
  const double mean = x.mean - y.mean;
  if (p + q == 0) return {mean, {mean, mean}};
  const double degrees =
      (p + q) * (p + q) /
      (p * p / static_cast<double>(x.count - 1) + q * q / static_cast<double>(y.count - 1));
  const double half = StudentQuantile(0.5 + confidence / 2, degrees) * std::sqrt(p + q);
  return {mean, {mean - half, mean + half}};
}

std::size_t CountThatSuffices(double deviation, double wanted, double confidence) {
  const IeeeArithmetic ieee;
  Expects(wanted > 0 && std::isfinite(deviation), "CountThatSuffices: a width above 0");
  std::size_t n = 2;
  while (StudentQuantile(0.5 + confidence / 2, static_cast<double>(n) - 1) * deviation /
             std::sqrt(static_cast<double>(n)) >
         wanted) {
    ++n;
  }
  return n;
}

std::vector<bool> HolmKept(std::span<const double> p, double level) {
  const IeeeArithmetic ieee;
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return p[a] < p[b]; });
  std::vector<bool> kept(p.size(), false);
  for (std::size_t rank = 0; rank < p.size(); ++rank) {
    if (!(p[order[rank]] <= level / static_cast<double>(p.size() - rank))) break;
    kept[order[rank]] = true;
  }
  return kept;
}

double FallingZero(const std::function<double(double)>& f, double low, double high) {
  const IeeeArithmetic ieee;
  for (int i = 0; i < 2000; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (f(middle) > 0 ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

double StudentTwoSided(double t, double degrees) {
  const IeeeArithmetic ieee;
  return 2 *
         boost::math::cdf(boost::math::complement(boost::math::students_t(degrees), std::abs(t)));
}

double FisherAbove(double f, double degrees, double degrees_below) {
  const IeeeArithmetic ieee;
  return boost::math::cdf(
      boost::math::complement(boost::math::fisher_f(degrees, degrees_below), f));
}

}  // namespace fp4lab::study
