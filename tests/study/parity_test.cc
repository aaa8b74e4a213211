#include "fp4lab/study/parity/parity.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/parity/step_error.h"
#include "tests/study/support/curves.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using V = std::vector<double>;

std::string StatusOf(const ParityArms& arms, const ParityOptions& options = {}) {
  return ParityDocument(arms, options)["status"];
}

TEST_CASE("The block variance of a mean is what the bootstrap's draws give", "[parity]") {
  const V series = Autoregression({.steps = 60, .correlation = 0.6, .seed = 1});
  constexpr std::size_t kBlock = 5;
  constexpr std::uint32_t kDraws = 4000;
  V means;
  for (std::uint32_t d = 0; d < kDraws; ++d) {
    const BootstrapDraw draw = DrawBootstrap(0, series.size(), kBlock, d);
    double sum = 0;
    for (std::size_t i = 0; i < series.size(); ++i) sum += draw.chunk_counts[i] * series[i];
    means.push_back(sum / 60);
  }
  const double drawn = std::pow(Summarize(means).deviation, 2) * 60 / (60 - kBlock);
  CHECK(BlockVariance(series, kBlock) == Approx(drawn).epsilon(0.05));
}

TEST_CASE("Blocks of one step give the plain standard error", "[parity]") {
  const V series = {1, 4, 2, 8, 5, 7};
  const double error = Summarize(series).StandardError();
  CHECK(BlockVariance(series, 1) == Approx(error * error));
  CHECK(BlockDegrees(6, 1) == 5);
}

TEST_CASE("Intervals over correlated steps hold the mean as often as they say", "[parity]") {
  const struct {
    std::size_t steps;
    double correlation, low, high;
  } kCases[] = {{100, 0, 0.92, 0.99}, {150, 0.5, 0.92, 0.98}, {600, 0.8, 0.92, 0.97}};
  constexpr std::size_t kRepeats = 1000;
  for (const auto& c : kCases) {
    CAPTURE(c.steps, c.correlation);
    std::vector<char> holds(kRepeats);
    ParallelFor(kRepeats, [&](std::size_t r) {
      const V x = Autoregression({.steps = c.steps, .correlation = c.correlation, .seed = 100 + r});
      const StepBlocks blocks = BlocksOf(x);
      const double half = StudentQuantile(0.975, BlockDegrees(c.steps, blocks.length)) *
                          std::sqrt(BlockVariance(x, blocks.length));
      holds[r] = std::abs(Summarize(x).mean) <= half;
    });
    const double share = static_cast<double>(std::count(holds.begin(), holds.end(), 1)) / kRepeats;
    CAPTURE(share);
    CHECK((c.low <= share && share <= c.high));
  }
}

// How often of `repeats` the verdict has the status, of curves with this gap.
double ShareOf(std::string_view status, const CurveOptions& curve, int seeds, double gap,
               std::size_t repeats) {
  std::vector<char> is(repeats);
  ParallelFor(repeats, [&](std::size_t r) {
    is[r] = StatusOf(MadeArms(curve, seeds, gap, 1000 * (r + 1))) == status;
  });
  return static_cast<double>(std::count(is.begin(), is.end(), 1)) / static_cast<double>(repeats);
}

TEST_CASE("Both error rates are at most what they should be, and the power is there", "[parity]") {
  // A margin of 0.5 %: noise that gives single runs an error of about 0.13 %.
  const CurveOptions curve{.steps = 600, .noise = 0.008, .correlation = 0.5, .seed_noise = 0};
  constexpr std::size_t kRepeats = 400;
  CHECK(ShareOf(kDifferent, curve, 1, 0, kRepeats) < 0.08);       // wrongly different
  CHECK(ShareOf(kEquivalent, curve, 1, 0.005, kRepeats) < 0.08);  // wrongly equivalent
  CHECK(ShareOf(kEquivalent, curve, 1, 0, kRepeats) > 0.7);
  CHECK(ShareOf(kDifferent, curve, 1, 0.008, kRepeats) > 0.9);
}

TEST_CASE("Seeds enter the interval", "[parity]") {
  const CurveOptions curve{.steps = 300, .noise = 0.01, .correlation = 0.3, .seed_noise = 0.01};
  constexpr std::size_t kRepeats = 400;
  CHECK(ShareOf(kDifferent, curve, 4, 0, kRepeats) < 0.08);
  CHECK(ShareOf(kEquivalent, curve, 4, 0.005, kRepeats) < 0.08);
  // One run in each arm knows nothing of seeds: the text says so, and its errors show why.
  CHECK(ShareOf(kDifferent, curve, 1, 0, kRepeats) > 0.3);
  const Json alone = ParityDocument(MadeArms(curve, 1, 0, 7));
  CHECK(alone["gap"]["seeds_known"] == false);
  CHECK_THAT(ParityText(alone), ContainsSubstring("steps alone, no seeds"));
  CHECK_THAT(alone["next"].dump(), ContainsSubstring("train a second seed in each arm"));
}

