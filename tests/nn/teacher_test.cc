// The loss of a teacher: the same bits everywhere, the values and central differences of binary64.
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp4lab/nn/loss.h"
#include "tests/nn/support.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr std::size_t kRows = 7, kCols = 67;

struct Problem {
  Floats logits = RandomFloats(kRows * kCols, 51), teacher = RandomFloats(kRows * kCols, 52);
  std::vector<std::uint16_t> targets = std::vector<std::uint16_t>(kRows);
  LossOptions options;
  float temperature = 1.0f, share = 1.0f, scale = 0.5f;

  Problem() {
    for (std::size_t r = 0; r < kRows; ++r) targets[r] = static_cast<std::uint16_t>(9 * r);
    for (float& t : teacher) t *= 3.0f;
  }
};

// A row's objective (nn/loss.h) of logits before the soft cap, in binary64.
double Objective(const Problem& p, std::size_t r, const Doubles& z) {
  Doubles y = z;
  if (p.options.soft_cap > 0) {
    for (double& v : y) v = p.options.soft_cap * std::tanh(v / p.options.soft_cap);
  }
  double sum = 0.0, sum_q = 0.0, sum_p = 0.0, kl = 0.0;
  for (std::size_t c = 0; c < kCols; ++c) {
    sum += std::exp(y[c]);
    sum_q += std::exp(y[c] / p.temperature);
    sum_p += std::exp(p.teacher[r * kCols + c] / p.temperature);
  }
  for (std::size_t c = 0; c < kCols; ++c) {
    const double of_teacher = std::exp(p.teacher[r * kCols + c] / p.temperature) / sum_p;
    const double of_student = std::exp(y[c] / p.temperature) / sum_q;
    kl += of_teacher * (std::log(of_teacher) - std::log(of_student));
  }
  const double lse = std::log(sum);
  const double cross_entropy = lse - y[p.targets[r]] + p.options.z_loss * lse * lse;
  return (1.0 - p.share) * cross_entropy + p.share * p.temperature * p.temperature * kl;
}

// The divergence of a row in binary64.
double Divergence(const Problem& p, std::size_t r, const Doubles& z) {
  Problem alone = p;
  alone.share = 1.0f;
  return Objective(alone, r, z) / (p.temperature * p.temperature);
}

struct Result {
  Floats gradient;
  Doubles losses = Doubles(kRows), kl = Doubles(kRows);
};

Result ResultOf(const Problem& p) {
  Result result;
  result.gradient = p.logits;
  const MatrixView<float> z = AsMatrix(result.gradient, kRows);
  if (p.options.soft_cap > 0) SoftCap(p.options.soft_cap, z);
  CrossEntropyGradient(z, p.targets, p.scale, p.options,
                       {AsMatrix(p.teacher, kRows), p.temperature, p.share, result.kl},
                       result.losses, z);
  return result;
}

TEST_CASE(
    "A teacher's gradient is that of central differences in binary64, in the same bits "
    "everywhere",
    "[nn]") {
  Problem p;
  p.temperature = GENERATE(1.0f, 2.0f, 0.75f);
  p.share = GENERATE(1.0f, 0.25f);
  p.options = GENERATE(LossOptions{}, LossOptions{2.5f, 0.125f});
  Result result;
  SameEverywhere([&] {
    result = ResultOf(p);
    Floats all = result.gradient;
    for (const double kl : result.kl) {
      const auto bits = std::bit_cast<std::uint64_t>(kl);
      all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
      all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32)));
    }
    return all;
  });
  constexpr double kStep = 1e-5;
  for (std::size_t r = 0; r < kRows; ++r) {
    const Doubles z(p.logits.begin() + static_cast<std::ptrdiff_t>(r * kCols),
                    p.logits.begin() + static_cast<std::ptrdiff_t>((r + 1) * kCols));
    CHECK(result.kl[r] == Catch::Approx(Divergence(p, r, z)).epsilon(1e-5).margin(1e-6));
    for (std::size_t c = 0; c < kCols; ++c) {
      Doubles plus = z, minus = z;
      plus[c] += kStep;
      minus[c] -= kStep;
      const double exact = (Objective(p, r, plus) - Objective(p, r, minus)) / (2 * kStep);
      REQUIRE(result.gradient[r * kCols + c] ==
              Catch::Approx(p.scale * exact).epsilon(2e-4).margin(5e-7));
    }
  }
}

TEST_CASE("A teacher leaves the cross-entropy of rows as it is", "[nn]") {
  Problem p;
  p.share = 0.5f;
  p.temperature = 2.0f;
  Doubles losses(kRows);
  CrossEntropy(AsMatrix(p.logits, kRows), p.targets, losses);
  CHECK(ResultOf(p).losses == losses);
}

TEST_CASE("A student with its teacher's logits has no divergence and no gradient", "[nn]") {
  Problem p;
  p.teacher = p.logits;
  p.temperature = GENERATE(1.0f, 3.0f);
  const Result result = ResultOf(p);
  for (const double kl : result.kl) CHECK(kl == 0.0);
  for (const float g : result.gradient) CHECK(g == 0.0f);
}

TEST_CASE("Shares of teacher and text add up to both gradients", "[nn]") {
  Problem p;
  p.share = 0.25f;
  const Result both = ResultOf(p);
  Floats text = p.logits;
  Doubles losses(kRows);
  CrossEntropyGradient(AsMatrix(text, kRows), p.targets, p.scale, losses, AsMatrix(text, kRows));
  p.share = 1.0f;
  const Result alone = ResultOf(p);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const double sum = 0.75 * text[i] + 0.25 * alone.gradient[i];
    REQUIRE(both.gradient[i] == Catch::Approx(sum).margin(1e-7));
  }
}

TEST_CASE("A teacher that is sure, and one that is not a number", "[nn]") {
  Problem p;
  for (float& t : p.teacher) t = 0.0f;
  p.teacher[5] = 200.0f;  // e^-200 is 0 in binary32
  const Result result = ResultOf(p);
  // KL = -ln q(5) = the cross-entropy of target 5.
  Floats row(p.logits.begin(), p.logits.begin() + kCols);
  Doubles loss(1);
  CrossEntropy(AsMatrix(row, 1), std::vector<std::uint16_t>{5}, loss);
  CHECK(result.kl[0] == Catch::Approx(loss[0]).epsilon(1e-6));
  CHECK(AllFinite(result.gradient));
  p.teacher[kCols + 1] = kNaN;
  const Result poisoned = ResultOf(p);
  CHECK(std::isnan(poisoned.kl[1]));
  CHECK(std::isnan(poisoned.gradient[kCols + 7]));
  CHECK(poisoned.kl[0] == result.kl[0]);
}

}  // namespace
}  // namespace fp4lab
