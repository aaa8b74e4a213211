// Gated linear attention: the same bits everywhere, binary64's values by another formula, and its
// gradients by central differences.
#include "fp4lab/nn/attention/gated_linear.h"

#include <cmath>

#include "tests/nn/support.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

struct Problem {
  GatedLinearShape shape;
  Floats q, k, v, z, dout;

  explicit Problem(const GatedLinearShape& s)
      : shape(s),
        q(RandomFloats(s.Rows() * s.Keys(), 1)),
        k(RandomFloats(s.Rows() * s.Keys(), 2)),
        v(RandomFloats(s.Rows() * s.Values(), 3)),
        z(RandomFloats(s.Rows() * s.Keys(), 4)),
        dout(RandomFloats(s.Rows() * s.Values(), 5)) {
    for (float& x : z) x = 3.0f * x - 1.0f;  // channels that keep much and little
  }
  GatedLinearInputs Inputs() const {
    const std::size_t rows = shape.Rows();
    return {AsMatrix(q, rows), AsMatrix(k, rows), AsMatrix(v, rows), AsMatrix(z, rows)};
  }
};

// The attention in binary64 as a sum over pairs of tokens: what the recurrence adds up to.
Doubles PairwiseSum(const GatedLinearShape& s, const Doubles& q, const Doubles& k, const Doubles& v,
                    const Doubles& z) {
  Doubles out(s.Rows() * s.Values());
  for (std::size_t row = 0; row < s.Rows(); ++row) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      Doubles log_kept(s.key_dim);
      for (std::size_t from = row + 1; from-- > row / s.sequence * s.sequence;) {
        double weight = 0.0;
        for (std::size_t i = 0; i < s.key_dim; ++i) {
          const std::size_t at = from * s.Keys() + h * s.key_dim + i;
          weight += q[row * s.Keys() + h * s.key_dim + i] * k[at] * std::exp(log_kept[i]);
          log_kept[i] -= std::log1p(std::exp(-z[at])) / 16.0;
        }
        for (std::size_t j = 0; j < s.value_dim; ++j) {
          out[row * s.Values() + h * s.value_dim + j] += weight /
                                                         std::sqrt(static_cast<double>(s.key_dim)) *
                                                         v[from * s.Values() + h * s.value_dim + j];
        }
      }
    }
  }
  return out;
}

Floats OutOf(const Problem& p) {
  Floats out(p.shape.Rows() * p.shape.Values());
  GatedLinearAttention(p.shape, p.Inputs(), AsMatrix(out, p.shape.Rows()));
  return out;
}

struct Gradients {
  Floats q, k, v, z;
};

Gradients GradientsOf(const Problem& p) {
  Gradients g{Floats(p.q.size()), Floats(p.k.size()), Floats(p.v.size()), Floats(p.z.size())};
  const std::size_t rows = p.shape.Rows();
  GatedLinearAttentionBackward(
      p.shape, p.Inputs(), AsMatrix(p.dout, rows),
      {AsMatrix(g.q, rows), AsMatrix(g.k, rows), AsMatrix(g.v, rows), AsMatrix(g.z, rows)});
  return g;
}

const GatedLinearShape kShapes[] = {{2, 9, 3, 5, 7},
                                    {1, 2 * kStateTokens + 3, 2, 4, 18},
                                    {3, kStateTokens, 1, 16, 32},
                                    {1, 1, 2, 3, 33}};

TEST_CASE("Gated linear attention has the same bits everywhere and binary64's sums over pairs",
          "[nn]") {
  for (const GatedLinearShape& shape : kShapes) {
    CAPTURE(shape.sequence, shape.key_dim, shape.value_dim);
    const Problem p(shape);
    const Floats out = SameEverywhere([&] { return OutOf(p); });
    CheckClose(out, PairwiseSum(shape, ToDouble(p.q), ToDouble(p.k), ToDouble(p.v), ToDouble(p.z)),
               64);
  }
}

TEST_CASE("Gated linear attention's gradients are central differences in binary64", "[nn]") {
  for (const GatedLinearShape& shape : kShapes) {
    CAPTURE(shape.sequence, shape.key_dim, shape.value_dim);
    const Problem p(shape);
    Gradients g;
    SameEverywhere([&] {
      g = GradientsOf(p);
      Floats all;
      for (const Floats* x : {&g.q, &g.k, &g.v, &g.z}) Append(all, *x);
      return all;
    });
    Doubles inputs[] = {ToDouble(p.q), ToDouble(p.k), ToDouble(p.v), ToDouble(p.z)};
    const auto objective = [&] {
      const Doubles out = PairwiseSum(shape, inputs[0], inputs[1], inputs[2], inputs[3]);
      double sum = 0.0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * p.dout[i];
      return sum;
    };
    const Floats* const got[] = {&g.q, &g.k, &g.v, &g.z};
    constexpr double kStep = 1e-5;
    for (std::size_t n = 0; n < 4; ++n) {
      double largest = 0.0;
      for (const float x : *got[n]) largest = std::max(largest, std::fabs(double{x}));
      const std::size_t every = std::max<std::size_t>(1, got[n]->size() / 60);
      for (std::size_t i = n % every; i < got[n]->size(); i += every) {
        double& x = inputs[n][i];
        const double before = x;
        x = before + kStep;
        const double plus = objective();
        x = before - kStep;
        const double minus = objective();
        x = before;
        CAPTURE(n, i);
        REQUIRE((*got[n])[i] ==
                Catch::Approx((plus - minus) / (2 * kStep)).epsilon(1e-4).margin(2e-6 * largest));
      }
    }
  }
}

TEST_CASE("A sequence does not see another, nor a token what follows it", "[nn]") {
  const GatedLinearShape shape{2, 12, 2, 4, 6};
  Problem p(shape);
  const Floats before = OutOf(p);
  for (std::size_t i = 0; i < shape.Values(); ++i) p.v[(12 + 5) * shape.Values() + i] += 1.0f;
  const Floats after = OutOf(p);
  for (std::size_t row = 0; row < shape.Rows(); ++row) {
    for (std::size_t i = 0; i < shape.Values(); ++i) {
      const std::size_t at = row * shape.Values() + i;
      CAPTURE(row, i);
      CHECK((before[at] != after[at]) == (row >= 12 + 5));
    }
  }
}

TEST_CASE("Decays at the ends keep everything or nothing", "[nn]") {
  const GatedLinearShape shape{1, 40, 1, 2, 3};
  Problem p(shape);
  std::fill(p.k.begin(), p.k.end(), 1.0f);
  std::fill(p.v.begin(), p.v.end(), 1.0f);
  std::fill(p.q.begin(), p.q.end(), 1.0f);
  std::fill(p.z.begin(), p.z.end(), 100.0f);  // s = 1 in binary32
  const float scale = shape.Scale();
  Floats out = OutOf(p);
  for (std::size_t t = 0; t < 40; ++t) {
    CHECK(out[3 * t] == 2.0f * (scale * static_cast<float>(t + 1)));
  }
  std::fill(p.z.begin(), p.z.end(), -kInfinity);
  out = OutOf(p);
  for (const float o : out) CHECK(o == 2.0f * scale);
  CHECK(AllFinite(GradientsOf(p).z));
  p.v[3 * 7] = kNaN;
  std::fill(p.z.begin(), p.z.end(), 0.0f);
  out = OutOf(p);
  CHECK(AllFinite(std::span(out).first(3 * 7)));
  CHECK(std::isnan(out[3 * 7]));
  CHECK(std::isnan(out[3 * 39]));
}

}  // namespace
}  // namespace fp4lab
