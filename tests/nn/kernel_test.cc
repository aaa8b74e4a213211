// The binary32 kernels: the same bits everywhere, the double reference's values, and NaN.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fp4lab/nn/activation.h"
#include "fp4lab/nn/attention/rope.h"
#include "fp4lab/nn/embedding.h"
#include "fp4lab/nn/loss.h"
#include "fp4lab/nn/optimizer/optimizer.h"
#include "fp4lab/nn/reference.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/tensor/gemm.h"
#include "tests/nn/support.h"

namespace fp4lab {
namespace {

TEST_CASE("RMSNorm gives the same bits everywhere and the reference's values", "[nn]") {
  const std::size_t rows = GENERATE(1u, 200u), cols = GENERATE(1u, 16u, 37u, 64u);
  CAPTURE(rows, cols);
  const Floats x = RandomFloats(rows * cols, 1), gain = RandomFloats(cols, 2);
  const Floats dy = RandomFloats(rows * cols, 3), residual = RandomFloats(rows * cols, 4);
  Floats y(x.size()), r(rows), dx(x.size()), sum(x.size()), dgain(cols);
  SameEverywhere([&] {
    RmsNorm(AsMatrix(x, rows), gain, 1e-5f, AsMatrix(y, rows), r);
    dgain.assign(cols, 1.0f);
    RmsNormBackward(AsMatrix(x, rows), gain, r, AsMatrix(dy, rows), Write::kOverwrite,
                    AsMatrix(dx, rows), dgain);
    Floats all = y;
    for (const Floats& part : {r, dx, dgain}) Append(all, part);
    sum = residual;
    RmsNormBackward(AsMatrix(x, rows), gain, r, AsMatrix(dy, rows), Write::kAccumulate,
                    AsMatrix(sum, rows), dgain);
    Append(all, sum);
    dgain.assign(all.begin() + static_cast<std::ptrdiff_t>(y.size() + r.size() + dx.size()),
                 all.begin() + static_cast<std::ptrdiff_t>(y.size() + r.size() + dx.size() + cols));
    return all;
  });
  Doubles exact_y(x.size()), exact_r(rows), exact_dx(x.size()), exact_dgain(cols, 1.0);
  const Doubles x64 = ToDouble(x), gain64 = ToDouble(gain), dy64 = ToDouble(dy);
  reference::RmsNorm<double>(AsMatrix(x64, rows), gain64, 1e-5f, AsMatrix(exact_y, rows), exact_r);
  reference::RmsNormBackward<double>(AsMatrix(x64, rows), gain64, exact_r, AsMatrix(dy64, rows),
                                     Write::kOverwrite, AsMatrix(exact_dx, rows), exact_dgain);
  CheckClose(y, exact_y, 8);
  CheckClose(r, exact_r, 8);
  if (cols > 1) CheckClose(dx, exact_dx, 16);  // one column: dx is all cancellation
  CheckClose(dgain, exact_dgain, 32);
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(sum[i] == residual[i] + dx[i]);
}

TEST_CASE("RMSNorm may run in place", "[nn]") {
  const Floats x = RandomFloats(5 * 20, 5), gain = RandomFloats(20, 6);
  Floats y(x.size()), r(5), in_place = x;
  RmsNorm(AsMatrix(x, 5), gain, 1e-5f, AsMatrix(y, 5), r);
  RmsNorm(AsMatrix(in_place, 5), gain, 1e-5f, AsMatrix(in_place, 5), r);
  CHECK(in_place == y);
  const Floats dy = RandomFloats(x.size(), 7);
  Floats dx(x.size()), dgain(20), dgain_in_place(20), shared = dy;
  RmsNormBackward(AsMatrix(x, 5), gain, r, AsMatrix(dy, 5), Write::kOverwrite, AsMatrix(dx, 5),
                  dgain);
  RmsNormBackward(AsMatrix(x, 5), gain, r, AsMatrix(shared, 5), Write::kOverwrite,
                  AsMatrix(shared, 5), dgain_in_place);
  CHECK(shared == dx);
  CHECK(dgain_in_place == dgain);
}

TEST_CASE("A NaN makes its row of RMSNorm NaN and no other", "[nn]") {
  Floats x = RandomFloats(3 * 20, 8), y(60), r(3);
  x[27] = kNaN;
  RmsNorm(AsMatrix(x, 3), Floats(20, 1.0f), 1e-5f, AsMatrix(y, 3), r);
  CHECK(AllFinite(std::span(y).first(20)));
  CHECK(AllNaN(std::span(y).subspan(20, 20)));
  CHECK(AllFinite(std::span(y).last(20)));
}

TEST_CASE("The rotary table is correctly rounded but for rare double rounding", "[nn]") {
  const std::size_t head_dim = GENERATE(2u, 16u, 128u);
  const RopeTable table = MakeRopeTable(3000, head_dim, 10000.0f);
  std::size_t differences = 0;
  double worst = 0;
  for (std::size_t t = 0; t < 3000; ++t) {
    for (std::size_t i = 0; i < head_dim / 2; ++i) {
      const long double exponent = -2.0L * static_cast<long double>(i) / head_dim;
      const long double angle = static_cast<long double>(t) * std::pow(10000.0L, exponent);
      differences += table.cos(t, i) != static_cast<float>(std::cos(angle));
      differences += table.sin(t, i) != static_cast<float>(std::sin(angle));
      worst = std::max(worst, static_cast<double>(std::abs(table.cos(t, i) - std::cos(angle))));
      worst = std::max(worst, static_cast<double>(std::abs(table.sin(t, i) - std::sin(angle))));
    }
  }
  CHECK(worst < 0.5001 * 0x1p-24);
  CHECK(differences <= 3000 * head_dim / 10'000 + 1);
}

TEST_CASE("Rope gives the same bits everywhere, and its backward undoes it", "[nn]") {
  const std::size_t head_dim = GENERATE(2u, 6u, 16u, 40u), positions = 9, rows = 27;
  const RopeTable table = MakeRopeTable(positions, head_dim, 10000.0f);
  const std::size_t cols = 2 * head_dim, width = cols + 3;  // a slice of a wider matrix
  const Floats x = RandomFloats(rows * width, 9);
  Floats forward, both;
  const Floats all = SameEverywhere([&] {
    forward = x;
    Rope(table, AsMatrix(forward, rows).Block(0, 0, rows, cols));
    both = forward;
    RopeBackward(table, AsMatrix(both, rows).Block(0, 0, rows, cols));
    Floats outputs = forward;
    Append(outputs, both);
    return outputs;
  });
  CheckClose(both, ToDouble(x), 4);
  Doubles exact = ToDouble(x);
  const Doubles cosines = ToDouble(table.cos.values), sines = ToDouble(table.sin.values);
  reference::Rope<double>(AsMatrix(cosines, positions), AsMatrix(sines, positions), 1,
                          AsMatrix(exact, rows).Block(0, 0, rows, cols));
  CheckClose(forward, exact, 2);
  for (std::size_t r = 0; r < rows; ++r) CHECK(forward[r * width + cols] == x[r * width + cols]);
}

TEST_CASE("Kernels that round to BF16 on the way give the bits of RoundBf16 after them", "[nn]") {
  const std::size_t rows = 211, cols = GENERATE(1u, 16u, 101u);
  Floats x = RandomFloats(rows * cols, 21), dy = RandomFloats(rows * cols, 22);
  for (std::size_t i = 0; i < x.size(); i += 7) x[i] *= 1e3f;
  if (GENERATE(false, true)) {
    const float special[] = {std::nanf(""), -INFINITY, INFINITY, 3e38f, -0.0f, 1e-40f, -1e-42f};
    for (std::size_t i = 0; i < x.size(); i += 5) x[i] = special[i / 5 % 7];
    for (std::size_t i = 3; i < x.size(); i += 11) dy[i] = special[i / 11 % 7];
  }
  const Floats gain = RandomFloats(cols, 23);
  Floats y(x.size()), want(x.size()), r(rows), want_r(rows);
  const auto check = [&](float amax) {
    const float want_amax = reference::RoundBf16(AsMatrix(want, rows), AsMatrix(want, rows));
    CHECK(amax == want_amax);
    const bool same = std::memcmp(y.data(), want.data(), y.size() * sizeof(float)) == 0;
    CHECK(same);
    y.push_back(amax);
    const Floats result = y;
    y.pop_back();
    return result;
  };
  SameEverywhere([&] {
    RmsNorm(AsMatrix(x, rows), gain, 1e-5f, AsMatrix(want, rows), want_r);
    Floats all = check(RmsNormToBf16(AsMatrix(x, rows), gain, 1e-5f, AsMatrix(y, rows), r));
    CHECK(std::memcmp(r.data(), want_r.data(), rows * sizeof(float)) == 0);
    SquaredRelu(AsMatrix(x, rows), AsMatrix(want, rows));
    Append(all, check(SquaredReluToBf16(AsMatrix(x, rows), AsMatrix(y, rows))));
    Gelu(AsMatrix(x, rows), AsMatrix(want, rows));
    Append(all, check(GeluToBf16(AsMatrix(x, rows), AsMatrix(y, rows))));
    SquaredReluBackward(AsMatrix(x, rows), AsMatrix(dy, rows), AsMatrix(want, rows));
    y = dy;  // in place
    Append(all, check(SquaredReluBackwardToBf16(AsMatrix(x, rows), AsMatrix(y, rows),
                                                AsMatrix(y, rows))));
    GeluBackward(AsMatrix(x, rows), AsMatrix(dy, rows), AsMatrix(want, rows));
    y = dy;
    Append(all, check(GeluBackwardToBf16(AsMatrix(x, rows), AsMatrix(y, rows), AsMatrix(y, rows))));
    return all;
  });
}

struct ActivationCase {
  const char* name;
  void (*forward)(MatrixView<const float>, MatrixView<float>);
  void (*backward)(MatrixView<const float>, MatrixView<const float>, MatrixView<float>);
  double (*exact)(double);
  double (*exact_backward)(double, double);
};

TEST_CASE("Squared ReLU and GELU give the same bits everywhere and the reference's values",
          "[nn]") {
  const ActivationCase& a = GENERATE(
      ActivationCase{"squared ReLU", SquaredRelu, SquaredReluBackward,
                     reference::SquaredRelu<double>, reference::SquaredReluBackward<double>},
      ActivationCase{"GELU", Gelu, GeluBackward, reference::Gelu<double>,
                     reference::GeluBackward<double>});
  CAPTURE(a.name);
  const std::size_t rows = 211, cols = 101;
  Floats x = RandomFloats(rows * cols, 10), y(x.size()), dx(x.size());
  for (float& v : x) v *= 4;
  const Floats dy = RandomFloats(x.size(), 11);
  SameEverywhere([&] {
    a.forward(AsMatrix(x, rows), AsMatrix(y, rows));
    a.backward(AsMatrix(x, rows), AsMatrix(dy, rows), AsMatrix(dx, rows));
    Floats all = y;
    Append(all, dx);
    return all;
  });
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = a.exact(x[i]), exact_dx = a.exact_backward(x[i], dy[i]);
    // The tolerance is relative to the input: near the zeros of GELU and of its slope the rounding
    // of the argument dominates.
    const double unit = kRoundoff * (1 + std::abs(x[i]));
    REQUIRE(std::abs(y[i] - exact) <= 4 * unit * std::max(std::abs(exact), 1.0));
    REQUIRE(std::abs(dx[i] - exact_dx) <= 8 * unit * std::max(1.0, std::abs(exact_dx)));
  }
  const Floats bad = {kNaN, kInfinity};
  Floats y2(2), dx2(2);
  a.forward(AsMatrix(bad, 1), AsMatrix(y2, 1));
  a.backward(AsMatrix(bad, 1), AsMatrix(Floats{1.0f, kNaN}, 1), AsMatrix(dx2, 1));
  CHECK(std::isnan(y2[0]));
  CHECK(y2[1] == kInfinity);
  CHECK(AllNaN(dx2));
}

TEST_CASE("SwiGLU gives the same bits everywhere and the reference's values", "[nn]") {
  const std::size_t rows = 190, cols = 90;  // gate and up are halves of one matrix
  const Floats both = RandomFloats(rows * 2 * cols, 12), dy = RandomFloats(rows * cols, 13);
  Floats y(rows * cols), dboth(both.size());
  const auto gate = AsMatrix(both, rows).Block(0, 0, rows, cols);
  const auto up = AsMatrix(both, rows).Block(0, cols, rows, cols);
  const auto dgate = AsMatrix(dboth, rows).Block(0, 0, rows, cols);
  const auto dup = AsMatrix(dboth, rows).Block(0, cols, rows, cols);
  SameEverywhere([&] {
    Swiglu(gate, up, AsMatrix(y, rows));
    SwigluBackward(gate, up, AsMatrix(dy, rows), dgate, dup);
    Floats all = y;
    Append(all, dboth);
    return all;
  });
  Doubles exact_y(y.size()), exact_d(both.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      const double g = gate(r, c), u = up(r, c);
      exact_y[r * cols + c] = reference::Swiglu(g, u);
      const auto d = reference::SwigluBackward(g, u, double{dy[r * cols + c]});
      exact_d[r * 2 * cols + c] = d.gate;
      exact_d[r * 2 * cols + cols + c] = d.up;
    }
  }
  CheckClose(y, exact_y, 6);
  CheckClose(dboth, exact_d, 8);
}

TEST_CASE("The embedding looks up rows and adds gradients in row order", "[nn]") {
  const std::size_t rows = 700, cols = GENERATE(3u, 64u, 100u), vocabulary = 11;
  std::vector<std::uint16_t> tokens;
  for (std::size_t r = 0; r < rows; ++r) {
    tokens.push_back(static_cast<std::uint16_t>(r * r % vocabulary));
  }
  const Floats table = RandomFloats(vocabulary * cols, 14), dy = RandomFloats(rows * cols, 15);
  Floats y(rows * cols), dtable;
  SameEverywhere([&] {
    Embedding(AsMatrix(table, vocabulary), tokens, AsMatrix(y, rows));
    dtable.assign(table.size(), 0.5f);
    EmbeddingBackward(tokens, AsMatrix(dy, rows), AsMatrix(dtable, vocabulary));
    Floats all = y;
    Append(all, dtable);
    return all;
  });
  Floats exact_y(y.size()), exact_d(table.size(), 0.5f);
  reference::Embedding<float>(AsMatrix(table, vocabulary), tokens, AsMatrix(exact_y, rows));
  reference::EmbeddingBackward<float>(tokens, AsMatrix(dy, rows), AsMatrix(exact_d, vocabulary));
  CHECK(y == exact_y);
  CHECK(dtable == exact_d);
  tokens[3] = vocabulary;
  CHECK_THROWS_AS(Embedding(AsMatrix(table, vocabulary), tokens, AsMatrix(y, rows)),
                  std::logic_error);
}

TEST_CASE("Cross-entropy gives the same bits everywhere and the reference's values", "[nn]") {
  const std::size_t rows = 150, vocabulary = GENERATE(2u, 100u, 256u);
  Floats logits = RandomFloats(rows * vocabulary, 16);
  for (float& v : logits) v *= 5;
  std::vector<std::uint16_t> targets;
  for (std::size_t r = 0; r < rows; ++r) {
    targets.push_back(static_cast<std::uint16_t>(r * 7 % vocabulary));
  }
  Doubles losses(rows), only_losses(rows);
  Floats gradient(logits.size());
  double mean = 0;
  SameEverywhere([&] {
    mean = CrossEntropyGradient(AsMatrix(logits, rows), targets, 1.0f / rows, losses,
                                AsMatrix(gradient, rows));
    CHECK(CrossEntropy(AsMatrix(logits, rows), targets, only_losses) == mean);
    CHECK(only_losses == losses);
    Floats all = gradient;
    for (const double loss : losses) {  // both halves of each double's bits
      const auto bits = std::bit_cast<std::uint64_t>(loss);
      all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
      all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32)));
    }
    return all;
  });
  Doubles exact_losses(rows), exact_gradient(logits.size());
  const Doubles logits64 = ToDouble(logits);
  const double exact_mean = reference::CrossEntropy<double>(
      AsMatrix(logits64, rows), targets, 1.0 / rows, exact_losses, AsMatrix(exact_gradient, rows));
  CheckClose(gradient, exact_gradient, 24);
  CHECK(mean == Catch::Approx(exact_mean).epsilon(4 * kRoundoff));
  for (std::size_t r = 0; r < rows; ++r) {
    CHECK(losses[r] == Catch::Approx(exact_losses[r]).margin(16 * kRoundoff));
  }
  Floats in_place = logits;
  CrossEntropyGradient(AsMatrix(in_place, rows), targets, 1.0f / rows, losses,
                       AsMatrix(in_place, rows));
  CHECK(in_place == gradient);
}

