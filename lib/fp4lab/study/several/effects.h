// Small statistics that only comparisons of several studies need.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "fp4lab/study/numbers/statistics.h"

namespace fp4lab::study {

// Shapley's shares of three factors in the difference values[7] - values[0], where bit 2 - f of the
// index of a corner says whether factor f was changed: the mean over the six orders of changing the
// factors of the step that the factor makes. The shares add up to that difference.
std::array<double, 3> ShapleyShares(std::span<const double, 8> values);

struct MeanInterval {
  double mean = 0;
  Interval interval;
};

// mean(a) - mean(b) of two independent samples of two values or more, with Welch's interval
// (Biometrika 34 (1947) 28).
MeanInterval WelchDifference(std::span<const double> a, std::span<const double> b,
                             double confidence);

// The least number of values whose t interval at `confidence` has a half-width of `wanted` or less,
// if they scatter with the standard deviation `deviation`. At least 2.
std::size_t CountThatSuffices(double deviation, double wanted, double confidence);

// Holm's method (Scand. J. Stat. 6 (1979) 65): which of the p values hold at `level` when all are
// looked at together.
std::vector<bool> HolmKept(std::span<const double> p, double level);

// The point in [low, high] at which the falling function `f` passes 0, by bisection to the last
// bit. f(low) > 0 > f(high).
double FallingZero(const std::function<double(double)>& f, double low, double high);

// P(|T| > t) of Student's t with `degrees` degrees of freedom; P(F > f) of F with these degrees.
double StudentTwoSided(double t, double degrees);
double FisherAbove(double f, double degrees, double degrees_below);

}  // namespace fp4lab::study
