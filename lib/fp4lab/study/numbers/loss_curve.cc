#include "fp4lab/study/numbers/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/numbers/statistics.h"

namespace fp4lab::study {
namespace {

// a^(1 - weight) b^weight; 0 if either is 0.
double GeometricMean(double a, double b, double weight) {
  return a > 0 && b > 0 ? a * std::pow(b / a, weight) : 0;
}

// The steepness at the end of a curve, from the end's secant and the next one: the geometric mean
// rule continued. Noise cannot drive it beyond a factor of 2 from the secant.
double AtEnd(double secant, double next, double weight) {
  if (!(secant > 0 && next > 0)) return secant;
  return secant * std::clamp(std::pow(secant / next, weight), 0.5, 2.0);
}

}  // namespace

bool LossCurve::Usable() const {
  const IeeeArithmetic ieee;
  return losses.size() >= 2 && losses.size() == log_tokens.size() &&
         std::all_of(losses.begin(), losses.end(), [](double loss) { return std::isfinite(loss); });
}

SmoothCurve::SmoothCurve(const LossCurve& curve) {
  const IeeeArithmetic ieee;
  Expects(curve.Usable(), "SmoothCurve: two finite losses at least");
  points_ = {curve.log_tokens, NonIncreasing(curve.losses)};
  const std::vector<double>&x = points_.log_tokens, &y = points_.losses;
  std::vector<double> widths;
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    widths.push_back(x[i + 1] - x[i]);
    secants_.push_back((y[i] - y[i + 1]) / widths[i]);
  }
  if (x.size() == 2) {
    steepness_ = {secants_[0], secants_[0]};
    return;
  }
  const std::size_t last = secants_.size() - 1;
  steepness_.push_back(AtEnd(secants_[0], secants_[1], widths[0] / (widths[0] + widths[1])));
  for (std::size_t i = 0; i < last; ++i) {
    steepness_.push_back(
        GeometricMean(secants_[i], secants_[i + 1], widths[i] / (widths[i] + widths[i + 1])));
  }
  steepness_.push_back(
      AtEnd(secants_[last], secants_[last - 1], widths[last] / (widths[last] + widths[last - 1])));
}

double SmoothCurve::Loss(double log_tokens) const {
  const IeeeArithmetic ieee;
  const std::vector<double>&x = points_.log_tokens, &y = points_.losses;
  if (log_tokens <= x.front()) return y.front() - steepness_.front() * (log_tokens - x.front());
  if (log_tokens >= x.back()) return y.back() - steepness_.back() * (log_tokens - x.back());
  const auto above = std::upper_bound(x.begin(), x.end(), log_tokens);
  const auto i = static_cast<std::size_t>(above - x.begin()) - 1;
  const double width = x[i + 1] - x[i], secant = secants_[i];
  if (secant == 0) return y[i];
  const double t = (log_tokens - x[i]) / width, s = 1 - t;
  const double start = steepness_[i] - secant, end = secant - steepness_[i + 1];
  if (start * end > 0) {
    return y[i] - width * (secant * t + t * s * start * end / (end * s + start * t));
  }
  const double fallen = t * (secant * t + steepness_[i] * s) / (secant + (start - end) * t * s);
  return y[i] + (y[i + 1] - y[i]) * fallen;
}

double SmoothCurve::ReachBelow() const {
  const IeeeArithmetic ieee;
  return points_.log_tokens[0] - 0.5 * (points_.log_tokens[1] - points_.log_tokens[0]);
}

double SmoothCurve::ReachAbove() const {
  const IeeeArithmetic ieee;
  const std::vector<double>& x = points_.log_tokens;
  return x.back() + 0.5 * (x.back() - x[x.size() - 2]);
}

std::optional<double> SmoothCurve::Inverse(double loss) const {
  const IeeeArithmetic ieee;
  const std::vector<double>&x = points_.log_tokens, &y = points_.losses;
  if (loss == y.front()) return x.front();
  const bool before = loss > y.front();
  if (before || loss < y.back()) {
    const double steepness = before ? steepness_.front() : steepness_.back();
    if (steepness == 0) return std::nullopt;
    const double at = before ? x.front() - (loss - y.front()) / steepness
                             : x.back() + (y.back() - loss) / steepness;
    if (at < ReachBelow() || at > ReachAbove()) return std::nullopt;
    return at;
  }
  std::size_t i = 0;
  while (y[i + 1] > loss) ++i;
  double above = x[i], reached = x[i + 1];
  while (true) {
    const double middle = std::midpoint(above, reached);
    if (middle <= above || middle >= reached) return reached;
    (Loss(middle) > loss ? above : reached) = middle;
  }
}

}  // namespace fp4lab::study
