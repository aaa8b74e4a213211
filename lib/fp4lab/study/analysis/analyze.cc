#include "fp4lab/study/analysis/analyze.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/analysis/bootstrap.h"
#include "fp4lab/study/analysis/criteria.h"
#include "fp4lab/study/analysis/ratio_estimates.h"
#include "fp4lab/study/numbers/number_text.h"

namespace fp4lab::study {
namespace {

// The percentile interval of the draws; nullopt if more than 5 percent of the draws have no value.
std::optional<Interval> IntervalOf(std::vector<double> draws, double confidence) {
  const std::size_t all = draws.size();
  std::erase_if(draws, [](double x) { return std::isnan(x); });
  if (draws.empty() || draws.size() * 20 < all * 19) return std::nullopt;
  return PercentileInterval(draws, confidence);
}

Interval Exponential(const Interval& interval) {
  const auto end = [](double x) { return std::isinf(x) ? x : std::exp(x); };  // infinite ends stay
  return {end(interval.low), end(interval.high)};
}

void AddLosses(const Work& work, Analysis* analysis) {
  for (std::size_t arm = 0; arm < work.results.arms.size(); ++arm) {
    for (std::size_t k = 0; k < work.cube.Budgets(); ++k) {
      ArmLoss loss{work.results.arms[arm], work.results.budgets[k], work.precision, {}, 0};
      std::vector<double> values;
      for (std::size_t s = 0; s < work.cube.seeds; ++s) {
        const double value = work.cube.At(s, arm, k);
        if (std::isinf(value)) ++loss.diverged;
        if (std::isfinite(value)) values.push_back(value);
      }
      loss.summary = Summarize(values);
      analysis->losses.push_back(std::move(loss));
    }
  }
}

void AddGaps(const Work& work, const BootstrapMeans& means, Analysis* analysis) {
  const double confidence = work.results.question.confidence;
  const std::size_t budgets = work.cube.Budgets();
  for (std::size_t p = 0; p < work.gap_pairs.size(); ++p) {
    const auto& [format, reference] = work.gap_pairs[p];
    const std::size_t a = IndexOf(work.results.arms, format);
    const std::size_t b = IndexOf(work.results.arms, reference);
    for (std::size_t k = 0; k < budgets; ++k) {
      LossGap gap{format, reference, work.results.budgets[k], work.precision, {}, {}, 0, 0, {}, {}};
      std::vector<double> values;
      double reference_sum = 0;
      for (std::size_t s = 0; s < work.cube.seeds; ++s) {
        const double x = work.cube.At(s, a, k), y = work.cube.At(s, b, k);
        gap.diverged += std::isinf(x) || std::isinf(y);
        gap.per_seed.emplace_back();
        if (!std::isfinite(x) || !std::isfinite(y)) continue;
        gap.per_seed.back() = x - y;
        values.push_back(x - y);
        reference_sum += y;
      }
      gap.summary = Summarize(values);
      gap.relative = gap.summary.mean * static_cast<double>(values.size()) / reference_sum;
      gap.interval = StudentInterval(gap.summary, confidence);
      if (gap.diverged == 0) {
        gap.bootstrap = IntervalOf(means.gaps[p * budgets + k], confidence);
      }
      analysis->gaps.push_back(std::move(gap));
    }
  }
}

// The mean curve of an arm over the seeds in `present`.
LossCurve MeanCurve(const LossCube& cube, std::size_t arm, const std::vector<bool>& present) {
  LossCurve mean{cube.log_tokens, std::vector<double>(cube.Budgets(), 0)};
  const auto count = static_cast<double>(std::count(present.begin(), present.end(), true));
  for (std::size_t s = 0; s < cube.seeds; ++s) {
    for (std::size_t k = 0; present[s] && k < cube.Budgets(); ++k) {
      mean.losses[k] += cube.At(s, arm, k) / count;
    }
  }
  return mean;
}

// Adds the numbers that are reported beside every ratio: delta L, s and exp(delta L / s).
void AddContext(const Work& work, const RatioKey& key, const std::vector<bool>& present,
                TokenRatio* ratio) {
  ratio->tokens_per_parameter =
      static_cast<double>(ratio->tokens) / static_cast<double>(work.results.block_parameters);
  const LossCurve format = MeanCurve(work.cube, key.format, present);
  const LossCurve reference = MeanCurve(work.cube, key.reference, present);
  ratio->loss_difference = format.losses[key.budget] - reference.losses[key.budget];
  ratio->slope = ratio->first_order = NAN;
  if (!format.Usable()) return;
  ratio->slope = SmoothCurve(format).Steepness(key.budget);
  std::vector<double> slopes;
  for (std::size_t s = 0; s < present.size(); ++s) {
    if (!present[s]) continue;
    slopes.push_back(SmoothCurve(work.cube.Curve(s, key.format)).Steepness(key.budget));
  }
  ratio->slope_interval = StudentInterval(Summarize(slopes), work.results.question.confidence);
  if (ratio->slope > 0) ratio->first_order = std::exp(ratio->loss_difference / ratio->slope);
}

std::string Seeds(std::size_t count, std::size_t all) {
  return std::to_string(count) + " of " + std::to_string(all) + (all == 1 ? " seed" : " seeds");
}

// The reason why ln r has no finite mean over seeds. If seeds are out of reach on one side, the
// text has a bound: the mean with each of these seeds at its own bound.
std::string WhyNot(const Work& work, const CubeFits& fits, const RatioKey& key,
                   const std::vector<LogRatio>& ratios, const std::vector<bool>& present) {
  const auto all = static_cast<std::size_t>(std::count(present.begin(), present.end(), true));
  if (all == 0) return "no seed has both arms";
  if (key.estimator == Estimator::kPowerLaw) {
    for (const PowerLawFit& fit : fits.power_laws) {
      if (!fit.law) return fit.reason;
    }
  }
  std::size_t above = 0, below = 0, diverged = 0;
  double bound = 0;
  for (std::size_t s = 0; s < ratios.size(); ++s) {
    if (!present[s]) continue;
    above += ratios[s].status == LogRatio::Status::kAbove;
    below += ratios[s].status == LogRatio::Status::kBelow;
    diverged += ratios[s].status == LogRatio::Status::kUndefined;
    bound += ratios[s].value / static_cast<double>(all);
  }
  if (diverged > 0) {
    return work.cube.Budgets() < 2 ? "needs 2 budgets" : Seeds(diverged, all) + " diverged";
  }
  if (above > 0 && below > 0) return Seeds(above + below, all) + " out of reach, on both sides";
  return std::string(above > 0 ? "> " : "< ") + Fixed(std::exp(bound), 2) + ": " +
         Seeds(above + below, all) + " out of reach";
}

TokenRatio MakeRatio(const Work& work, const CubeFits& fits, const RatioKey& key,
                     const std::vector<double>& draws) {
  const double confidence = work.results.question.confidence;
  TokenRatio ratio;
  ratio.format = work.results.arms[key.format];
  ratio.reference = work.results.arms[key.reference];
  ratio.tokens = work.results.budgets[key.budget];
  ratio.precision = work.precision;
  ratio.estimator = key.estimator;
  ratio.form = key.form;
  ratio.per_seed = RatiosPerSeed(work.cube, fits, key);
  const std::vector<bool> present = work.Present(key.format, key.reference);
  AddContext(work, key, present, &ratio);
  std::vector<double> values;
  for (std::size_t s = 0; s < ratio.per_seed.size(); ++s) {
    if (!present[s]) continue;
    values.push_back(ratio.per_seed[s].value);
    ratio.extrapolated = ratio.extrapolated || ratio.per_seed[s].extrapolated;
  }
  ratio.identified = std::isfinite(MeanLogRatio(ratio.per_seed, present));
  if (!ratio.identified) {
    ratio.ratio = NAN;
    ratio.extrapolated = false;
    ratio.reason = WhyNot(work, fits, key, ratio.per_seed, present);
    return ratio;
  }
  const Summary summary = Summarize(values);
  ratio.ratio = std::exp(summary.mean);
  if (const auto interval = StudentInterval(summary, confidence)) {
    ratio.interval = Exponential(*interval);
  } else {
    ratio.reason = "no t interval from " + std::to_string(values.size()) +
                   (values.size() == 1 ? " seed" : " seeds");
  }
  if (key.estimator != Estimator::kPowerLaw) {
    if (const auto interval = IntervalOf(draws, confidence)) {
      ratio.bootstrap = Exponential(*interval);
    }
  }
  return ratio;
}

// Fills in the growth of every identified ratio since the smallest budget at which the ratio of the
// same pair, estimator and form is identified. `ratios` are of one precision, budgets ascending.
void AddGrowth(double confidence, std::span<TokenRatio> ratios) {
  for (TokenRatio& ratio : ratios) {
    if (!ratio.identified) continue;
    const auto start = std::find_if(ratios.begin(), ratios.end(), [&](const TokenRatio& other) {
      return other.identified && other.format == ratio.format &&
             other.reference == ratio.reference && other.estimator == ratio.estimator &&
             other.form == ratio.form;
    });
    if (start->tokens == ratio.tokens) continue;
    std::vector<double> differences;
    for (std::size_t s = 0; s < ratio.per_seed.size(); ++s) {
      if (ratio.per_seed[s].status != LogRatio::Status::kIdentified) continue;
      differences.push_back(ratio.per_seed[s].value - start->per_seed[s].value);
    }
    const Summary summary = Summarize(differences);
    ratio.growth = {start->tokens, std::exp(summary.mean), std::nullopt};
    if (const auto interval = StudentInterval(summary, confidence)) {
      ratio.growth->interval = Exponential(*interval);
    }
  }
}

LossCube Without(const LossCube& cube, std::size_t budget) {
  LossCube rest{cube.seeds, cube.arms, cube.log_tokens, {}};
  rest.log_tokens.erase(rest.log_tokens.begin() + static_cast<std::ptrdiff_t>(budget));
  for (std::size_t s = 0; s < cube.seeds; ++s) {
    for (std::size_t arm = 0; arm < cube.arms; ++arm) {
      for (std::size_t k = 0; k < cube.Budgets(); ++k) {
        if (k != budget) rest.losses.push_back(cube.At(s, arm, k));
      }
    }
  }
  return rest;
}

// Whether, in `cube`, the estimator's mean ratio lies in the t interval of the crossing `key`;
// false if either is not identified.
bool Agrees(const Work& work, const LossCube& cube, const CubeFits& fits, RatioKey key,
            Estimator estimator) {
  const std::vector<bool> present = work.Present(key.format, key.reference);
  const std::vector<LogRatio> crossing = RatiosPerSeed(cube, fits, key);
  key.estimator = estimator;
  const double other = MeanLogRatio(RatiosPerSeed(cube, fits, key), present);
  if (!std::isfinite(MeanLogRatio(crossing, present)) || !std::isfinite(other)) return false;
  std::vector<double> values;
  for (std::size_t s = 0; s < crossing.size(); ++s) {
    if (present[s]) values.push_back(crossing[s].value);
  }
  const auto interval = StudentInterval(Summarize(values), work.results.question.confidence);
  return interval && interval->Contains(other);
}

// The budgets without any one of which the two estimators agree at the key's budget.
std::vector<std::string> BudgetsThatPart(const Work& work, const RatioKey& key,
                                         Estimator estimator) {
  std::vector<std::string> causes;
  for (std::size_t k = 0; k < work.cube.Budgets(); ++k) {
    if (k == key.budget || work.cube.Budgets() <= 2) continue;
    const LossCube rest = Without(work.cube, k);
    RatioKey moved = key;
    moved.budget -= k < key.budget ? 1 : 0;
    const CubeFits fits =
        FitCube(rest, work.baseline, work.arms, estimator == Estimator::kPowerLaw);
    if (!Agrees(work, rest, fits, moved, estimator)) continue;
    causes.push_back(TokensText(static_cast<double>(work.results.budgets[k])));
  }
  return causes;
}

// Compares the other estimators with every crossing that has a t interval. `ratios` are those of
// Work::keys, in their order, and part of the analysis.
void MarkDisagreements(const Work& work, std::span<TokenRatio> ratios, const Analysis& analysis) {
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    TokenRatio& crossing = ratios[i];
    if (crossing.estimator != Estimator::kCrossing || !crossing.interval) continue;
    for (const Estimator estimator : {Estimator::kPowerLaw, Estimator::kSharedBaseline}) {
      const TokenRatio* other =
          analysis.FindRatio(crossing.format, crossing.reference, crossing.tokens, work.precision,
                             estimator, crossing.form);
      if (other == nullptr || !other->identified || crossing.interval->Contains(other->ratio)) {
        continue;
      }
      const std::vector<std::string> causes = BudgetsThatPart(work, work.keys[i], estimator);
      crossing.disagreement +=
          (crossing.disagreement.empty() ? "" : "; ") + std::string(EstimatorName(estimator)) +
          " reads " + Fixed(other->ratio, 2) +
          (causes.empty() ? ", with any single budget left out too"
                          : "; they agree without the budget " + Joined(causes, " or "));
    }
  }
}

void AddNotes(const Work& work, const CubeFits& fits, Analysis* analysis) {
  FitNotes notes{work.precision, "", {}, {}, {}, {}};
  for (const PowerLawFit& fit : fits.power_laws) {
    if (!fit.law) {
      notes.power_law = fit.reason;
      continue;
    }
    notes.beta.push_back(fit.law->beta);
    notes.beta_rms.push_back(fit.law->rms);
  }
  if (fits.shared) {
    notes.gamma = fits.shared->gamma;
    notes.gamma_rms = fits.shared->rms;
  }
  analysis->fits.push_back(std::move(notes));
}

}  // namespace