TEST_CASE("Cross-entropy of uniform logits is ln V; a NaN or +Inf logit gives NaN", "[nn]") {
  Floats logits(3 * 64, 1000.0f), gradient(logits.size());
  Doubles losses(3);
  const std::vector<std::uint16_t> targets = {0, 5, 63};
  CHECK(CrossEntropy(AsMatrix(logits, 3), targets, losses) == Catch::Approx(std::log(64.0)));
  logits[64 + 9] = GENERATE(kNaN, kInfinity);
  CHECK(std::isnan(
      CrossEntropyGradient(AsMatrix(logits, 3), targets, 1.0f / 3, losses, AsMatrix(gradient, 3))));
  CHECK(!std::isnan(losses[0]));
  CHECK(std::isnan(losses[1]));
  CHECK(AllFinite(std::span(gradient).first(64)));
  CHECK(std::isnan(gradient[64 + 5]));
  CHECK(AllFinite(std::span(gradient).last(64)));
}

TEST_CASE("A soft cap and the z-loss give the same bits everywhere and a double's values", "[nn]") {
  const std::size_t rows = 7, cols = 67;
  const Floats logits = RandomFloats(rows * cols, 51);
  std::vector<std::uint16_t> targets(rows);
  for (std::size_t r = 0; r < rows; ++r) targets[r] = static_cast<std::uint16_t>(9 * r);
  const LossOptions options{GENERATE(0.0f, 1.5f), GENERATE(0.0f, 0.125f)};
  Floats gradient;
  Doubles losses(rows);
  SameEverywhere([&] {
    gradient = logits;
    if (options.soft_cap > 0) SoftCap(options.soft_cap, AsMatrix(gradient, rows));
    Floats all = gradient;
    CrossEntropyGradient(AsMatrix(gradient, rows), targets, 0.5f, options, losses,
                         AsMatrix(gradient, rows));
    Append(all, gradient);
    return all;
  });
  for (std::size_t r = 0; r < rows; ++r) {
    Doubles y(cols);
    double sum = 0.0;
    for (std::size_t c = 0; c < cols; ++c) {
      y[c] = logits[r * cols + c];
      if (options.soft_cap > 0) y[c] = options.soft_cap * std::tanh(y[c] / options.soft_cap);
      sum += std::exp(y[c]);
    }
    const double lse = std::log(sum);
    CHECK(losses[r] == Catch::Approx(lse - y[targets[r]]).epsilon(1e-5));
    for (std::size_t c = 0; c < cols; ++c) {
      const double slope = options.soft_cap > 0 ? 1.0 - std::pow(y[c] / options.soft_cap, 2) : 1.0;
      const double p = std::exp(y[c]) / sum * (1.0 + 2.0 * options.z_loss * lse);
      const double exact = 0.5 * (p - (c == targets[r] ? 1.0 : 0.0)) * slope;
      REQUIRE(gradient[r * cols + c] == Catch::Approx(exact).epsilon(1e-4).margin(1e-7));
    }
  }
}

