#include "fp4lab/study/analysis.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/study/bootstrap.h"
#include "fp4lab/study/criteria.h"
#include "fp4lab/study/number_text.h"
#include "fp4lab/study/ratio_estimates.h"

namespace fp4lab::study {
namespace {

// The percentile interval of the draws; none where more than 5 percent of them have no value.
std::optional<Interval> IntervalOf(std::vector<double> draws, double confidence) {
  const std::size_t all = draws.size();
  std::erase_if(draws, [](double x) { return std::isnan(x); });
  if (draws.empty() || draws.size() * 20 < all * 19) return std::nullopt;
  return PercentileInterval(draws, confidence);
}

Interval Exponential(const Interval& interval) {
  const auto end = [](double x) { return std::isinf(x) ? x : std::exp(x); };  // open stays open
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

// The mean curve of an arm over the seeds of a pair.
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

// delta L, s and exp(delta L / s): what stands beside every ratio.
void AddContext(const Work& work, const RatioKey& key, const std::vector<bool>& present,
                TokenRatio* ratio) {
  ratio->tokens_per_parameter =
      static_cast<double>(ratio->tokens) / static_cast<double>(work.results.block_parameters);
  const LossCurve format = MeanCurve(work.cube, key.format, present);
  const LossCurve reference = MeanCurve(work.cube, key.reference, present);
  ratio->loss_difference = format.losses[key.budget] - reference.losses[key.budget];
  ratio->slope = ratio->first_order = NAN;
  const bool finite = std::all_of(format.losses.begin(), format.losses.end(),
                                  [](double x) { return std::isfinite(x); });
  if (!finite || format.losses.size() < 2) return;
  ratio->slope = LocalSlope(format, key.budget);
  if (ratio->slope > 0) ratio->first_order = std::exp(ratio->loss_difference / ratio->slope);
}

std::string Seeds(std::size_t count, std::size_t all) {
  return std::to_string(count) + " of " + std::to_string(all) + (all == 1 ? " seed" : " seeds");
}

// Why ln r has no mean. `bound`: the mean with each seed out of reach put at its bound.
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

std::string_view EstimatorName(Estimator estimator) {
  switch (estimator) {
    case Estimator::kCrossing:
      return "crossing";
    case Estimator::kPowerLaw:
      return "power_law";
    case Estimator::kSharedBaseline:
      return "shared_baseline";
  }
  return "";
}

std::string_view FormName(Form form) { return form == Form::kExtend ? "extend" : "shrink"; }

std::string_view PrecisionName(Precision precision) {
  return precision == Precision::kTraining ? "training" : "high";
}

std::vector<ArmPair> PairsOf(const Results& results) {
  const Question& question = results.question;
  std::vector<ArmPair> pairs;
  if (!question.format.empty()) pairs.push_back({question.format, question.format_reference});
  for (const std::string& arm : results.arms) {
    const bool null = std::count(question.null_arms.begin(), question.null_arms.end(), arm) > 0;
    const bool contrast = arm == question.format && question.reference == question.format_reference;
    if (arm != question.reference && !null && !contrast) pairs.push_back({arm, question.reference});
  }
  return pairs;
}

Analysis Analyze(const Results& results, int draws) {
  Analysis analysis;
  analysis.draws = draws;
  for (const Precision precision : {Precision::kTraining, Precision::kHigh}) {
    const Work work = MakeWork(results, precision);
    if (precision == Precision::kHigh && work.cube.Empty()) break;
    if (precision == Precision::kTraining) analysis.chunks = work.chunks.chunks;
    const CubeFits fits = FitCube(work.cube, work.baseline, work.arms, true);
    const BootstrapMeans means = Bootstrap(work, draws);
    AddLosses(work, &analysis);
    AddGaps(work, means, &analysis);
    for (std::size_t i = 0; i < work.keys.size(); ++i) {
      analysis.ratios.push_back(MakeRatio(work, fits, work.keys[i], means.log_ratios[i]));
    }
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

const ArmLoss* Analysis::FindLoss(std::string_view arm, std::int64_t tokens,
                                  Precision precision) const {
  for (const ArmLoss& loss : losses) {
    if (loss.arm == arm && loss.tokens == tokens && loss.precision == precision) return &loss;
  }
  return nullptr;
}

const LossGap* Analysis::FindGap(std::string_view arm, std::string_view reference,
                                 std::int64_t tokens, Precision precision) const {
  for (const LossGap& gap : gaps) {
    if (gap.arm == arm && gap.reference == reference && gap.tokens == tokens &&
        gap.precision == precision) {
      return &gap;
    }
  }
  return nullptr;
}

const TokenRatio* Analysis::FindRatio(std::string_view format, std::string_view reference,
                                      std::int64_t tokens, Precision precision, Estimator estimator,
                                      Form form) const {
  for (const TokenRatio& ratio : ratios) {
    if (ratio.format == format && ratio.reference == reference && ratio.tokens == tokens &&
        ratio.precision == precision && ratio.estimator == estimator && ratio.form == form) {
      return &ratio;
    }
  }
  return nullptr;
}

}  // namespace fp4lab::study