TEST_CASE("What batches do to one arm alone enters beside the seeds", "[parity]") {
  // All runs of an arm share a large noise of the steps; seeds differ by next to nothing.
  const CurveOptions curve{
      .steps = 300, .noise = 0.001, .correlation = 0.3, .seed_noise = 0.0001, .arm_noise = 0.05};
  const Json document = ParityDocument(MadeArms(curve, 3, 0, 5));
  const Json& variance = document["gap"]["variance"];
  CHECK(variance["steps"].get<double>() > 20 * variance["seeds"].get<double>());
  CHECK(ShareOf(kDifferent, curve, 3, 0, 300) < 0.08);
}

TEST_CASE("The verdict says what it is, in a sentence", "[parity]") {
  const CurveOptions quiet{.steps = 300, .noise = 0.002};
  const Json equal = ParityDocument(MadeArms(quiet, 2, 0.0005, 1));
  CHECK(equal["status"] == kEquivalent);
  CHECK_THAT(equal["verdict"].get<std::string>(),
             ContainsSubstring("equivalent within 0.5 %: the loss differs by +0."));
  const Json apart = ParityDocument(MadeArms(quiet, 2, 0.02, 1));
  CHECK(apart["status"] == kDifferent);
  CHECK_THAT(apart["verdict"].get<std::string>(),
             ContainsSubstring("different by +") && ContainsSubstring("more than 0.5 %"));
  CHECK(apart["gap"]["nats"].get<double>() == Approx(apart["gap"]["relative"].get<double>() *
                                                     apart["gap"]["baseline_loss"].get<double>()));
  const Json open = ParityDocument(MadeArms({.steps = 60, .noise = 0.1}, 1, 0.001, 3));
  CHECK(open["status"] == kNotTold);
  CHECK_THAT(open["verdict"].get<std::string>(),
             ContainsSubstring("not told apart: ") && ContainsSubstring("more logged steps"));
  CHECK(open["power"]["points_needed"].get<std::size_t>() > open["window"]["points"]);
  const Json few =
      ParityDocument(MadeArms({.steps = 300, .noise = 0.002, .seed_noise = 0.03}, 2, 0.001, 4));
  CHECK(few["status"] == kNotTold);
  CHECK(few["power"]["seeds_needed"].get<std::size_t>() > 2);
  CHECK_THAT(few["verdict"].get<std::string>(), ContainsSubstring("more seeds in each arm"));
}

TEST_CASE("The number of steps that is said to be needed suffices", "[parity]") {
  const CurveOptions small{.steps = 150, .noise = 0.015, .correlation = 0.3};
  const Json open = ParityDocument(MadeArms(small, 1, 0, 21));
  REQUIRE(open["power"]["points_needed"].is_number());
  CurveOptions large = small;
  large.steps = 3 * open["power"]["points_needed"].get<std::size_t>();  // the window is a third
  CHECK(ShareOf(kEquivalent, large, 1, 0, 100) > 0.6);
}

TEST_CASE("Equal files are equivalent, and the order of runs does not matter", "[parity]") {
  const ParityArms arms = MadeArms({.steps = 100, .noise = 0.02}, 3, 0.01, 9);
  const Json same = ParityDocument({{arms.runs[0]}, {arms.runs[0]}});
  CHECK(same["status"] == kEquivalent);
  CHECK(same["gap"]["interval"] == Json{0.0, 0.0});
  ParityArms turned = arms;
  std::swap(turned.runs[0], turned.runs[2]);
  const Json a = ParityDocument(arms)["gap"], b = ParityDocument(turned)["gap"];
  CHECK(a["relative"].get<double>() == Approx(b["relative"].get<double>()));
  CHECK(a["standard_error"].get<double>() == Approx(b["standard_error"].get<double>()));
  CHECK(ParityDocument(arms).dump() == ParityDocument(arms).dump());
}

TEST_CASE("Pairs by seed make what a seed does to both arms cancel", "[parity]") {
  ParityArms arms = MadeArms({.steps = 200, .noise = 0.002, .seed_noise = 0.05}, 4, 0.01, 11);
  // The baseline's seed effects in the runs as well.
  for (std::size_t r = 0; r < 4; ++r) {
    arms.runs[r] = arms.baseline[r];
    for (auto& [at, loss] : arms.runs[r].series["loss"]) loss *= 1.01 + 0.0002 * std::sin(at);
  }
  CHECK(StatusOf(arms) == kNotTold);
  CHECK(StatusOf(arms, {.paired = true}) == kDifferent);
  for (std::size_t r = 0; r < 4; ++r) arms.runs[r].seed = arms.baseline[r].seed = r;
  CHECK(StatusOf(arms) == kDifferent);
}