TEST_CASE("A soft cap keeps huge logits below it, and NaN", "[nn]") {
  Floats x = {0.0f, 1e30f, -1e30f, kInfinity, kNaN};
  SoftCap(30.0f, AsMatrix(x, 1));
  CHECK(x[0] == 0.0f);
  CHECK(x[1] == 30.0f);
  CHECK(x[2] == -30.0f);
  CHECK(x[3] == 30.0f);
  CHECK(std::isnan(x[4]));
}

TEST_CASE("AdamW gives the same bits everywhere and the reference's values", "[nn]") {
  const std::size_t size = 40'003;
  const Floats weight = RandomFloats(size, 17);
  Floats w, m, v;
  AdamW options{.learning_rate = 1e-2f, .weight_decay = 0.1f, .gradient_scale = 0.75f};
  std::vector<Floats> gradients;
  for (std::uint64_t step = 0; step < 3; ++step) gradients.push_back(RandomFloats(size, 18 + step));
  SameEverywhere([&] {
    w = weight;
    m.assign(size, 0.0f);
    v.assign(size, 0.0f);
    for (options.step = 1; options.step <= 3; ++options.step) {
      AdamWStep(options, gradients[static_cast<std::size_t>(options.step - 1)], w, m, v);
    }
    Floats all = w;
    Append(all, m);
    Append(all, v);
    return all;
  });
  Doubles w64 = ToDouble(weight), m64(size), v64(size);
  for (options.step = 1; options.step <= 3; ++options.step) {
    const Doubles g = ToDouble(gradients[static_cast<std::size_t>(options.step - 1)]);
    reference::AdamWStep<double>(options, g, w64, m64, v64);
  }
  CheckClose(w, w64, 4);
  CheckClose(m, m64, 4);
  CheckClose(v, v64, 4);
  options.step = 4;
  Floats bad = gradients[0];
  bad[7] = kNaN;
  AdamWStep(options, bad, w, m, v);
  CHECK(std::isnan(w[7]));
  CHECK(std::isfinite(w[8]));
}

