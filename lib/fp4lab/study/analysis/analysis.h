// The results of analysing a study: gaps, token ratios with their intervals, and criteria.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/analysis/safe_rate.h"
#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/numbers/token_gap.h"
#include "fp4lab/study/results/loss_cube.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

enum class Estimator { kCrossing, kPowerLaw, kSharedBaseline };
std::string_view EstimatorName(Estimator estimator);  // "crossing", "power_law", ...
std::string_view FormName(Form form);                 // "extend", "shrink"
std::string_view PrecisionName(Precision precision);  // "training", "high"

// Final losses of one arm at one budget, over the seeds that finished.
struct ArmLoss {
  std::string arm;
  std::int64_t tokens = 0;
  Precision precision = Precision::kTraining;
  Summary summary;
  std::size_t diverged = 0;  // runs that count as +infinity and are not in the summary
};

// loss(arm) - loss(reference), seed by seed.
struct LossGap {
  std::string arm, reference;
  std::int64_t tokens = 0;
  Precision precision = Precision::kTraining;
  // In the order of Results::seeds; nullopt: a run of the seed is missing or diverged.
  std::vector<std::optional<double>> per_seed;
  Summary summary;
  std::size_t diverged = 0;
  double relative = 0;                // the mean over the reference's mean loss
  std::optional<Interval> interval;   // Student's t over seeds
  std::optional<Interval> bootstrap;  // over seeds and chunks
};

// The factor by which a token ratio has grown since a smaller budget, from the difference of ln r
// of each seed.
struct Growth {
  std::int64_t from = 0;             // tokens
  double factor = 0;                 // geometric mean over seeds
  std::optional<Interval> interval;  // t over seeds
};

// How many times the reference's tokens the format needs, at one budget.
struct TokenRatio {
  std::string format, reference;
  std::int64_t tokens = 0;  // D*
  Precision precision = Precision::kTraining;
  Estimator estimator = Estimator::kCrossing;
  Form form = Form::kExtend;
  std::vector<LogRatio> per_seed;  // in the order of Results::seeds
  bool identified = false;
  std::string reason;  // why the ratio is not identified, or what limits it
  double ratio = 0;    // the geometric mean over seeds; NaN if not identified
  bool extrapolated = false;
  std::optional<Interval> interval;   // t over ln r, as ratios
  std::optional<Interval> bootstrap;  // as ratios; an end may be infinite (some draws do not cross)
  // Of a crossing: the estimators whose ratio lies outside `interval`, and the budgets that cause
  // it (those without which the ratios agree). Empty: all identified estimators agree. Statements
  // and criteria take a ratio with a disagreement as not identified.
  std::string disagreement;
  // Numbers that every statement of a token ratio needs beside it:
  double tokens_per_parameter = 0;         // D* / N, N = parameters of the blocks
  double loss_difference = 0;              // L_f(D*) - L_R(D*), of the seed means
  double slope = 0;                        // -dL_f / d ln D at D*, of the seed means
  double first_order = 0;                  // exp(loss_difference / slope)
  std::optional<Interval> slope_interval;  // t over seeds
  std::optional<Growth> growth;  // from the smallest budget at which the ratio is identified
};

// The noise floor, measured by a null arm (a twin of the reference).
struct NullFloor {
  std::string arm;
  std::int64_t tokens = 0;
  Summary summary;  // paired differences of the arm to the reference: noise
};

struct CriterionResult {
  enum class Status { kHeld, kFailed, kNotEvaluable };
  std::string name, statement;
  Status status = Status::kNotEvaluable;
  std::string numbers;
  // The published claim that the criterion tests, and its figure or table; empty: none was named.
  std::string claim = {}, source = {};

  // "held", "failed" or "not evaluable"; of a criterion with a source "reproduced", "not
  // reproduced" or "not identified".
  std::string_view Verdict() const;
  std::string Published() const;  // "claim (source)", or as much as was named
};

// Parameters found by the fits of estimators 2 and 3, in one precision.
struct FitNotes {
  Precision precision = Precision::kTraining;
  std::string power_law;               // "needs 4 budgets, has 3", or empty
  std::vector<double> beta, beta_rms;  // one for each seed whose law was fitted
  std::optional<double> gamma, gamma_rms;
};

struct Analysis {
  int draws = 0;           // draws of the bootstrap
  std::size_t chunks = 0;  // chunks of the validation text; 0: only seeds are resampled
  std::size_t block = 1;   // neighbouring chunks that are drawn together
  std::vector<ArmLoss> losses;
  std::vector<LossGap> gaps;
  std::vector<TokenRatio> ratios;
  std::vector<NullFloor> null_floor;
  std::vector<FitNotes> fits;
  std::vector<CriterionResult> criteria;
  std::vector<SafeRate> safe_rates;  // of the view of a sweep in which all arms share a rate

  const ArmLoss* FindLoss(std::string_view arm, std::int64_t tokens, Precision precision) const;
  const LossGap* FindGap(std::string_view arm, std::string_view reference, std::int64_t tokens,
                         Precision precision) const;
  const TokenRatio* FindRatio(std::string_view format, std::string_view reference,
                              std::int64_t tokens, Precision precision, Estimator estimator,
                              Form form) const;
};

struct ArmPair {
  std::string format, reference;
};
// The pairs whose token ratios are computed: the contrast first, then every arm but the null arms
// against the reference.
std::vector<ArmPair> PairsOf(const Results& results);

// The "analysis" member of results.json.
Json ToJson(const Analysis& analysis, const Results& results);

}  // namespace fp4lab::study
