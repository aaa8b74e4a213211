#include "fp4lab/study/numbers/loss_curve.h"

#include <cmath>
#include <vector>

#include "fp4lab/base/random.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

LossCurve Points(const std::vector<double>& log_tokens, const std::vector<double>& losses) {
  return {log_tokens, losses};
}

// A random curve of 2 to 8 points that falls, and is convex if asked.
LossCurve Falling(std::uint64_t number, bool convex) {
  const RandomStream stream{.seed = number};
  std::uint64_t next = 0;
  const auto uniform = [&] { return UniformOpen(stream.Bits32(next++)); };
  const std::size_t count = 2 + static_cast<std::size_t>(number % 7);
  LossCurve curve{{0.0}, {3.0}};
  double drop = 1;
  for (std::size_t i = 1; i < count; ++i) {
    const double width = 0.2 + uniform();
    drop = convex ? drop * uniform() : uniform() * (number % 5 == i ? 0 : 1);
    curve.log_tokens.push_back(curve.log_tokens.back() + width);
    curve.losses.push_back(curve.losses.back() - drop * width);
  }
  return curve;
}

TEST_CASE("A smooth curve meets its points, falls, and is convex where they are", "[study]") {
  for (std::uint64_t number = 1; number <= 400; ++number) {
    const bool convex = number % 2 == 0;
    CAPTURE(number, convex);
    const LossCurve points = Falling(number, convex);
    const SmoothCurve curve(points);
    for (std::size_t k = 0; k < points.losses.size(); ++k) {
      REQUIRE(curve.Loss(points.log_tokens[k]) == Approx(points.losses[k]).epsilon(1e-12));
    }
    const double low = curve.ReachBelow(), step = (curve.ReachAbove() - low) / 200;
    bool falls = true, bends_up = true;
    for (int i = 1; i < 200; ++i) {
      const double at = low + step * i;
      const double before = curve.Loss(at - step), here = curve.Loss(at);
      const double after = curve.Loss(at + step);
      falls = falls && after <= here + 1e-12;
      bends_up = bends_up && before - 2 * here + after >= -1e-12;
    }
    CHECK(falls);
    if (convex) CHECK(bends_up);
  }
}

TEST_CASE("A smooth curve's steepness is its derivative, continuous at the points", "[study]") {
  for (std::uint64_t number = 1; number <= 100; ++number) {
    CAPTURE(number);
    const LossCurve points = Falling(number, number % 2 == 0);
    const SmoothCurve curve(points);
    for (std::size_t k = 0; k < points.losses.size(); ++k) {
      const double x = points.log_tokens[k], h = 1e-6;
      const double tolerance = 1e-3 * (1 + curve.Steepness(k));
      CHECK(std::abs((curve.Loss(x) - curve.Loss(x + h)) / h - curve.Steepness(k)) < tolerance);
      CHECK(std::abs((curve.Loss(x - h) - curve.Loss(x)) / h - curve.Steepness(k)) < tolerance);
    }
  }
}

TEST_CASE("Inverse is the smallest ln D at which the loss is reached", "[study]") {
  for (std::uint64_t number = 1; number <= 200; ++number) {
    CAPTURE(number);
    const LossCurve points = Falling(number, number % 2 == 0);
    const SmoothCurve curve(points);
    const double high = curve.Loss(curve.ReachBelow()), low = curve.Loss(curve.ReachAbove());
    for (const double share : {0.01, 0.2, 0.5, 0.77, 0.99}) {
      const double loss = high + share * (low - high);
      const auto at = curve.Inverse(loss);
      REQUIRE(at);
      CHECK(curve.Loss(*at) == Approx(loss).epsilon(1e-9));
      CHECK(curve.Loss(*at - 1e-6) >= loss);
    }
    CHECK(!curve.Inverse(high + 0.01));
    CHECK(!curve.Inverse(low - 0.01));
  }
  // A level stretch is reached where it begins.
  const SmoothCurve level(Points({0, 1, 2, 3}, {2.0, 1.5, 1.5, 1.0}));
  CHECK(*level.Inverse(1.5) == Approx(1));
}

TEST_CASE("A power law is met between the points of a doubling grid", "[study]") {
  for (const double beta : {0.2, 0.4, 0.6}) {
    CAPTURE(beta);
    const auto law = [&](double x) { return 1.2 + 0.6 * std::exp(-beta * x); };
    LossCurve points;
    for (int i = 0; i < 5; ++i) {
      points.log_tokens.push_back(i * std::log(2.0));
      points.losses.push_back(law(points.log_tokens.back()));
    }
    const SmoothCurve curve(points);
    for (double x = 0; x < points.log_tokens.back(); x += 0.01) {
      CHECK(std::abs(curve.Loss(x) - law(x)) < 2e-4 * law(x));
    }
    for (std::size_t k = 0; k < 5; ++k) {
      const double steepness = 0.6 * beta * std::exp(-beta * points.log_tokens[k]);
      CHECK(curve.Steepness(k) == Approx(steepness).epsilon(0.02));
    }
  }
}

TEST_CASE("Noise at an end cannot drive the extrapolation away", "[study]") {
  const SmoothCurve curve(Points({0, 1, 2}, {2.0, 1.0, 0.999}));
  CHECK(curve.Steepness(0) <= 2);
  CHECK(curve.Steepness(2) >= 0.0005);
  CHECK(curve.Extrapolates(-0.1));
  CHECK(!curve.Extrapolates(0));
}

}  // namespace
}  // namespace fp4lab::study