TEST_CASE("Newton-Schulz has the bits of its equations with whole products", "[nn]") {
  const std::size_t n = 300, k = 420;  // beyond one panel of rows
  for (const bool turned : {false, true}) {
    Floats x = RandomFloats(n * k, 41), ortho = x;
    const auto view = [&](Floats& values) {
      const MatrixView<float> tall(values.data(), turned ? k : n, turned ? n : k);
      return turned ? tall.Transposed() : tall;
    };
    NewtonSchulz(5, false, turned ? view(ortho).Transposed() : view(ortho));
    Floats a(n * n), b(n * n), y(n * k);
    const MatrixView<float> to_x(x.data(), n, k), to_a(a.data(), n, n), to_b(b.data(), n, n),
        to_y(y.data(), n, k);
    if (turned) {
      const Floats given = x;
      for (std::size_t i = 0; i < n * k; ++i) x[i] = given[i % k * n + i / k];
    }
    const float norm = static_cast<float>(std::sqrt(SumOfSquares(x))) + kNewtonSchulzEpsilon;
    for (float& value : x) value = value / norm;
    for (int step = 0; step < 5; ++step) {
      Gemm(to_x, to_x, {}, to_a);
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = kNewtonSchulzB * a[i];
      Gemm(to_a, to_a, {.alpha = kNewtonSchulzC, .accumulate = true}, to_b);
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = kNewtonSchulzA * x[i];
      Gemm(to_b, to_x.Transposed(), {.accumulate = true}, to_y);
      std::copy(y.begin(), y.end(), x.begin());
    }
    std::size_t different = 0;
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t c = 0; c < k; ++c) different += view(ortho)(r, c) != to_x(r, c) ? 1 : 0;
    }
    CHECK(different == 0);
  }
}

