// Every backward pass of the double reference against central differences of its forward pass.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fp4lab/nn/reference.h"
#include "tests/nn/support.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

double Inner(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// d loss / d x by central differences, one element at a time. The step balances truncation
// (h^2) against rounding (2^-53 / h).
Doubles Differences(Doubles& x, const std::function<double()>& loss) {
  Doubles gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = x[i], h = 1e-5;
    x[i] = before + h;
    const double up = loss();
    x[i] = before - h;
    const double down = loss();
    x[i] = before;
    gradient[i] = (up - down) / (2 * h);
  }
  return gradient;
}

// Compares relative to the largest element; central differences resolve about 1e-8.
void CheckGradient(const Doubles& backward, const Doubles& differences) {
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < backward.size(); ++i) {
    largest = std::max(largest, std::abs(differences[i]));
    error = std::max(error, std::abs(backward[i] - differences[i]));
  }
  REQUIRE(largest > 0);
  CHECK(error <= 1e-8 * largest);
}

TEST_CASE("The RMSNorm gradient is the derivative of the forward pass", "[nn]") {
  const std::size_t rows = GENERATE(1u, 5u), cols = GENERATE(1u, 7u, 16u);
  if (rows == 1 && cols == 1) return;  // y is nearly constant: nothing to differentiate
  Doubles x = RandomValues(rows * cols, 1), gain = RandomValues(cols, 2);
  const Doubles dy = RandomValues(rows * cols, 3);
  Doubles y(rows * cols), r(rows), dx(rows * cols), dgain(cols);
  const auto loss = [&] {
    reference::RmsNorm<double>(AsMatrix(x, rows), gain, 1e-3, AsMatrix(y, rows), r);
    return Inner(y, dy);
  };
  loss();
  const MatrixView<const double> dy_view(dy.data(), rows, cols);
  reference::RmsNormBackward<double>(AsMatrix(x, rows), gain, r, dy_view, Write::kOverwrite,
                                     AsMatrix(dx, rows), dgain);
  CheckGradient(dx, Differences(x, loss));
  CheckGradient(dgain, Differences(gain, loss));

  Doubles twice = dx;
  reference::RmsNormBackward<double>(AsMatrix(x, rows), gain, r, dy_view, Write::kAccumulate,
                                     AsMatrix(twice, rows), dgain);
  for (std::size_t i = 0; i < dx.size(); ++i) CHECK(twice[i] == 2 * dx[i]);
}

