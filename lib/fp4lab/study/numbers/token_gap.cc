#include "fp4lab/study/numbers/token_gap.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/numbers/statistics.h"

namespace fp4lab::study {
namespace {

using RatioStatus = LogRatio::Status;

// The position in ln D at which a curve has a given loss.
struct Position {
  RatioStatus status;
  double log_tokens;
  bool extrapolated = false;
};

Position Invert(const SmoothCurve& curve, double target) {
  if (const std::optional<double> x = curve.Inverse(target)) {
    return {RatioStatus::kIdentified, *x, curve.Extrapolates(*x)};
  }
  if (target > curve.LossAt(0)) return {RatioStatus::kBelow, curve.ReachBelow()};
  return {RatioStatus::kAbove, curve.ReachAbove()};
}

// ln r = ln D_f - ln D*, ln r' = ln D* - ln D_R.
LogRatio RatioOf(const Position& position, double log_budget, Form form) {
  const double distance = position.log_tokens - log_budget;
  if (form == Form::kExtend) return {position.status, distance, position.extrapolated};
  const RatioStatus mirrored = position.status == RatioStatus::kAbove   ? RatioStatus::kBelow
                               : position.status == RatioStatus::kBelow ? RatioStatus::kAbove
                                                                        : position.status;
  return {mirrored, -distance, position.extrapolated};
}

}  // namespace

LogRatio CrossingRatio(const LossCurve& format, const LossCurve& reference, std::size_t budget,
                       Form form) {
  const IeeeArithmetic ieee;
  if (!format.Usable() || !reference.Usable()) return {};
  Expects(budget < format.losses.size() && format.log_tokens == reference.log_tokens,
          "CrossingRatio: both curves on one grid, budget a point of it");
  const SmoothCurve f(format), r(reference);
  const Position position =
      form == Form::kExtend ? Invert(f, r.LossAt(budget)) : Invert(r, f.LossAt(budget));
  return RatioOf(position, format.log_tokens[budget], form);
}

LogRatio PowerLawRatio(const PowerLaw& law, std::size_t format, std::size_t reference,
                       const LossCurve& grid, std::size_t budget, Form form) {
  const IeeeArithmetic ieee;
  const double x = grid.log_tokens[budget];
  const bool extend = form == Form::kExtend;
  const std::size_t solved = extend ? format : reference;
  const double excess = law.At(extend ? reference : format, x) - law.floors[solved];
  const double low = grid.log_tokens.front(), high = grid.log_tokens.back();
  const double reach = std::log(kPowerLawReach);
  if (excess <= 0) return RatioOf({RatioStatus::kAbove, high + reach}, x, form);
  const double at = law.log_origin - std::log(excess / law.scales[solved]) / law.beta;
  if (at > high + reach) return RatioOf({RatioStatus::kAbove, high + reach}, x, form);
  if (at < low - reach) return RatioOf({RatioStatus::kBelow, low - reach}, x, form);
  return RatioOf({RatioStatus::kIdentified, at, at < low || at > high}, x, form);
}

LogRatio SharedBaselineRatio(const LossCurve& baseline, double gamma, double format_gap,
                             double reference_gap, std::size_t budget, Form form) {
  const IeeeArithmetic ieee;
  if (!baseline.Usable()) return {};
  const SmoothCurve base(baseline);
  const double origin = baseline.log_tokens.front(), x = baseline.log_tokens[budget];
  const auto loss = [&](double gap, double at) {
    return base.Loss(at) + gap * std::exp(gamma * (at - origin));
  };
  const bool extend = form == Form::kExtend;
  const double solved_gap = extend ? format_gap : reference_gap;
  const double target = loss(extend ? reference_gap : format_gap, x);
  // The loss of the arm that is solved for minus the target: the loop below looks for its change of
  // sign between x and the end of the reach.
  const auto excess = [&](double at) { return loss(solved_gap, at) - target; };
  const double start = excess(x);
  if (start == 0) return {RatioStatus::kIdentified, 0, false};
  const double end = start > 0 ? base.ReachAbove() : base.ReachBelow();
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
    return RatioOf({RatioStatus::kIdentified, outside, base.Extrapolates(outside)}, x, form);
  }
  return RatioOf({start > 0 ? RatioStatus::kAbove : RatioStatus::kBelow, end}, x, form);
}

}  // namespace fp4lab::study
