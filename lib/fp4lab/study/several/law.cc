#include "fp4lab/study/several/law.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/several/gap_law.h"

namespace fp4lab::study {
namespace {

using Seeds = std::vector<std::size_t>;

// A study of the fit: seeds x budgets behind the fall.
struct FittedStudy {
  const JoinedStudy* study;
  double parameters;
  std::vector<double> bytes_each;                        // of these budgets
  std::array<std::vector<std::vector<double>>, 2> gaps;  // [format][budget][seed]
  std::vector<std::vector<double>> losses;               // of the reference: [budget][seed]
};

FittedStudy Behind(const JoinedStudy& study, const LawFile& file) {
  const std::size_t reference = study.Arm(file.reference);
  const std::array<std::size_t, 2> formats = {study.Arm(file.formats[0]),
                                              study.Arm(file.formats[1])};
  std::size_t first = 0;
  for (std::size_t k = 0; k < study.cube.Budgets(); ++k) {
    if (study.Apart(reference, k) || study.Apart(formats[0], k) || study.Apart(formats[1], k)) {
      first = k + 1;
    }
  }
  FittedStudy fitted{&study, static_cast<double>(study.results.block_parameters), {}, {}, {}};
  for (std::size_t k = first; k < study.cube.Budgets(); ++k) {
    fitted.bytes_each.push_back(study.BytesEach(k));
    fitted.losses.push_back(study.LossesAt(reference, k));
    for (std::size_t f = 0; f < 2; ++f) {
      fitted.gaps[f].push_back(study.GapsAt(formats[f], reference, k));
    }
  }
  return fitted;
}

double MeanOf(const std::vector<double>& values, const Seeds& seeds) {
  double sum = 0;
  for (const std::size_t s : seeds) sum += values[s];
  return sum / static_cast<double>(seeds.size());
}

// `seeds`: those of each study.
std::optional<GapLaw> FitGaps(const std::vector<FittedStudy>& studies, std::size_t format,
                              const std::vector<Seeds>& seeds) {
  std::vector<GapPoint> points;
  for (std::size_t i = 0; i < studies.size(); ++i) {
    for (std::size_t k = 0; k < studies[i].bytes_each.size(); ++k) {
      points.push_back({studies[i].parameters, studies[i].bytes_each[k],
                        MeanOf(studies[i].gaps[format][k], seeds[i])});
    }
  }
  return FitGapLaw(points);
}

LossLaw FitLoss(const std::vector<FittedStudy>& studies, const std::vector<Seeds>& seeds) {
  std::vector<LossPoint> points;
  for (std::size_t i = 0; i < studies.size(); ++i) {
    const FittedStudy& study = studies[i];
    for (std::size_t k = 0; k < study.bytes_each.size(); ++k) {
      points.push_back({study.parameters, study.bytes_each[k] * study.parameters,
                        MeanOf(study.losses[k], seeds[i])});
    }
  }
  return FitLossLaw(points);
}

// Of each seed of each study, its gap over the law's, less 1: the mean over budgets.
std::vector<double> SeedEffects(const std::vector<FittedStudy>& studies, std::size_t format,
                                const GapLaw& law) {
  std::vector<double> effects;
  for (const FittedStudy& study : studies) {
    const std::size_t budgets = study.bytes_each.size();
    for (std::size_t s = 0; budgets > 0 && s < study.study->cube.seeds; ++s) {
      double sum = 0;
      for (std::size_t k = 0; k < budgets; ++k) {
        sum += study.gaps[format][k][s] / law.At(study.parameters, study.bytes_each[k]);
      }
      effects.push_back(sum / static_cast<double>(budgets) - 1);
    }
  }
  return effects;
}

struct Fits {
  std::array<GapLaw, 2> laws;
  std::array<std::vector<std::optional<GapLaw>>, 2> drawn;  // a draw each
  std::array<std::vector<double>, 2> noise;  // what kNewSeeds new seeds multiply the gap by
  std::optional<LossLaw> loss;
  std::vector<LossLaw> drawn_losses;
};

Fits FitAll(const std::vector<FittedStudy>& studies, bool with_loss, std::size_t draws) {
  std::vector<Seeds> all;
  for (const FittedStudy& study : studies) {
    all.emplace_back(study.study->cube.seeds);
    std::iota(all.back().begin(), all.back().end(), std::size_t{0});
  }
  Fits fits;
  std::size_t effects_count = 0;
  std::array<std::vector<double>, 2> effects;
  for (std::size_t f = 0; f < 2; ++f) {
    const std::optional<GapLaw> law = FitGaps(studies, f, all);
    if (!law) {
      throw Error("law",
                  "a mean gap behind the fall is not above 0; leave out the study whose "
                  "format does not lose to the reference");
    }
    fits.laws[f] = *law;
    effects[f] = SeedEffects(studies, f, *law);
    effects_count = effects[f].size();
    fits.drawn[f].resize(draws);
    fits.noise[f].resize(draws);
  }
  if (with_loss) {
    fits.loss = FitLoss(studies, all);
    fits.drawn_losses.resize(draws);
  }
  const auto count = static_cast<std::uint32_t>(studies.size() + 1);
  ParallelFor(draws, [&](std::size_t d) {
    // Numbers of draws that no two studies share; the last one of the new seeds, which are pairs
    // for both formats.
    const auto number = [&](std::size_t i) {
      return static_cast<std::uint32_t>(d) * count + static_cast<std::uint32_t>(i);
    };
    std::vector<Seeds> seeds;
    for (std::size_t i = 0; i < studies.size(); ++i) {
      seeds.push_back(DrawBootstrap(all[i].size(), 0, 1, number(i)).seeds);
    }
    Seeds fresh =
        DrawBootstrap(std::max(effects_count, kNewSeeds), 0, 1, number(studies.size())).seeds;
    fresh.resize(kNewSeeds);
    for (std::size_t& seed : fresh) seed %= effects_count;
    for (std::size_t f = 0; f < 2; ++f) {
      fits.drawn[f][d] = FitGaps(studies, f, seeds);
      fits.noise[f][d] = 1 + MeanOf(effects[f], fresh);
    }
    if (with_loss) fits.drawn_losses[d] = FitLoss(studies, seeds);
  });
  return fits;
}

Json Quantiles(const std::vector<double>& values) {
  const Interval interval = PercentileInterval(values, kConfidence);
  return {interval.low, interval.high};
}

Json GapRecord(const Fits& fits, std::size_t f, double size, const std::vector<double>& places) {
  std::vector<double> a, b;
  for (const std::optional<GapLaw>& law : fits.drawn[f]) {
    if (!law) continue;
    a.push_back(law->a);
    b.push_back(law->b);
  }
  if (a.empty()) throw Error("law", "in no draw of seeds are all mean gaps above 0");
  Json predictions = Json::array();
  for (const double place : places) {
    std::vector<double> of_law, with_seeds;
    for (std::size_t d = 0; d < fits.drawn[f].size(); ++d) {
      if (!fits.drawn[f][d]) continue;
      of_law.push_back(fits.drawn[f][d]->At(size, place));
      with_seeds.push_back(of_law.back() * fits.noise[f][d]);
    }
    predictions.push_back({{"bytes_per_parameter", place},
                           {"gap", fits.laws[f].At(size, place)},
                           {"interval", Quantiles(of_law)},
                           {"interval_three_seeds", Quantiles(with_seeds)}});
  }
  return {{"ln_c", fits.laws[f].ln_c}, {"a", fits.laws[f].a},        {"a_interval", Quantiles(a)},
          {"b", fits.laws[f].b},       {"b_interval", Quantiles(b)}, {"predictions", predictions}};
}

Json LossRecord(const Fits& fits, double size, const std::vector<double>& places) {
  Json record;
  const auto add = [&](const char* name, double LossLaw::*member) {
    std::vector<double> drawn;
    for (const LossLaw& law : fits.drawn_losses) drawn.push_back(law.*member);
    record[name] = *fits.loss.*member;
    record[std::string(name) + "_interval"] = Quantiles(drawn);
  };
  add("E", &LossLaw::e);
  add("ln_A", &LossLaw::ln_a);
  add("alpha", &LossLaw::alpha);
  add("ln_B", &LossLaw::ln_b);
  add("beta", &LossLaw::beta);
  record["predictions"] = Json::array();
  for (const double place : places) {
    std::vector<double> drawn;
    for (const LossLaw& law : fits.drawn_losses) drawn.push_back(law.At(size, place * size));
    record["predictions"].push_back({{"bytes_per_parameter", place},
                                     {"loss", fits.loss->At(size, place * size)},
                                     {"interval", Quantiles(drawn)}});
  }
  return record;
}

Json RatioRecord(const Fits& fits, double size, double place, const LawFile& file) {
  const auto ratio = [&](const LossLaw& loss, const std::array<GapLaw, 2>& laws,
                         const std::array<double, 2>& effects) {
    const std::optional<double> log = LogRatioOfLaws(loss, laws, size, place, effects);
    if (!log) {
      throw Error("places", SignificantText(place) + ": by some of the drawn laws " +
                                file.formats[1] + " does not reach the loss of " + file.formats[0] +
                                " there with 20 times its tokens; leave that place out");
    }
    return std::exp(*log);
  };
  std::vector<double> without, with_seeds;
  for (std::size_t d = 0; d < fits.drawn_losses.size(); ++d) {
    if (!fits.drawn[0][d] || !fits.drawn[1][d]) continue;
    const std::array<GapLaw, 2> laws = {*fits.drawn[0][d], *fits.drawn[1][d]};
    without.push_back(ratio(fits.drawn_losses[d], laws, {1.0, 1.0}));
    with_seeds.push_back(ratio(fits.drawn_losses[d], laws, {fits.noise[0][d], fits.noise[1][d]}));
  }
  return {{"bytes_per_parameter", place},
          {"ratio", ratio(*fits.loss, fits.laws, {1.0, 1.0})},
          {"interval", Quantiles(without)},
          {"interval_three_seeds", Quantiles(with_seeds)}};
}

}  // namespace

LawFile ReadLawFile(const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
  const Json json = ReadJsonFile(path);
  JsonObject o(json, path.string());
  LawFile file;
  std::vector<std::string> formats;
  file.studies = ReadStudyList(o, "studies", path.parent_path());
  o.Require("reference", &file.reference);
  o.Require("formats", &formats);
  o.Require("predict", &file.predict);
  o.Require("places", &file.places);
  o.Finish();
  if (formats.size() != 2 || formats[0] == formats[1]) {
    throw Error(o.Where("formats"), "must be two arms, the one at the lower loss first");
  }
  file.formats = {formats[0], formats[1]};
  if (file.predict <= 0) throw Error(o.Where("predict"), "must be a number of block parameters");
  if (file.places.empty() || std::any_of(file.places.begin(), file.places.end(),
                                         [](double p) { return !(p > 0 && std::isfinite(p)); })) {
    throw Error(o.Where("places"), "must be bytes per parameter, one place at least");
  }
  return file;
}

Json LawDocument(const LawFile& file, int draws) {
  const IeeeArithmetic ieee;
  std::vector<JoinedStudy> studies;
  for (const StudyFiles& files : file.studies) {
    studies.push_back(ReadJoinedStudy(files, file.reference, ""));
  }
  std::stable_sort(studies.begin(), studies.end(), [](const JoinedStudy& a, const JoinedStudy& b) {
    return a.results.block_parameters < b.results.block_parameters;
  });
  std::vector<FittedStudy> fitted;
  std::set<double> sizes;
  Json sources = Json::array();
  for (const JoinedStudy& study : studies) {
    fitted.push_back(Behind(study, file));
    if (!fitted.back().bytes_each.empty()) sizes.insert(fitted.back().parameters);
    Json source = SourceOf(study.files[0]);
    source["bytes_per_parameter"] = fitted.back().bytes_each;
    source["joined"] = JoinedSources(study);
    sources.push_back(std::move(source));
  }
  if (sizes.size() < 2) {
    throw Error("studies", "a law over sizes needs two sizes with budgets behind the fall");
  }
  const Fits fits = FitAll(fitted, sizes.size() > 2, static_cast<std::size_t>(draws));
  const auto size = static_cast<double>(file.predict);
  Json document = {
      {"studies", std::move(sources)}, {"predicted_parameters", file.predict}, {"draws", draws}};
  for (std::size_t f = 0; f < 2; ++f) {
    document["arms"][file.formats[f]] = GapRecord(fits, f, size, file.places);
  }
  if (fits.loss) {
    document["loss"] = LossRecord(fits, size, file.places);
    document["token_ratios"] = Json::array();
    for (const double place : file.places) {
      document["token_ratios"].push_back(RatioRecord(fits, size, place, file));
    }
  }
  return document;
}

}  // namespace fp4lab::study
