// The "analysis" member of results.json.
#include <cmath>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/analysis/analysis.h"

namespace fp4lab::study {
namespace {

Json Finite(double x) { return std::isfinite(x) ? Json(x) : Json(); }

Json ToJson(const std::optional<Interval>& interval) {
  if (!interval) return nullptr;
  return {Finite(interval->low), Finite(interval->high)};
}

Json ToJson(const Summary& summary) {
  return {{"count", summary.count},
          {"mean", summary.count > 0 ? Finite(summary.mean) : Json()},
          {"sd", summary.count > 1 ? Finite(summary.deviation) : Json()}};
}

Json ToJson(const ArmLoss& loss) {
  Json json = ToJson(loss.summary);
  json["arm"] = loss.arm;
  json["tokens"] = loss.tokens;
  json["precision"] = PrecisionName(loss.precision);
  json["diverged"] = loss.diverged;
  return json;
}

Json ToJson(const LossGap& gap) {
  Json json = ToJson(gap.summary), per_seed = Json::array();
  for (const auto& value : gap.per_seed) per_seed.push_back(value ? Finite(*value) : Json());
  json["arm"] = gap.arm;
  json["reference"] = gap.reference;
  json["tokens"] = gap.tokens;
  json["precision"] = PrecisionName(gap.precision);
  json["per_seed"] = std::move(per_seed);
  json["diverged"] = gap.diverged;
  json["relative"] = Finite(gap.relative);
  json["interval_t"] = ToJson(gap.interval);
  json["interval_bootstrap"] = ToJson(gap.bootstrap);
  return json;
}

const char* StatusText(LogRatio::Status status) {
  switch (status) {
    case LogRatio::Status::kIdentified:
      return "identified";
    case LogRatio::Status::kAbove:
      return "above";
    case LogRatio::Status::kBelow:
      return "below";
    case LogRatio::Status::kUndefined:
      return "undefined";
  }
  return "";
}

Json ToJson(const LogRatio& r) {
  const bool number = r.status != LogRatio::Status::kUndefined;
  return {{"status", StatusText(r.status)},
          {"ratio", number ? Finite(std::exp(r.value)) : Json()},
          {"extrapolated", r.extrapolated}};
}

Json ToJson(const std::optional<Growth>& growth) {
  if (!growth) return nullptr;
  return {{"from", growth->from},
          {"factor", Finite(growth->factor)},
          {"interval_t", ToJson(growth->interval)}};
}

Json ToJson(const TokenRatio& r) {
  Json per_seed = Json::array();
  for (const LogRatio& ratio : r.per_seed) per_seed.push_back(ToJson(ratio));
  return {{"format", r.format},
          {"reference", r.reference},
          {"tokens", r.tokens},
          {"precision", PrecisionName(r.precision)},
          {"estimator", EstimatorName(r.estimator)},
          {"form", FormName(r.form)},
          {"per_seed", std::move(per_seed)},
          {"identified", r.identified},
          {"note", r.reason},
          {"ratio", Finite(r.ratio)},
          {"extrapolated", r.extrapolated},
          {"disagreement", r.disagreement.empty() ? Json() : Json(r.disagreement)},
          {"interval_t", ToJson(r.interval)},
          {"interval_bootstrap", ToJson(r.bootstrap)},
          {"tokens_per_parameter", Finite(r.tokens_per_parameter)},
          {"loss_difference", Finite(r.loss_difference)},
          {"slope", Finite(r.slope)},
          {"slope_interval_t", ToJson(r.slope_interval)},
          {"growth", ToJson(r.growth)},
          {"first_order", Finite(r.first_order)}};
}

Json ToJson(const FitNotes& notes) {
  const auto number = [](const std::optional<double>& x) { return x ? Finite(*x) : Json(); };
  return {
      {"precision", PrecisionName(notes.precision)},
      {"power_law", {{"reason", notes.power_law}, {"beta", notes.beta}, {"rms", notes.beta_rms}}},
      {"shared_baseline", {{"gamma", number(notes.gamma)}, {"rms", number(notes.gamma_rms)}}}};
}

Json ToJson(const NullFloor& floor) {
  Json json = ToJson(floor.summary);
  json["arm"] = floor.arm;
  json["tokens"] = floor.tokens;
  return json;
}

Json ToJson(const CriterionResult& criterion) {
  Json json = {{"kind", criterion.name},
               {"statement", criterion.statement},
               {"status", criterion.Verdict()},
               {"numbers", criterion.numbers}};
  if (!criterion.claim.empty()) json["claim"] = criterion.claim;
  if (!criterion.source.empty()) json["source"] = criterion.source;
  return json;
}

template <class T>
Json ToArray(const std::vector<T>& values) {
  Json array = Json::array();
  for (const T& value : values) array.push_back(ToJson(value));
  return array;
}

}  // namespace

std::string_view CriterionResult::Verdict() const {
  const IeeeArithmetic ieee;
  switch (status) {
    case Status::kHeld:
      return source.empty() ? "held" : "reproduced";
    case Status::kFailed:
      return source.empty() ? "failed" : "not reproduced";
    case Status::kNotEvaluable:
      return source.empty() ? "not evaluable" : "not identified";
  }
  return "";
}

std::string CriterionResult::Published() const {
  const IeeeArithmetic ieee;
  return claim.empty() ? source : claim + " (" + source + ")";
}

Json ToJson(const Analysis& analysis, const Results& results) {
  const IeeeArithmetic ieee;
  Json diverged = Json::array();
  for (const RunResult& run : results.runs) {
    if (!run.diverged) continue;
    diverged.push_back({{"arm", run.arm},
                        {"seed", run.seed},
                        {"step", run.diverged_step},
                        {"tensor", run.diverged_tensor}});
  }
  Json json = {
      {"bootstrap",
       {{"draws", analysis.draws}, {"chunks", analysis.chunks}, {"block", analysis.block}}},
      {"confidence", results.question.confidence},
      {"block_parameters", results.block_parameters},
      {"seeds", results.seeds},
      {"budgets", results.budgets},
      {"diverged", std::move(diverged)},
      {"losses", ToArray(analysis.losses)},
      {"gaps", ToArray(analysis.gaps)},
      {"token_ratios", ToArray(analysis.ratios)},
      {"null_floor", ToArray(analysis.null_floor)},
      {"fits", ToArray(analysis.fits)},
      {"criteria", ToArray(analysis.criteria)}};
  if (!analysis.safe_rates.empty()) json["safe_rates"] = ToJson(analysis.safe_rates);
  return json;
}

}  // namespace fp4lab::study
