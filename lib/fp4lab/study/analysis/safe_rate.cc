#include "fp4lab/study/analysis/safe_rate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/results/arm_name.h"
#include "fp4lab/study/results/sweep.h"

namespace fp4lab::study {
namespace {

// Losses at the primary budget: [rate][seed]; infinite where a run is missing or diverged.
using Losses = std::vector<std::vector<double>>;

double LossOf(const Results& results, const std::string& arm, std::uint64_t seed) {
  const RunResult* run = results.Find(arm, seed);
  if (run == nullptr) return INFINITY;
  for (const AnnealedPoint& point : run->points) {
    if (point.tokens != results.question.primary_tokens) continue;
    return std::isfinite(point.loss) ? point.loss : INFINITY;
  }
  return INFINITY;
}

Losses LossesOf(const Results& results, const std::string& arm) {
  Losses losses;
  for (const double rate : results.rates) {
    std::vector<double> at_rate;
    for (const std::uint64_t seed : results.seeds) {
      at_rate.push_back(LossOf(results, ArmAtRate(arm, rate), seed));
    }
    losses.push_back(std::move(at_rate));
  }
  return losses;
}

std::size_t BestOf(const Losses& losses) {
  std::vector<double> means;
  for (const std::vector<double>& at_rate : losses) means.push_back(Summarize(at_rate).mean);
  // A mean with an infinite loss is infinite or NaN, which must not be the least.
  for (double& mean : means) mean = std::isfinite(mean) ? mean : INFINITY;
  return static_cast<std::size_t>(std::min_element(means.begin(), means.end()) - means.begin());
}

// The rate above rates[best] at which a seed's excess reaches the margin.
std::optional<double> LimitOf(const std::vector<double>& rates, const Losses& losses,
                              std::size_t best, std::size_t seed) {
  double before = 0;
  for (std::size_t k = best + 1; k < rates.size(); ++k) {
    const double excess = losses[k][seed] - losses[best][seed];
    if (!(excess <= kSafeRateMargin)) {
      const double share =
          std::isfinite(excess) ? (kSafeRateMargin - before) / (excess - before) : 0.5;
      return rates[k - 1] * std::pow(rates[k] / rates[k - 1], share);
    }
    before = excess;
  }
  return std::nullopt;
}

SafeRate SafeRateOf(const Results& results, const std::string& arm) {
  const Losses losses = LossesOf(results, arm);
  const std::size_t best = BestOf(losses);
  SafeRate rate{arm, results.rates[best], 0, {}, {}, {}};
  const bool learns = std::all_of(losses[best].begin(), losses[best].end(),
                                  [](double loss) { return std::isfinite(loss); });
  rate.limits.resize(results.seeds.size());
  if (!learns) return rate;
  for (std::size_t s = 0; s < rate.limits.size(); ++s) {
    rate.limits[s] = LimitOf(results.rates, losses, best, s);
  }
  for (const double candidate : results.rates) {
    const bool safe = std::all_of(rate.limits.begin(), rate.limits.end(),
                                  [&](const auto& limit) { return !limit || candidate < *limit; });
    if (safe) rate.largest = candidate;
  }
  return rate;
}

void Compare(const SafeRate& reference, double confidence, SafeRate* rate) {
  std::vector<double> logs;
  for (std::size_t s = 0; s < rate->limits.size(); ++s) {
    if (!rate->limits[s] || !reference.limits[s]) return;
    logs.push_back(std::log(*rate->limits[s] / *reference.limits[s]));
  }
  if (logs.size() < kLeastSeeds) return;
  const Summary summary = Summarize(logs);
  rate->relative = std::exp(summary.mean);
  if (const auto interval = StudentInterval(summary, confidence)) {
    rate->interval = Interval{std::exp(interval->low), std::exp(interval->high)};
  }
}

Json OrNull(const std::optional<double>& x) { return x ? Json(*x) : Json(); }

}  // namespace

std::vector<SafeRate> SafeRates(const Results& results) {
  const IeeeArithmetic ieee;
  std::vector<SafeRate> rates;
  if (results.rates.empty()) return rates;
  for (const std::string& arm : FileArms(results)) rates.push_back(SafeRateOf(results, arm));
  const auto reference = std::find_if(rates.begin(), rates.end(), [&](const SafeRate& rate) {
    return rate.arm == results.question.reference;
  });
  if (reference == rates.end()) return rates;
  const SafeRate beside = *reference;
  for (SafeRate& rate : rates) {
    if (rate.arm != beside.arm) Compare(beside, results.question.confidence, &rate);
  }
  return rates;
}

Json ToJson(const std::vector<SafeRate>& rates) {
  Json arms = Json::array();
  for (const SafeRate& rate : rates) {
    Json limits = Json::array();
    for (const std::optional<double>& limit : rate.limits) limits.push_back(OrNull(limit));
    Json arm = {{"arm", rate.arm},
                {"best", rate.best},
                {"largest", rate.largest},
                {"limits", std::move(limits)},
                {"relative", OrNull(rate.relative)},
                {"interval", nullptr}};
    if (rate.interval) arm["interval"] = {rate.interval->low, rate.interval->high};
    arms.push_back(std::move(arm));
  }
  return {{"margin", kSafeRateMargin}, {"arms", std::move(arms)}};
}

}  // namespace fp4lab::study