TEST_CASE("Newton-Schulz and Muon give the same bits everywhere and the reference's values",
          "[nn]") {
  const auto [rows, cols] = GENERATE(
      std::pair<std::size_t, std::size_t>{48, 80}, std::pair<std::size_t, std::size_t>{65, 33},
      std::pair<std::size_t, std::size_t>{1, 40}, std::pair<std::size_t, std::size_t>{40, 1});
  const std::size_t size = rows * cols;
  const Floats weight = RandomFloats(size, 31), first = RandomFloats(size, 32),
               second = RandomFloats(size, 33);
  for (const bool bf16 : {false, true}) {
    for (const bool nesterov : {false, true}) {
      CAPTURE(rows, cols, bf16, nesterov);
      const Muon options{.learning_rate = 0.25f,
                         .nesterov = nesterov,
                         .bf16 = bf16,
                         .scale = 1.5f,
                         .weight_decay = 0.125f,
                         .gradient_scale = 0.75f};
      Floats w, m;
      SameEverywhere([&, rows = rows] {
        w = weight;
        m.assign(size, 0.0f);
        for (const Floats* g : {&first, &second}) {
          MuonStep(options, AsMatrix(*g, rows), AsMatrix(w, rows), AsMatrix(m, rows));
        }
        Floats all = w;
        Append(all, m);
        return all;
      });
      Doubles w64 = ToDouble(weight), m64(size);
      for (const Floats* g : {&first, &second}) {
        const Doubles g64 = ToDouble(*g);
        reference::MuonStep<double>(options, {g64.data(), rows, cols}, {w64.data(), rows, cols},
                                    {m64.data(), rows, cols});
      }
      // A step of Newton-Schulz multiplies the error of a small singular value by 3.4445; BF16 has
      // 8 bits.
      const double most = bf16 ? 0.1 : 2e-4;
      for (std::size_t i = 0; i < size; ++i) {
        REQUIRE(std::abs(w[i] - w64[i]) < most);
        REQUIRE(std::abs(m[i] - m64[i]) < 1e-5);
      }
    }
  }
}

