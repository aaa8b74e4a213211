// The annealed losses of one run over its token budgets, and a smooth curve through them.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace fp4lab::study {

// Annealed losses L(D) of one format and one seed: one loss a token budget, budgets ascending.
struct LossCurve {
  std::vector<double> log_tokens;  // ln D
  std::vector<double> losses;      // nats per token

  // Whether there are two points or more and every loss is finite.
  bool Usable() const;
};

// A smooth falling curve through the points of a LossCurve after monotone repair, as a function of
// ln D: continuously differentiable, never rising, and convex where the points are.
//
// The steepness -dL/d ln D at a point is the geometric mean of the secants on its two sides,
// weighted by the length of the other one, which a power law in D meets to a few parts in a
// thousand on a doubling grid. An interval whose secant lies between the steepnesses at its ends is
// filled with the convex rational function of Delbourgo (IMA J. Numer. Anal. 9, 1989), an interval
// with an inflection with the monotone one of Gregory and Delbourgo (same journal 2, 1982). Beyond
// the ends the curve goes on as a straight line, and is relied on for half the length of the end
// interval and no further.
class SmoothCurve {
 public:
  // Throws Error unless `curve` is usable.
  explicit SmoothCurve(const LossCurve& curve);

  double Loss(double log_tokens) const;
  // -dL/d ln D at a budget, at least 0.
  double Steepness(std::size_t budget) const { return steepness_[budget]; }
  double LossAt(std::size_t budget) const { return points_.losses[budget]; }

  // The smallest ln D, within reach, at which the loss has come down to `loss`.
  std::optional<double> Inverse(double loss) const;
  // The ends of the range of ln D in which the curve may be relied on.
  double ReachBelow() const;
  double ReachAbove() const;
  bool Extrapolates(double log_tokens) const {
    return log_tokens < points_.log_tokens.front() || log_tokens > points_.log_tokens.back();
  }

 private:
  LossCurve points_;               // after monotone repair
  std::vector<double> secants_;    // -dL/d ln D between points i and i + 1
  std::vector<double> steepness_;  // at each point
};

}  // namespace fp4lab::study
