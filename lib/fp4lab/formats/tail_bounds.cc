#include "fp4lab/formats/tail_bounds.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <cmath>

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

double TwiceExp(double log_p) { return std::min(1.0, 2.0 * std::exp(log_p)); }

// K(t) = log E exp(t S) of one draw, and its first two derivatives.
struct Cumulant {
  double value, first, second;
};
Cumulant CumulantOf(double p, double t) {
  const double up = p * std::exp(t), norm = 1.0 - p + up, tilted = up / norm;
  return {std::log1p(p * std::expm1(t)), tilted, tilted * (1.0 - tilted)};
}

}  // namespace

double BinomialPValue(std::uint64_t trials, std::uint64_t yes, double p) {
  Expects(yes <= trials && p > 0.0 && p < 1.0, "draws of a probability between 0 and 1");
  const double n = static_cast<double>(trials), k = static_cast<double>(yes);
  if (trials == 0) return 1.0;
  const boost::math::binomial draws(n, p);
  double tail = 1.0;  // probability of `yes` or more, or of `yes` or fewer
  if (k < n * p) {
    tail = boost::math::cdf(draws, k);
  } else if (yes != 0) {
    tail = boost::math::cdf(boost::math::complement(draws, k - 1.0));
  }
  return std::min(1.0, 2.0 * tail);
}

void DrawSum::Add(double p, std::uint64_t trials, std::uint64_t yes) {
  Expects(yes <= trials && p > 0.0 && p < 1.0, "draws of a probability between 0 and 1");
  if (trials == 0) return;
  const double n = static_cast<double>(trials);
  if (draws_.empty() || draws_.back().p != p) {
    one_probability_ = draws_.empty();
    draws_.push_back({p, 0.0});
  }
  draws_.back().trials += n;
  trials_ += trials;
  yes_ += yes;
  mean_ += n * p;
  variance_ += n * p * (1.0 - p);
}

double DrawSum::LogTail(double sum) const {
  const bool none = sum == 0.0, all = sum == static_cast<double>(trials_);
  if (none || all) {  // exact
    double log_p = 0.0;
    for (const Draws& d : draws_) log_p += d.trials * (none ? std::log1p(-d.p) : std::log(d.p));
    return log_p;
  }
  // Newton's method for K'(t) = sum. Every t gives a valid bound; the least bound is returned.
  double t = (sum - mean_) / variance_, best = 0.0;
  for (int step = 0; step < 12; ++step) {
    t = sum > mean_ ? std::clamp(t, 0.0, 60.0) : std::clamp(t, -60.0, 0.0);
    Cumulant k{0.0, 0.0, 0.0};
    for (const Draws& d : draws_) {
      const Cumulant one = CumulantOf(d.p, t);
      k.value += d.trials * one.value;
      k.first += d.trials * one.first;
      k.second += d.trials * one.second;
    }
    const double bound = k.value - t * sum;
    const bool settled = std::fabs(bound - best) < 1e-3 * (1.0 + std::fabs(best)) && step > 0;
    best = std::min(best, bound);
    if (settled || !(k.second > 0.0)) break;
    t += (sum - k.first) / k.second;
  }
  return best;
}

double DrawSum::PValueOf(std::uint64_t yes) const {
  if (trials_ == 0) return 1.0;
  if (one_probability_) return BinomialPValue(trials_, yes, draws_.front().p);
  return TwiceExp(LogTail(static_cast<double>(yes)));
}

}  // namespace fp4lab