TEST_CASE("Newton-Schulz takes singular values near 1, keeps zero, and spreads a NaN", "[nn]") {
  const std::size_t n = 24;
  for (const bool bf16 : {false, true}) {
    Floats x = RandomFloats(n * 2 * n, 34);
    NewtonSchulz(5, bf16, AsMatrix(x, n));
    double trace = 0.0;  // of X X^T: the sum of the squares of the singular values
    for (const float v : x) trace += double{v} * v;
    CHECK(trace / n > 0.5);
    CHECK(trace / n < 1.5);
    Floats zero(n * n);
    NewtonSchulz(5, bf16, AsMatrix(zero, n));
    CHECK(zero == Floats(n * n));
    x[5] = kNaN;
    NewtonSchulz(5, bf16, AsMatrix(x, n));
    CHECK(std::isnan(x.front()));
    CHECK(std::isnan(x.back()));
  }
}

TEST_CASE("Bias corrections hold after a million steps", "[nn]") {
  Floats w = {1.0f}, m = {0.5f}, v = {0.25f};
  AdamWStep({.learning_rate = 0.5f, .step = 1'000'000}, Floats{0.5f}, w, m, v);
  CHECK(w[0] == Catch::Approx(0.5));
}

TEST_CASE("The sum of squares is the same everywhere and survives huge values", "[nn]") {
  const std::size_t size = GENERATE(0u, 1u, 4096u, 10'007u);
  const Floats x = RandomFloats(size, 21);
  double sum = 0, exact = 0;
  SameEverywhere([&] {
    sum = SumOfSquares(x);
    const auto bits = std::bit_cast<std::uint64_t>(sum);
    return Floats{std::bit_cast<float>(static_cast<std::uint32_t>(bits)),
                  std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32))};
  });
  for (const float v : x) exact += double{v} * double{v};
  CHECK(sum == Catch::Approx(exact).epsilon(1e-13));
  CHECK(SumOfSquares(Floats{0x1p100f, 0x1p100f}) == 0x1p201);
  CHECK(std::isnan(SumOfSquares(Floats{1.0f, kNaN})));
}

TEST_CASE("The clip factor brings a norm down and never up", "[nn]") {
  CHECK(ClipFactor(4.0, 1.0f) == 0.25f);
  CHECK(ClipFactor(0.5, 1.0f) == 1.0f);
  CHECK(ClipFactor(4.0, 0.0f) == 1.0f);
  CHECK(ClipFactor(std::nan(""), 1.0f) == 1.0f);
}

}  // namespace
}  // namespace fp4lab
