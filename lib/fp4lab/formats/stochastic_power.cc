#include "fp4lab/formats/stochastic_power.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "fp4lab/base/elementary.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/tail_bounds.h"

namespace fp4lab {
namespace {

constexpr double kNinetyNine = 2.3263478740408408;  // the 99 % quantile of the normal distribution

// The draws as one sum. Up to 1/1024 of all counts share their mean probability, which changes the
// variance by less than one part in 10^5 and saves time.
DrawSum SumOf(const DrawsByCount& draws, int bits) {
  const std::size_t width = std::max<std::size_t>(1, draws.size() >> 10);
  const double unit = PowerOfTwo(-bits);
  DrawSum sum;
  for (std::size_t first = 0; first < draws.size(); first += width) {
    double trials = 0.0, ups = 0.0;
    for (std::size_t m = std::max<std::size_t>(1, first); m < first + width; ++m) {
      trials += draws[m];
      ups += draws[m] * (static_cast<double>(m) * unit);
    }
    if (trials > 0.0) sum.Add(ups / trials, static_cast<std::uint64_t>(trials), 0);
  }
  return sum;
}

// The greatest and the least number of ups of a sum that the test refuses.
class RefusedSums {
 public:
  RefusedSums(const DrawsByCount& draws, int bits, double level) {
    for (std::size_t m = 1; m < draws.size(); ++m) {
      if (draws[m] != 0.0) drawn_.emplace_back(m, draws[m]);
    }
    const DrawSum sum = SumOf(draws, bits);
    trials_ = sum.Trials();
    if (trials_ == 0) return;
    // p-values fall from the mean to both ends.
    const auto mean = static_cast<std::uint64_t>(sum.Mean());
    const auto refused = [&](std::uint64_t ups) { return sum.PValueOf(ups) < level; };
    if (refused(0)) low_ = static_cast<double>(Boundary(0, mean, refused));
    if (refused(trials_)) high_ = static_cast<double>(Boundary(trials_, mean, refused));
  }

  // Whether a kernel that rounds up with probability up(m) for a count of m is refused in 99 of 100
  // samples, by the normal approximation of its number of ups.
  template <class Up>
  bool Refuses(Up up) const {
    double mean = 0.0, variance = 0.0;
    for (const auto& [m, draws] : drawn_) {
      const double q = up(m);
      mean += draws * q;
      variance += draws * q * (1.0 - q);
    }
    const double spread = kNinetyNine * std::sqrt(variance);
    return mean + spread <= low_ || mean - spread >= high_;
  }

 private:
  // The last refused number on the way from `end`, which is refused, to `mean`.
  template <class Refused>
  static std::uint64_t Boundary(std::uint64_t end, std::uint64_t mean, Refused refused) {
    std::uint64_t in = end, out = mean;
    while ((in > out ? in - out : out - in) > 1) {
      const std::uint64_t middle = std::min(in, out) + (in > out ? in - out : out - in) / 2;
      (refused(middle) ? in : out) = middle;
    }
    return in;
  }

  std::vector<std::pair<std::size_t, double>> drawn_;  // counts that were drawn, and how often
  std::uint64_t trials_ = 0;
  double low_ = -1.0, high_ = HUGE_VAL;
};

}  // namespace

StochasticPower PowerOfRates(const std::array<DrawsByCount, 2>& draws, int bits, double level) {
  const IeeeArithmetic ieee;
  const std::array<RefusedSums, 2> sums = {RefusedSums(draws[0], bits, level),
                                           RefusedSums(draws[1], bits, level)};
  const auto refuses = [&](auto up) { return sums[0].Refuses(up) || sums[1].Refuses(up); };
  const double unit = PowerOfTwo(-bits);
  const auto sees_bias = [&](double bias) {
    const auto shifted = [&](double by) {
      return refuses([&, by](std::size_t m) {
        return std::clamp(static_cast<double>(m) * unit + by, 0.0, 1.0);
      });
    };
    return shifted(bias) && shifted(-bias);
  };
  StochasticPower power;
  if (sees_bias(1.0)) {
    double unseen = 0.0;
    for (int step = 0; step < 24; ++step) {
      const double middle = 0.5 * (unseen + power.bias);
      (sees_bias(middle) ? power.bias : unseen) = middle;
    }
  }
  for (int kept = 0; kept < bits; ++kept) {
    const bool seen = refuses([&, kept](std::size_t m) {
      return static_cast<double>(m >> (bits - kept)) * PowerOfTwo(-kept);
    });
    if (!seen) break;
    power.bits = kept;
  }
  return power;
}

}  // namespace fp4lab
