#include "fp4lab/study/several/sizes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/study/several/effects.h"

namespace fp4lab::study {
namespace {

using Seeds = std::vector<std::size_t>;

Seeds AllSeeds(const JoinedStudy& study) {
  Seeds seeds(study.cube.seeds);
  std::iota(seeds.begin(), seeds.end(), std::size_t{0});
  return seeds;
}

double MeanLoss(const JoinedStudy& study, std::size_t arm, std::size_t budget, const Seeds& seeds) {
  double sum = 0;
  for (const std::size_t s : seeds) sum += study.cube.At(s, arm, budget);
  return sum / static_cast<double>(seeds.size());
}

void AddSameBytes(const SizedStudy& small, const SizedStudy& large, const SurfaceQuestion& question,
                  Json* found) {
  for (const std::string& arm : question.formats) {
    for (const Json& a : (*small.part)["ratios_to_reference"][arm]) {
      for (const Json& b : (*large.part)["ratios_to_reference"][arm]) {
        const double x = a["bytes_per_parameter"], y = b["bytes_per_parameter"];
        const auto of_a = a["log_ratio"]["seeds"].get<std::vector<double>>();
        const auto of_b = b["log_ratio"]["seeds"].get<std::vector<double>>();
        if (a["form"] != b["form"] || std::abs(std::log(y / x)) >= kNearBytes || of_a.size() < 2 ||
            of_b.size() < 2) {
          continue;
        }
        const MeanInterval difference = WelchDifference(of_b, of_a, kConfidence);
        found->push_back({{"arm", arm},
                          {"form", a["form"]},
                          {"studies", {small.study->Name(), large.study->Name()}},
                          {"bytes_per_parameter", {x, y}},
                          {"ratios",
                           {std::exp(a["log_ratio"]["mean"].get<double>()),
                            std::exp(b["log_ratio"]["mean"].get<double>())}},
                          {"log_difference",
                           {{"mean", difference.mean},
                            {"interval", {difference.interval.low, difference.interval.high}}}}});
      }
    }
  }
}

// The index of a budget that is the same text.
std::optional<std::size_t> SameText(const JoinedStudy& study, std::int64_t tokens) {
  for (std::size_t k = 0; k < study.results.budgets.size(); ++k) {
    const double ratio =
        static_cast<double>(study.results.budgets[k]) / static_cast<double>(tokens);
    if (std::abs(std::log(ratio)) < kSameText) return k;
  }
  return std::nullopt;
}

// The record of a format's ratio in shrink form at the same text; null if it does not stand.
const Json* ShrinkAt(const SizedStudy& size, const std::string& arm, std::int64_t tokens) {
  const std::optional<std::size_t> at = SameText(*size.study, tokens);
  if (!at) return nullptr;
  for (const Json& r : (*size.part)["ratios_to_reference"][arm]) {
    if (r["form"] == "shrink" && r["tokens"] == size.study->results.budgets[*at]) return &r;
  }
  return nullptr;
}

Json SameTextRecords(const std::vector<SizedStudy>& sizes, const SurfaceQuestion& question) {
  const std::vector<std::int64_t>& budgets = sizes.back().study->results.budgets;
  for (auto tokens = budgets.rbegin(); tokens != budgets.rend(); ++tokens) {
    Json found = Json::array();
    bool all = true;
    for (const SizedStudy& size : sizes) {
      for (const std::string& arm : question.formats) {
        const Json* ratio = ShrinkAt(size, arm, *tokens);
        all = all && ratio != nullptr;
        if (!all) break;
        const Json& log = (*ratio)["log_ratio"];
        Json interval;
        if (!log["interval_t"].is_null()) {
          for (const Json& end : log["interval_t"]) {
            interval.push_back(std::exp(end.get<double>()));
          }
        }
        found.push_back({{"study", size.study->Name()},
                         {"arm", arm},
                         {"tokens", *tokens},
                         {"form", "shrink"},
                         {"bytes_per_parameter", (*ratio)["bytes_per_parameter"]},
                         {"ratio", std::exp(log["mean"].get<double>())},
                         {"interval", interval}});
      }
    }
    if (all) return found;
  }
  return Json::array();
}

// The size of a model of the reference over that of `arm`, of drawn seeds of both sizes.
double ReferenceSize(const JoinedStudy& small, const JoinedStudy& large,
                     const std::string& reference, std::size_t arm, std::size_t at,
                     const Seeds& of_small, const Seeds& of_large) {
  LossCurve curve{small.cube.log_tokens, {}};
  const std::size_t base = small.Arm(reference);
  for (std::size_t k = 0; k < small.cube.Budgets(); ++k) {
    curve.losses.push_back(MeanLoss(small, base, k, of_small));
  }
  const double x = std::min(large.cube.log_tokens[at], small.cube.log_tokens.back());
  const double above = SmoothCurve(curve).Loss(x);
  const double own = MeanLoss(large, large.Arm(reference), at, of_large);
  const double loss = MeanLoss(large, arm, at, of_large);
  const double step = std::log(static_cast<double>(large.results.block_parameters) /
                               static_cast<double>(small.results.block_parameters));
  return std::exp(-step * (loss - own) / (above - own));
}

// At the budgets of the larger size that the smaller one's curve reaches, where no seed is late.
void AddReferenceSizes(const JoinedStudy& small, const JoinedStudy& large, std::uint32_t pair,
                       const SurfaceQuestion& question, int draws, Json* found) {
  for (std::size_t at = 0; at < large.cube.Budgets(); ++at) {
    const double x = large.cube.log_tokens[at];
    bool late = x < small.cube.log_tokens.front() || x > small.cube.log_tokens.back() + kSameText;
    for (const std::string& arm : {question.reference, question.formats[0], question.formats[1]}) {
      late = late || large.Apart(large.Arm(arm), at);
    }
    if (late) continue;
    for (const std::string& name : question.formats) {
      const std::size_t arm = large.Arm(name);
      std::vector<double> drawn(static_cast<std::size_t>(draws));
      ParallelFor(drawn.size(), [&](std::size_t d) {
        // Of each size its own draws: the numbers of draws of two sizes share no number.
        const auto number = [&](std::uint32_t size) {
          return (static_cast<std::uint32_t>(d) * 2 + size) +
                 pair * 2 * static_cast<std::uint32_t>(draws);
        };
        drawn[d] = ReferenceSize(small, large, question.reference, arm, at,
                                 DrawBootstrap(small.cube.seeds, 0, 1, number(0)).seeds,
                                 DrawBootstrap(large.cube.seeds, 0, 1, number(1)).seeds);
      });
      const Interval interval = PercentileInterval(drawn, kConfidence);
      found->push_back(
          {{"studies", {small.Name(), large.Name()}},
           {"arm", name},
           {"tokens", std::min(large.results.budgets[at], small.results.budgets.back())},
           {"bytes_per_parameter", large.BytesEach(at)},
           {"size", ReferenceSize(small, large, question.reference, arm, at, AllSeeds(small),
                                  AllSeeds(large))},
           {"interval", {interval.low, interval.high}}});
    }
  }
}

}  // namespace

Json CompareSizes(const std::vector<SizedStudy>& sizes, const SurfaceQuestion& question,
                  int draws) {
  const IeeeArithmetic ieee;
  Json json = {{"studies", Json::array()},
               {"same_bytes", Json::array()},
               {"same_text", SameTextRecords(sizes, question)},
               {"reference_size", Json::array()}};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    json["studies"].push_back(sizes[i].study->Name());
    if (i == 0) continue;
    const JoinedStudy &small = *sizes[i - 1].study, &large = *sizes[i].study;
    if (small.results.block_parameters >= large.results.block_parameters) {
      throw Error("sizes", large.Name() + " is not larger than " + small.Name() +
                               "; name the studies by rising size");
    }
    AddSameBytes(sizes[i - 1], sizes[i], question, &json["same_bytes"]);
    AddReferenceSizes(small, large, static_cast<std::uint32_t>(i - 1), question, draws,
                      &json["reference_size"]);
  }
  return json;
}

}  // namespace fp4lab::study