TEST_CASE("The rotary embedding keeps lengths, and its gradient undoes the rotation", "[nn]") {
  const std::size_t positions = 5, head_dim = 6, rows = 2 * positions, cols = 2 * head_dim;
  Doubles cosines, sines;
  for (std::size_t t = 0; t < positions; ++t) {
    for (std::size_t i = 0; i < head_dim / 2; ++i) {
      const double angle = static_cast<double>(t) * std::pow(100.0, -static_cast<double>(i) / 3);
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  }
  const Doubles x = RandomValues(rows * cols, 4), dy = RandomValues(rows * cols, 5);
  Doubles input = x, dx = dy, y;
  const auto loss = [&] {
    y = input;
    reference::Rope<double>(AsMatrix(cosines, positions), AsMatrix(sines, positions), 1,
                            AsMatrix(y, rows));
    return Inner(y, dy);
  };
  loss();
  CHECK(Inner(y, y) == Catch::Approx(Inner(x, x)).epsilon(1e-13));
  reference::Rope<double>(AsMatrix(cosines, positions), AsMatrix(sines, positions), -1,
                          AsMatrix(dx, rows));
  CheckGradient(dx, Differences(input, loss));
  for (std::size_t c = 0; c < cols; ++c) CHECK(y[c] == x[c]);  // position 0 is not rotated
}

TEST_CASE("The attention gradients are the derivatives of the forward pass", "[nn]") {
  const AttentionShape s = GENERATE(
      AttentionShape{1, 1, 1, 1, 2}, AttentionShape{1, 7, 1, 1, 4}, AttentionShape{2, 5, 2, 2, 3},
      AttentionShape{2, 6, 4, 2, 4}, AttentionShape{1, 9, 3, 1, 2},
      AttentionShape{1, 9, 2, 1, 4, 3}, AttentionShape{2, 7, 1, 1, 2, 2},
      AttentionShape{2, 5, 2, 2, 4, 0, 3}, AttentionShape{1, 7, 4, 2, 2, 3, 5, 0.3f});
  const std::size_t rows = s.Rows();
  Doubles q = RandomValues(rows * s.heads * s.head_dim, 6);
  Doubles k = RandomValues(rows * s.kv_heads * s.head_dim, 7);
  Doubles v = RandomValues(rows * s.kv_heads * s.ValueDim(), 8);
  const Doubles dout = RandomValues(rows * s.heads * s.ValueDim(), 9);
  Doubles out(dout.size()), statistics(s.StatisticsSize()), dq(q.size()), dk(k.size()),
      dv(v.size());
  const auto loss = [&] {
    reference::Attention<double>(s, AsMatrix(q, rows), AsMatrix(k, rows), AsMatrix(v, rows),
                                 AsMatrix(out, rows), statistics);
    return Inner(out, dout);
  };
  loss();
  reference::AttentionBackward<double>(
      s, AsMatrix(q, rows), AsMatrix(k, rows), AsMatrix(v, rows), AsMatrix(out, rows), statistics,
      MatrixView<const double>(dout.data(), rows, s.heads * s.ValueDim()), AsMatrix(dq, rows),
      AsMatrix(dk, rows), AsMatrix(dv, rows));
  if (s.sequence > 1) {  // one key: the probability is 1 whatever q and k are
    CheckGradient(dq, Differences(q, loss));
    CheckGradient(dk, Differences(k, loss));
  }
  CheckGradient(dv, Differences(v, loss));
}

TEST_CASE("The gradients of the activations are their derivatives", "[nn]") {
  Doubles x = RandomValues(200, 10), up = RandomValues(200, 11);
  for (double& v : x) v *= 3;
  const Doubles dy = RandomValues(200, 12);
  const auto check = [&](auto forward, auto backward) {
    Doubles dx(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) dx[i] = backward(i);
    CheckGradient(dx, Differences(x, [&] {
                    double sum = 0;
                    for (std::size_t i = 0; i < x.size(); ++i) sum += dy[i] * forward(i);
                    return sum;
                  }));
  };
  using std::size_t;
  check([&](size_t i) { return reference::SquaredRelu(x[i]); },
        [&](size_t i) { return reference::SquaredReluBackward(x[i], dy[i]); });
  check([&](size_t i) { return reference::Gelu(x[i]); },
        [&](size_t i) { return reference::GeluBackward(x[i], dy[i]); });
  check([&](size_t i) { return reference::Swiglu(x[i], up[i]); },
        [&](size_t i) { return reference::SwigluBackward(x[i], up[i], dy[i]).gate; });
  std::swap(x, up);  // now `x` is the up branch and `up` the gate
  check([&](size_t i) { return reference::Swiglu(up[i], x[i]); },
        [&](size_t i) { return reference::SwigluBackward(up[i], x[i], dy[i]).up; });
}

TEST_CASE("The embedding gradient adds up the rows of a repeated token", "[nn]") {
  const std::vector<std::uint16_t> tokens = {3, 0, 3, 1, 3};
  Doubles table = RandomValues(4 * 3, 13), y(5 * 3), dtable(4 * 3);
  const Doubles dy = RandomValues(5 * 3, 14);
  const auto loss = [&] {
    reference::Embedding<double>(AsMatrix(table, 4), tokens, AsMatrix(y, 5));
    return Inner(y, dy);
  };
  reference::EmbeddingBackward<double>(tokens, MatrixView<const double>(dy.data(), 5, 3),
                                       AsMatrix(dtable, 4));
  CheckGradient(dtable, Differences(table, loss));
  for (std::size_t c = 0; c < 3; ++c) CHECK(dtable[2 * 3 + c] == 0);  // token 2 does not occur
}

TEST_CASE("The cross-entropy gradient is the derivative of the mean loss", "[nn]") {
  const std::size_t rows = GENERATE(1u, 6u), vocabulary = GENERATE(2u, 37u);
  Doubles logits = RandomValues(rows * vocabulary, 15), losses(rows), gradient(logits.size());
  std::vector<std::uint16_t> targets;
  for (std::size_t r = 0; r < rows; ++r) {
    targets.push_back(static_cast<std::uint16_t>((r * 5) % vocabulary));
  }
  const double scale = 1.0 / static_cast<double>(rows);
  const double mean = reference::CrossEntropy<double>(AsMatrix(logits, rows), targets, scale,
                                                      losses, AsMatrix(gradient, rows));
  CHECK(mean == Catch::Approx(Inner(losses, Doubles(rows, scale))));
  const auto loss = [&] {
    return reference::CrossEntropy<double>(AsMatrix(logits, rows), targets, scale, losses, {});
  };
  CheckGradient(gradient, Differences(logits, loss));
}

TEST_CASE("The first AdamW update is the learning rate against the gradient's sign", "[nn]") {
  Doubles weight = {1.0, -2.0, 0.5}, m(3), v(3);
  const Doubles gradient = {0.25, -4.0, 1e-3};
  const AdamW options{.learning_rate = 0.125f, .epsilon = 0.0f, .weight_decay = 0.5f};
  reference::AdamWStep<double>(options, gradient, weight, m, v);
  const double betas[] = {options.beta1, options.beta2};
  CHECK(m[1] == Catch::Approx((1 - betas[0]) * -4.0));
  CHECK(v[1] == Catch::Approx((1 - betas[1]) * 16.0));
  CHECK(weight[0] == Catch::Approx(1.0 - 0.125 * (1 + 0.5)));
  CHECK(weight[1] == Catch::Approx(-2.0 - 0.125 * (-1 - 1.0)));
  CHECK(weight[2] == Catch::Approx(0.5 - 0.125 * (1 + 0.25)));
}

}  // namespace
}  // namespace fp4lab