TEST_CASE("A run that ends not finite is different; a baseline's tells nothing", "[parity]") {
  ParityArms arms = MadeArms({.steps = 100, .noise = 0.01}, 1, 0, 1);
  arms.runs[0].series["loss"].rbegin()->second = NAN;
  const Json document = ParityDocument(arms);
  CHECK(document["status"] == kDifferent);
  CHECK_THAT(document["verdict"].get<std::string>(), ContainsSubstring("ends not finite, at step"));
  std::swap(arms.runs, arms.baseline);
  CHECK(StatusOf(arms) == kNotTold);
  // One step in the middle is left out, with a note.
  arms = MadeArms({.steps = 100, .noise = 0.01}, 1, 0, 1);
  arms.runs[0].series["loss"][80] = INFINITY;
  CHECK_THAT(ParityDocument(arms)["notes"].dump(), ContainsSubstring("1 step left out"));
}

TEST_CASE("The window is the last third, or what is given", "[parity]") {
  const ParityArms arms = MadeArms({.steps = 300, .noise = 0.01}, 1, 0, 1);
  const auto window = [&](const ParityOptions& o) { return ParityDocument(arms, o)["window"]; };
  CHECK(window({})["from"] == 200);
  CHECK(window({})["points"] == 100);
  CHECK(window({.last = 1})["points"] == 300);
  CHECK(window({.from = 50, .to = 149})["points"] == 100);
  CHECK(window({.to = 149})["from"] == 0);
}

TEST_CASE("Bad questions are refused with the remedy", "[parity]") {
  const ParityArms arms = MadeArms({.steps = 300, .noise = 0.01}, 2, 0, 1);
  const auto refused = [](const ParityArms& a, const ParityOptions& o, const char* what) {
    CHECK_THROWS_WITH(ParityDocument(a, o), ContainsSubstring(what));
  };
  refused({{}, arms.baseline}, {}, "name one at least");
  refused({arms.runs, {}}, {}, "--baseline: names no runs");
  refused(arms, {.margin = 0}, "--margin: must be between 0 and 100 percent");
  refused(arms, {.confidence = 0.3}, "--confidence: must be between 0.5 and 1");
  refused(arms, {.last = 1.5}, "--last: must be above 0");
  refused(arms, {.from = 5, .to = 4}, "--from: must not be behind --to");
  refused({{arms.runs[0]}, arms.baseline}, {.paired = true}, "--paired: needs as many runs");
  refused(arms, {.from = 295}, "10 are needed: log losses at the same steps");
  ParityArms zero = arms, huge = arms;
  for (MetricLog& log : zero.baseline) {
    for (auto& [at, loss] : log.series["loss"]) loss = 0;
  }
  for (auto& [at, loss] : huge.runs[0].series["loss"]) loss = 1e308;
  refused(zero, {}, "base0: a gap in percent needs losses whose mean is above 0");
  refused(huge, {}, "which are not huge");
  ParityArms tokens = arms;
  for (MetricLog& log : tokens.baseline) log.by_tokens = true;
  refused(tokens, {}, "--by tokens if both have them");
}

TEST_CASE("Leaps of a series are found, neighbours as one", "[parity]") {
  V series = Autoregression({.steps = 300, .correlation = 0.2, .seed = 3});
  CHECK(SpikesOf(series).empty());
  series[100] += 40;
  series[101] += 30;
  series[250] = NAN;
  CHECK(SpikesOf(series) == std::vector<std::size_t>{100, 250});
  CHECK(SameRateP(0, 100, 0, 100) == 1);
  CHECK(SameRateP(10, 100, 0, 100) == Approx(2.0 / 1024).epsilon(1e-6));
  CHECK(SameRateP(3, 100, 3, 100) == 1);
}

TEST_CASE("Spikes, norms, speed and memory stand side by side", "[parity]") {
  ParityArms arms = MadeArms({.steps = 300, .noise = 0.01}, 1, 0, 1);
  for (auto* arm : {&arms.runs, &arms.baseline}) {
    const bool is_run = arm == &arms.runs;
    for (auto& [at, loss] : (*arm)[0].series["loss"]) {
      (*arm)[0].series["tokens_per_second"][at] = is_run ? 1500 : 1000;
      (*arm)[0].series["memory"][at] = at == 250 ? 60 : 50;
      if (is_run && std::fmod(at, 40) == 39) loss += 3;
    }
  }
  const Json document = ParityDocument(arms);
  CHECK(document["metrics"][1]["metric"] == "tokens_per_second");
  CHECK(document["metrics"][1]["ratio"] == 1.5);
  CHECK(document["metrics"][2]["runs"] == 60);  // the most
  CHECK(document["spikes"][0]["runs"] == 7);
  CHECK(document["spikes"][0]["baseline"] == 0);
  CHECK_THAT(document["next"].dump(), ContainsSubstring("look at the steps of the spikes"));
  CHECK_THAT(ParityText(document),
             ContainsSubstring("median tokens per second") && ContainsSubstring("spikes of loss"));
}

}  // namespace
}  // namespace fp4lab::study
