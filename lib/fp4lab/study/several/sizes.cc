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
#include "fp4lab/study/several/evaluation.h"

namespace fp4lab::study {
namespace {

using Seeds = std::vector<std::size_t>;

Seeds AllSeeds(const JoinedStudy& study) {
  Seeds seeds(study.cube.seeds);
  std::iota(seeds.begin(), seeds.end(), std::size_t{0});
  return seeds;
}

double MeanLoss(const LossCube& cube, std::size_t arm, std::size_t budget, const Seeds& seeds) {
  double sum = 0;
  for (const std::size_t s : seeds) sum += cube.At(s, arm, budget);
  return sum / static_cast<double>(seeds.size());
}

void AddSameBytes(const SizedStudy& small, const SizedStudy& large, const SurfaceQuestion& question,
                  Json* found) {
  if (small.part == nullptr || large.part == nullptr) return;
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
      if (size.part == nullptr) continue;
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

// Two sizes beside each other.
struct SizePair {
  const JoinedStudy &small, &large;
  std::size_t small_base, large_base;  // the reference

  double Step() const {
    return std::log(static_cast<double>(large.results.block_parameters) /
                    static_cast<double>(small.results.block_parameters));
  }
  // Whether both were validated on the same chunks of one text.
  bool ShareText() const {
    const auto evaluation = [](const JoinedStudy& study) {
      return study.results.study.value("evaluation", Json::object());
    };
    return small.chunks.chunks > 0 && small.chunks.chunks == large.chunks.chunks &&
           small.results.validation_sha256 == large.results.validation_sha256 &&
           evaluation(small) == evaluation(large) && small.bytes_per_token == large.bytes_per_token;
  }
};

// The size of a model of the reference over that of `arm`, of the losses of both sizes and of drawn
// seeds.
double ReferenceSize(const SizePair& pair, const LossCube& of_small, const LossCube& of_large,
                     std::size_t arm, std::size_t at, const Seeds& small_seeds,
                     const Seeds& large_seeds) {
  LossCurve curve{of_small.log_tokens, {}};
  for (std::size_t k = 0; k < of_small.Budgets(); ++k) {
    curve.losses.push_back(MeanLoss(of_small, pair.small_base, k, small_seeds));
  }
  const double x = std::min(of_large.log_tokens[at], of_small.log_tokens.back());
  const double above = SmoothCurve(curve).Loss(x);
  const double own = MeanLoss(of_large, pair.large_base, at, large_seeds);
  const double loss = MeanLoss(of_large, arm, at, large_seeds);
  return std::exp(-pair.Step() * (loss - own) / (above - own));
}

// The losses of all seeds on drawn blocks of chunks.
LossCube OnText(const JoinedStudy& study, const BootstrapDraw& text) {
  return Resample(study.cube, study.chunks, {AllSeeds(study), text.chunk_counts});
}

// At the budgets of the larger size that the smaller one's curve reaches, where no seed is late.
void AddReferenceSizes(const SizePair& pair, std::uint32_t number_of_pair,
                       const SurfaceQuestion& question, int draws, Json* found) {
  const JoinedStudy &small = pair.small, &large = pair.large;
  struct Place {
    std::size_t at, arm;
    std::vector<double> seeds, text;  // a size a draw
  };
  if (!pair.ShareText()) return;
  std::vector<Place> places;
  const auto count = static_cast<std::size_t>(draws);
  for (std::size_t at = 0; at < large.cube.Budgets(); ++at) {
    const double x = large.cube.log_tokens[at];
    bool late = x < small.cube.log_tokens.front() || x > small.cube.log_tokens.back() + kSameText;
    for (const std::string& arm : {question.reference, question.formats[0], question.formats[1]}) {
      late = late || large.Apart(large.Arm(arm), at);
    }
    if (late) continue;
    for (const std::string& name : question.formats) {
      places.push_back(
          {at, large.Arm(name), std::vector<double>(count), std::vector<double>(count)});
    }
  }
  ParallelFor(count, [&](std::size_t d) {
    // Of each size its own draws: the numbers of draws of two sizes share no number.
    const auto seeds_of = [&](const JoinedStudy& study, std::uint32_t size) {
      const std::uint32_t number = (static_cast<std::uint32_t>(d) * 2 + size) +
                                   number_of_pair * 2 * static_cast<std::uint32_t>(draws);
      return DrawBootstrap(study.cube.seeds, 0, 1, number).seeds;
    };
    const Seeds of_small = seeds_of(small, 0), of_large = seeds_of(large, 1);
    for (Place& place : places) {
      place.seeds[d] =
          ReferenceSize(pair, small.cube, large.cube, place.arm, place.at, of_small, of_large);
    }
    const BootstrapDraw text =
        DrawBootstrap(0, small.chunks.chunks, TextBlockOf(small), static_cast<std::uint32_t>(d));
    const LossCube small_cube = OnText(small, text), large_cube = OnText(large, text);
    for (Place& place : places) {
      place.text[d] =
          ReferenceSize(pair, small_cube, large_cube, place.arm, place.at, of_small, of_large);
    }
  });
  const auto ends = [](const std::vector<double>& drawn) -> Json {
    const Interval interval = PercentileInterval(drawn, kConfidence);
    return {interval.low, interval.high};
  };
  for (const Place& place : places) {
    found->push_back(
        {{"studies", {small.Name(), large.Name()}},
         {"arm", large.results.arms[place.arm]},
         {"tokens", std::min(large.results.budgets[place.at], small.results.budgets.back())},
         {"bytes_per_parameter", large.BytesEach(place.at)},
         {"size", ReferenceSize(pair, small.cube, large.cube, place.arm, place.at, AllSeeds(small),
                                AllSeeds(large))},
         {"interval", ends(place.seeds)},
         {"interval_with_text", ends(place.text)}});
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
  for (const std::string& arm : question.formats) sizes.back().study->Arm(arm);  // throws
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    json["studies"].push_back(sizes[i].study->Name());
    if (i == 0) continue;
    const JoinedStudy &small = *sizes[i - 1].study, &large = *sizes[i].study;
    if (small.results.block_parameters >= large.results.block_parameters) {
      throw Error("sizes", large.Name() + " is not larger than " + small.Name() +
                               "; name the studies by rising size");
    }
    AddSameBytes(sizes[i - 1], sizes[i], question, &json["same_bytes"]);
    if (sizes[i].part == nullptr) continue;
    AddReferenceSizes({small, large, small.Arm(question.reference), large.Arm(question.reference)},
                      static_cast<std::uint32_t>(i - 1), question, draws, &json["reference_size"]);
  }
  return json;
}

}  // namespace fp4lab::study
