#include "fp4lab/study/analysis/token_gap.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/study/analysis/statistics.h"

namespace fp4lab::study {
namespace {

using Status = LogRatio::Status;

bool Usable(const LossCurve& curve) {
  return curve.losses.size() >= 2 && curve.losses.size() == curve.log_tokens.size() &&
         std::all_of(curve.losses.begin(), curve.losses.end(),
                     [](double loss) { return std::isfinite(loss); });
}

LossCurve Repaired(const LossCurve& curve) {
  return {curve.log_tokens, NonIncreasing(curve.losses)};
}

// The ends of the range of ln D over which a curve may be extrapolated.
double ReachBelow(const LossCurve& curve) {
  return curve.log_tokens[0] - 0.5 * (curve.log_tokens[1] - curve.log_tokens[0]);
}
double ReachAbove(const LossCurve& curve) {
  const std::size_t last = curve.log_tokens.size() - 1;
  return curve.log_tokens[last] + 0.5 * (curve.log_tokens[last] - curve.log_tokens[last - 1]);
}

// The value at x of the line through points i and i + 1 of a curve.
double Line(const LossCurve& curve, std::size_t i, double x) {
  const double width = curve.log_tokens[i + 1] - curve.log_tokens[i];
  const double weight = (x - curve.log_tokens[i]) / width;
  return curve.losses[i] + weight * (curve.losses[i + 1] - curve.losses[i]);
}

double ValueAt(const LossCurve& curve, double x) {
  std::size_t i = 0;
  while (i + 2 < curve.log_tokens.size() && x > curve.log_tokens[i + 1]) ++i;
  return Line(curve, i, x);
}

// The x where the line through points i and i + 1 has the value y; nullopt if the line does not
// fall.
std::optional<double> LineInverse(const LossCurve& curve, std::size_t i, double y) {
  const double drop = curve.losses[i] - curve.losses[i + 1];
  if (drop <= 0) return std::nullopt;
  const double width = curve.log_tokens[i + 1] - curve.log_tokens[i];
  return curve.log_tokens[i] + width * (curve.losses[i] - y) / drop;
}

// The position in ln D at which a curve has a given loss.
struct Position {
  Status status;
  double log_tokens;
  bool extrapolated = false;
};

// The smallest ln D at which a repaired curve has come down to `target`.
Position Invert(const LossCurve& curve, double target) {
  const std::size_t last = curve.losses.size() - 1;
  if (target > curve.losses[0]) {
    const std::optional<double> x = LineInverse(curve, 0, target);
    if (x && *x >= ReachBelow(curve)) return {Status::kIdentified, *x, true};
    return {Status::kBelow, ReachBelow(curve)};
  }
  if (target < curve.losses[last]) {
    const std::optional<double> x = LineInverse(curve, last - 1, target);
    if (x && *x <= ReachAbove(curve)) return {Status::kIdentified, *x, true};
    return {Status::kAbove, ReachAbove(curve)};
  }
  std::size_t i = 0;
  while (curve.losses[i + 1] > target) ++i;
  const double x = LineInverse(curve, i, target).value_or(curve.log_tokens[i]);
  return {Status::kIdentified, x};
}

// ln r = ln D_f - ln D*, ln r' = ln D* - ln D_R.
LogRatio RatioOf(const Position& position, double log_budget, Form form) {
  const double distance = position.log_tokens - log_budget;
  if (form == Form::kExtend) return {position.status, distance, position.extrapolated};
  const Status mirrored = position.status == Status::kAbove   ? Status::kBelow
                          : position.status == Status::kBelow ? Status::kAbove
                                                              : position.status;
  return {mirrored, -distance, position.extrapolated};
}

}  // namespace

LogRatio CrossingRatio(const LossCurve& format, const LossCurve& reference, std::size_t budget,
                       Form form) {
  if (!Usable(format) || !Usable(reference)) return {};
  Expects(budget < format.losses.size() && format.log_tokens == reference.log_tokens,
          "CrossingRatio: both curves on one grid, budget a point of it");
  const LossCurve f = Repaired(format), r = Repaired(reference);
  const Position position =
      form == Form::kExtend ? Invert(f, r.losses[budget]) : Invert(r, f.losses[budget]);
  return RatioOf(position, f.log_tokens[budget], form);
}

LogRatio PowerLawRatio(const PowerLaw& law, std::size_t format, std::size_t reference,
                       const LossCurve& grid, std::size_t budget, Form form) {
  const double x = grid.log_tokens[budget];
  const bool extend = form == Form::kExtend;
  const std::size_t solved = extend ? format : reference;
  const double excess = law.At(extend ? reference : format, x) - law.floors[solved];
  const double low = grid.log_tokens.front(), high = grid.log_tokens.back();
  const double reach = std::log(kPowerLawReach);
  if (excess <= 0) return RatioOf({Status::kAbove, high + reach}, x, form);
  const double at = law.log_origin - std::log(excess / law.scales[solved]) / law.beta;
  if (at > high + reach) return RatioOf({Status::kAbove, high + reach}, x, form);
  if (at < low - reach) return RatioOf({Status::kBelow, low - reach}, x, form);
  return RatioOf({Status::kIdentified, at, at < low || at > high}, x, form);
}

LogRatio SharedBaselineRatio(const LossCurve& baseline, double gamma, double format_gap,
                             double reference_gap, std::size_t budget, Form form) {
  if (!Usable(baseline)) return {};
  const LossCurve base = Repaired(baseline);
  const double origin = base.log_tokens.front(), x = base.log_tokens[budget];
  const auto loss = [&](double gap, double at) {
    return ValueAt(base, at) + gap * std::exp(gamma * (at - origin));
  };
  const bool extend = form == Form::kExtend;
  const double solved_gap = extend ? format_gap : reference_gap;
  const double target = loss(extend ? reference_gap : format_gap, x);
  // The loss of the arm that is solved for minus the target: the loop below looks for its change of
  // sign between x and the end of the reach.
  const auto excess = [&](double at) { return loss(solved_gap, at) - target; };
  const double start = excess(x);
  if (start == 0) return {Status::kIdentified, 0, false};
  const double end = start > 0 ? ReachAbove(base) : ReachBelow(base);
  constexpr int kSteps = 64;
  double inside = x;
  for (int i = 1; i <= kSteps; ++i) {
    double outside = x + (end - x) * i / kSteps;
    if ((excess(outside) > 0) == (start > 0) && excess(outside) != 0) {
      inside = outside;
      continue;
    }
    for (int bisection = 0; bisection < 60; ++bisection) {
      const double middle = inside + (outside - inside) / 2;
      ((excess(middle) > 0) == (start > 0) ? inside : outside) = middle;
    }
    const bool beyond = outside < origin || outside > base.log_tokens.back();
    return RatioOf({Status::kIdentified, outside, beyond}, x, form);
  }
  return RatioOf({start > 0 ? Status::kAbove : Status::kBelow, end}, x, form);
}

double LocalSlope(const LossCurve& curve, std::size_t budget) {
  Expects(Usable(curve) && budget < curve.losses.size(), "LocalSlope: two finite points at least");
  const LossCurve repaired = Repaired(curve);
  const std::size_t i = std::min(budget, curve.losses.size() - 2);
  return (repaired.losses[i] - repaired.losses[i + 1]) /
         (repaired.log_tokens[i + 1] - repaired.log_tokens[i]);
}

}  // namespace fp4lab::study
