#include "fp4lab/nn/router.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/nn/support.h"

namespace fp4lab {
namespace {

Routing RouteOf(const RouterOptions& options, const Floats& logits, std::size_t experts,
                const Floats& bias = {}) {
  Routing routing;
  Route(options, AsMatrix(logits, logits.size() / experts), bias, &routing);
  return routing;
}

// What RouteBackward differentiates, in double: the weights of `fixed`'s choices times d_weights,
// and the balance loss over R tokens of loss_scale each.
double Objective(const RouterOptions& o, const Routing& fixed, const Doubles& logits,
                 const Floats& d_weights, double loss_scale) {
  const std::size_t rows = fixed.scores.rows, experts = fixed.scores.cols;
  double value = 0.0;
  for (std::size_t r = 0; r < rows; ++r) {
    Doubles s(experts);
    double total = 0.0, chosen = 0.0;
    for (std::size_t e = 0; e < experts; ++e) {
      const double z = logits[r * experts + e];
      s[e] = o.score == RouterScore::kSoftmax ? std::exp(z) : 1.0 / (1.0 + std::exp(-z));
      total += s[e];
    }
    for (std::size_t e = 0; e < experts; ++e) {
      const double f = static_cast<double>(fixed.counts[e]) / static_cast<double>(o.top_k * rows);
      value +=
          loss_scale * double{o.balance_loss} * static_cast<double>(experts) * f * s[e] / total;
      if (o.score == RouterScore::kSoftmax) s[e] /= total;
    }
    for (std::size_t k = 0; k < o.top_k; ++k) chosen += s[fixed.chosen[r * o.top_k + k]];
    for (std::size_t k = 0; k < o.top_k; ++k) {
      const double weight =
          double{o.scale} * s[fixed.chosen[r * o.top_k + k]] / (o.normalize ? chosen : 1.0);
      value += weight * double{d_weights[r * o.top_k + k]};
    }
  }
  return value;
}

TEST_CASE("A router's gradient is that of differences in double", "[nn]") {
  const std::size_t rows = 6, experts = 5, top_k = GENERATE(1u, 2u, 5u);
  const Floats logits = RandomFloats(rows * experts, 41);
  const Floats d_weights = RandomFloats(rows * top_k, 42);
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool normalize : {false, true}) {
      const RouterOptions o{score, top_k, normalize, 1.75f, 0.5f};
      const Routing routing = RouteOf(o, logits, experts);
      Floats gradient(logits.size());
      const float loss_scale = 0.25f;
      RouteBackward(o, routing, AsMatrix(d_weights, rows), loss_scale, AsMatrix(gradient, rows));
      for (std::size_t i = 0; i < logits.size(); ++i) {
        CAPTURE(top_k, static_cast<int>(score), normalize, i);
        Doubles plus = ToDouble(logits), minus = plus;
        plus[i] += 1e-5;
        minus[i] -= 1e-5;
        const double slope = (Objective(o, routing, plus, d_weights, double{loss_scale}) -
                              Objective(o, routing, minus, d_weights, double{loss_scale})) /
                             2e-5;
        REQUIRE(gradient[i] == Catch::Approx(slope).epsilon(1e-4).margin(1e-6));
      }
    }
  }
}

TEST_CASE("Every token has its top k in order, and nothing is dropped", "[nn]") {
  const std::size_t rows = 700, experts = 9;
  const Floats logits = RandomFloats(rows * experts, 43);
  const RouterOptions o{RouterScore::kSigmoid, 3, true, 2.0f, 0.0f};
  SameEverywhere([&] {
    const Routing routing = RouteOf(o, logits, experts);
    Floats all = routing.scores.values;
    Append(all, routing.weights.values);
    for (const std::uint32_t e : routing.chosen) all.push_back(static_cast<float>(e));
    return all;
  });
  const Routing routing = RouteOf(o, logits, experts);
  std::size_t tokens = 0;
  for (const std::size_t count : routing.counts) tokens += count;
  CHECK(tokens == 3 * rows);
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0.0;
    std::vector<bool> chosen(experts);
    float least = INFINITY;
    for (std::size_t k = 0; k < 3; ++k) {
      const std::size_t e = routing.chosen[r * 3 + k];
      REQUIRE(routing.scores(r, e) <= least);
      least = routing.scores(r, e);
      REQUIRE(!chosen[e]);
      chosen[e] = true;
      sum += routing.weights(r, k);
    }
    REQUIRE(sum == Catch::Approx(2.0).epsilon(1e-6));
    for (std::size_t e = 0; e < experts; ++e) REQUIRE((chosen[e] || routing.scores(r, e) <= least));
  }
}

TEST_CASE("Ties go to the lower number, a bias steers the choice and no weight", "[nn]") {
  const RouterOptions o{RouterScore::kSoftmax, 2, false, 1.0f, 0.0f};
  const Floats equal(4, 1.0f);
  const Routing tie = RouteOf(o, equal, 4);
  CHECK(tie.chosen == std::vector<std::uint32_t>{0, 1});
  const Routing steered = RouteOf(o, equal, 4, {0.0f, 0.0f, 0.5f, 0.25f});
  CHECK(steered.chosen == std::vector<std::uint32_t>{2, 3});
  CHECK(steered.weights.values == Floats{0.25f, 0.25f});
  CHECK(steered.counts == std::vector<std::size_t>{0, 0, 1, 1});
}

TEST_CASE("A NaN makes the weights of its token NaN, and huge logits do not", "[nn]") {
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    const RouterOptions o{score, 2, true, 1.0f, 0.0f};
    const Routing routing =
        RouteOf(o, {1.0f, kNaN, 0.0f, 1e38f, 1e38f, -1e38f, -1.0f, 0.5f, 2.0f}, 3);
    CHECK(std::isnan(routing.weights(0, 0)));
    CHECK(std::isnan(routing.weights(0, 1)));
    CHECK(routing.chosen[0] != routing.chosen[1]);
    CHECK(routing.weights(1, 0) == 0.5f);
    CHECK(routing.weights(1, 1) == 0.5f);
    CHECK(std::isfinite(routing.weights(2, 0)));
  }
}

}  // namespace
}  // namespace fp4lab