Analysis Analyze(const Results& results, int draws) {
  const IeeeArithmetic ieee;
  Analysis analysis;
  analysis.draws = draws;
  for (const Precision precision : {Precision::kTraining, Precision::kHigh}) {
    const Work work = MakeWork(results, precision);
    if (precision == Precision::kHigh && work.cube.Empty()) break;
    if (precision == Precision::kTraining) {
      analysis.chunks = work.chunks.chunks;
      analysis.block = work.chunks.block;
    }
    const CubeFits fits = FitCube(work.cube, work.baseline, work.arms, true);
    const BootstrapMeans means = Bootstrap(work, draws);
    AddLosses(work, &analysis);
    AddGaps(work, means, &analysis);
    for (std::size_t i = 0; i < work.keys.size(); ++i) {
      analysis.ratios.push_back(MakeRatio(work, fits, work.keys[i], means.log_ratios[i]));
    }
    const std::span<TokenRatio> ratios = std::span(analysis.ratios).last(work.keys.size());
    AddGrowth(results.question.confidence, ratios);
    MarkDisagreements(work, ratios, analysis);
    AddNotes(work, fits, &analysis);
  }
  for (const std::string& arm : results.question.null_arms) {
    for (const std::int64_t tokens : results.budgets) {
      const LossGap* gap =
          analysis.FindGap(arm, results.question.reference, tokens, Precision::kTraining);
      if (gap != nullptr) analysis.null_floor.push_back({arm, tokens, gap->summary});
    }
  }
  analysis.criteria = EvaluateCriteria(results, analysis);
  return analysis;
}

}  // namespace fp4lab::study
