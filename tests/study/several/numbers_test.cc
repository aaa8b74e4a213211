// The statistics of several studies: shares, tests, and the noise of seeds.
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/study/several/effects.h"
#include "fp4lab/study/several/league.h"
#include "fp4lab/study/several/seed_noise.h"
#include "tests/study/several/made_studies.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

TEST_CASE("Shapley's shares add up and split an interaction evenly", "[several]") {
  // ln r = a + b + c of the factors that were changed, and d if the first two were.
  const double a = 0.3, b = 0.1, c = -0.02, d = 0.06;
  std::array<double, 8> values;
  for (std::size_t i = 0; i < 8; ++i) {
    const bool f = (i & 4) != 0, g = (i & 2) != 0, h = (i & 1) != 0;
    values[i] = 1 + f * a + g * b + h * c + (f && g) * d;
  }
  const std::array<double, 3> shares = ShapleyShares(values);
  CHECK(shares[0] == Approx(a + d / 2).margin(1e-12));
  CHECK(shares[1] == Approx(b + d / 2).margin(1e-12));
  CHECK(shares[2] == Approx(c).margin(1e-12));
}

TEST_CASE("Welch's interval of two samples of equal variance is that of pooled t", "[several]") {
  const std::vector<double> x = {1, 2, 3}, y = {4, 5, 6};
  const MeanInterval d = WelchDifference(y, x, 0.95);
  CHECK(d.mean == Approx(3));
  // Standard error sqrt(1/3 + 1/3), 4 degrees of freedom, t = 2.776445.
  CHECK(d.interval.high - d.mean == Approx(2.776445105 * std::sqrt(2.0 / 3)));
  CHECK(d.mean - d.interval.low == Approx(2.776445105 * std::sqrt(2.0 / 3)));
}

TEST_CASE("So many seeds suffice, and one fewer does not", "[several]") {
  for (const double deviation : {0.02, 0.1, 0.3}) {
    const std::size_t n = CountThatSuffices(deviation, 0.08, 0.95);
    const auto half = [&](std::size_t count) {
      return StudentQuantile(0.975, static_cast<double>(count) - 1) * deviation /
             std::sqrt(static_cast<double>(count));
    };
    CAPTURE(deviation, n);
    CHECK(half(n) <= 0.08);
    CHECK((n == 2 || half(n - 1) > 0.08));
  }
}

TEST_CASE("Holm's method stops at the first p value that is too large", "[several]") {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005};
  CHECK(HolmKept(p, 0.05) == std::vector<bool>{true, false, false, true});
}

TEST_CASE("Tails of t and F have their tabled values", "[several]") {
  CHECK(StudentTwoSided(-2.776445105, 4) == Approx(0.05).epsilon(1e-7));
  CHECK(FisherAbove(2.776445105 * 2.776445105, 1, 4) == Approx(0.05).epsilon(1e-7));
  CHECK(FisherAbove(4.102821015, 2, 10) == Approx(0.05).epsilon(1e-7));
}

TEST_CASE("A pool's fit of recipe + seed leaves the noise", "[several]") {
  // But for one run of four that is 0.04 off, the seeds act alike: a rest of 0.01 each.
  const NoisePool pool({{"a", {{1, 1.0}, {2, 1.1}}}, {"b", {{1, 2.0}, {2, 2.14}}}});
  CHECK(pool.freedom == 1);
  CHECK(pool.deviation == Approx(0.02));
  CHECK(pool.effects.at(2) - pool.effects.at(1) == Approx(0.12));
  const RecipeLosses twins = {{"a", {{1, 1.0}}}, {"b", {{1, 1.0}}}, {"c", {{1, 2.0}}}};
  const RecipeLosses distinct = DistinctLosses(twins);
  REQUIRE(distinct.size() == 2);
  CHECK(distinct[0].first == "a");
  CHECK(distinct[1].first == "c");
  const RecipeLosses losses = {
      {"a", {{1, 1.0}, {2, 1.1}}}, {"b", {{1, 2.0}, {2, 2.14}}}, {"c", {{1, 9.0}, {2, 5.0}}}};
  const SeedNoise unknown(losses, {"pool", "pool", ""});
  CHECK_FALSE(unknown.HalfWidth("pool", "", 2, 0.95));
  // Within a pool: variance 2 * 0.02^2 per seed, 1 degree of freedom (t = 12.7062).
  CHECK(*unknown.HalfWidth("pool", "pool", 2, 0.95) ==
        Approx(12.70620474 * std::sqrt(2 * 0.02 * 0.02 / 2)));
  const SeedNoise alone(losses, {"pool", "pool", "one"});
  CHECK_FALSE(alone.HalfWidth("one", "pool", 2, 0.95));
}

TEST_CASE("Pooled intervals hold the true difference as often as they say", "[several]") {
  // Noise of runs: normal, or Student's with 4 degrees of freedom, both of deviation 1.
  const bool heavy = GENERATE(false, true);
  constexpr int kLeagues = 400;
  std::uint64_t at = 0;
  const RandomStream stream{.seed = 20261126};
  const auto normal = [&] {
    const double u = UniformOpen(stream.Bits32(at)), v = UniformOpen(stream.Bits32(at + 1));
    at += 2;
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  };
  const auto noise_of_run = [&] {
    double square = 0;
    for (int i = 0; i < 4 && heavy; ++i) square += std::pow(normal(), 2);
    return heavy ? normal() / std::sqrt(square / 4) / std::sqrt(2.0) : normal();
  };
  // Within the calm pool and between both, of five and of three common seeds.
  std::array<int, 4> held{};
  for (int league = 0; league < kLeagues; ++league) {
    std::array<double, 5> seed, apart;
    for (double& s : seed) s = 0.01 * normal();
    for (double& s : apart) s = 0.004 * normal();
    RecipeLosses losses;
    std::vector<std::string> pools;
    for (int r = 0; r < 24; ++r) {
      const bool wild = r >= 16;
      SeedLosses own;  // every other recipe has three seeds
      for (std::uint64_t s = 0; s < (r % 2 == 0 ? 5u : 3u); ++s) {
        own[s] = 1 + seed[s] + (wild ? apart[s] : 0) + (wild ? 0.006 : 0.003) * noise_of_run();
      }
      losses.emplace_back("r" + std::to_string(r), own);
      pools.push_back(wild ? "wild" : "calm");
    }
    const SeedNoise noise(losses, pools);
    const auto holds = [&](std::size_t a, std::size_t b) {
      std::vector<double> gaps;
      for (const auto& [s, loss] : losses[a].second) {
        if (losses[b].second.count(s) > 0) gaps.push_back(loss - losses[b].second.at(s));
      }
      return std::abs(Summarize(gaps).mean) <=
             *noise.HalfWidth(pools[a], pools[b], gaps.size(), 0.95);
    };
    held[0] += holds(0, 2) ? 1 : 0;
    held[1] += holds(0, 1) ? 1 : 0;
    held[2] += holds(20, 2) ? 1 : 0;
    held[3] += holds(21, 1) ? 1 : 0;
  }
  CAPTURE(heavy, held);
  // 380 of 400, give or take four standard deviations of 4.4 each.
  for (const int count : held) CHECK((count >= 362 && count <= 398));
}

}  // namespace
}  // namespace fp4lab::study
