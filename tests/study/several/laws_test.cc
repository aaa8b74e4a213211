// Laws of losses and gaps over sizes, on studies that were made of a law.
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/study/several/gap_law.h"
#include "fp4lab/study/several/law.h"
#include "tests/study/several/made_studies.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab::study {
namespace {

constexpr LossLaw kLoss = {0.7, -1.5, 0.4, 0.3, 0.6};
constexpr std::array<GapLaw, 2> kGaps = {GapLaw{4.0, 0.5, 0.03}, GapLaw{3.5, 0.4, 0.05}};

TEST_CASE("Fits find the laws that losses and gaps were made of", "[several]") {
  for (const GapLaw& law : kGaps) {
    std::vector<GapPoint> points;
    for (const double n : {3e5, 1.2e6, 4.8e6}) {
      for (const double each : {8.0, 32.0, 128.0}) points.push_back({n, each, law.At(n, each)});
    }
    const std::optional<GapLaw> found = FitGapLaw(points);
    REQUIRE(found);
    CHECK(found->ln_c == Approx(law.ln_c));
    CHECK(found->a == Approx(law.a));
    CHECK(found->b == Approx(law.b));
    points[0].gap = 0;
    CHECK_FALSE(FitGapLaw(points));
    points.resize(2);
    points[0].gap = 1;
    CHECK(ErrorOf([&] { FitGapLaw(points); }).find("needs three budgets") != std::string::npos);
  }
  std::vector<LossPoint> losses;
  for (const double n : {3e5, 1.2e6, 4.8e6}) {
    for (const double each : {8.0, 16.0, 32.0, 64.0, 128.0}) {
      losses.push_back({n, n * each, kLoss.At(n, n * each)});
    }
  }
  const LossLaw found = FitLossLaw(losses);
  CHECK(found.e == Approx(kLoss.e).epsilon(1e-4));
  CHECK(found.ln_a == Approx(kLoss.ln_a).epsilon(1e-3));
  CHECK(found.alpha == Approx(kLoss.alpha).epsilon(1e-3));
  CHECK(found.ln_b == Approx(kLoss.ln_b).epsilon(1e-3));
  CHECK(found.beta == Approx(kLoss.beta).epsilon(1e-3));
}

TEST_CASE("The token ratio of laws whose gaps do not depend on D has a closed form", "[several]") {
  const double n = 25e6, each = 10;
  std::array<GapLaw, 2> flat = kGaps;
  flat[0].b = flat[1].b = 0;
  const std::array<double, 2> effects = {1.2, 0.9};
  // E + A N^-alpha drop out: B D^-beta - B (r D)^-beta is the difference of the gaps.
  const double difference = effects[1] * std::exp(flat[1].ln_c - flat[1].a * std::log(n)) -
                            effects[0] * std::exp(flat[0].ln_c - flat[0].a * std::log(n));
  const double term = std::exp(kLoss.ln_b) * std::pow(n * each / 1e6, -kLoss.beta);
  const double expected = -std::log(1 - difference / term) / kLoss.beta;
  const std::optional<double> found = LogRatioOfLaws(kLoss, flat, n, each, effects);
  REQUIRE(found);
  CHECK(*found == Approx(expected).epsilon(1e-9));
  CHECK_FALSE(LogRatioOfLaws(kLoss, flat, n, each, {1.2, 9.0}));  // it never reaches that loss
}

TEST_CASE("The command's law is that of the studies, and predicts a size", "[several]") {
  Folder folder;
  const LossOf loss = [](const std::string& arm, double n, double tokens, int seed) {
    const double base = kLoss.At(n, tokens) + 1e-4 * seed;
    if (arm == "bf16") return base;
    return base + kGaps[arm == "nvfp4" ? 0 : 1].At(n, tokens / n) * (seed % 2 == 0 ? 1.01 : 0.99);
  };
  Json studies = Json::array();
  for (const double n : {3e5, 1.2e6, 4.8e6}) {
    const std::string name = "s" + std::to_string(static_cast<int>(n));
    folder.Add({.name = name, .parameters = n}, loss);
    studies.push_back("../" + name);
  }
  Json ask = {{"studies", studies},
              {"reference", "bf16"},
              {"formats", {"nvfp4", "mxfp4"}},
              {"predict", 9600000},
              {"places", {10.0}}};
  const auto document = [&] { return LawDocument(ReadLawFile(folder.Ask(ask)), 50); };
  const Json law = document();
  CHECK(law["arms"]["nvfp4"]["a"].get<double>() == Approx(0.5).epsilon(1e-6));
  CHECK(law["arms"]["mxfp4"]["b"].get<double>() == Approx(0.05).epsilon(1e-6));
  const Json& predicted = law["arms"]["mxfp4"]["predictions"][0];
  CHECK(predicted["gap"].get<double>() == Approx(kGaps[1].At(9.6e6, 10)).epsilon(1e-6));
  CHECK(predicted["interval"][0] <= predicted["gap"]);
  CHECK(predicted["interval"][1] >= predicted["gap"]);
  CHECK(law["token_ratios"].size() == 1);
  const int threads = Threads();
  SetThreads(1);
  const std::string one = document().dump();
  SetThreads(3);
  const std::string three = document().dump();
  SetThreads(threads);
  CHECK(one == three);

  ask["studies"] = Json::array({studies[0]});
  CHECK(ErrorOf(document).find("needs two sizes") != std::string::npos);
  ask["studies"] = studies;
  ask["places"] = Json::array();
  CHECK(ErrorOf(document).find("#/places: must be bytes per parameter") != std::string::npos);
  ask["places"] = {1e6};
  CHECK(ErrorOf(document).find("leave that place out") != std::string::npos);
}

}  // namespace
}  // namespace fp4lab::study
