#include "fp4lab/study/results/sweep.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/results/arm_name.h"

namespace fp4lab::study {
namespace {

// The mean loss of an arm at the primary budget; infinite if a run is missing or diverged.
double MeanLoss(const Results& results, const std::string& arm) {
  double sum = 0;
  for (const std::uint64_t seed : results.seeds) {
    const RunResult* run = results.Find(arm, seed);
    if (run == nullptr) return INFINITY;
    const auto point = std::find_if(
        run->points.begin(), run->points.end(),
        [&](const AnnealedPoint& p) { return p.tokens == results.question.primary_tokens; });
    if (point == run->points.end() || !std::isfinite(point->loss)) return INFINITY;
    sum += point->loss;
  }
  return sum / static_cast<double>(results.seeds.size());
}

double BestRate(const Results& results, const std::string& arm) {
  return *std::min_element(results.rates.begin(), results.rates.end(), [&](double a, double b) {
    return MeanLoss(results, ArmAtRate(arm, a)) < MeanLoss(results, ArmAtRate(arm, b));
  });
}

// "the largest" or "the smallest" of the sweep's rates; empty: rates beyond it on both sides were
// tried.
std::string EdgeOf(const Results& results, double rate) {
  if (rate == results.rates.back()) return "the largest";
  return rate == results.rates.front() ? "the smallest" : "";
}

// "; the best rate of bf16, nvfp4 is an end of the sweep, so a better one may lie beyond it"; empty
// of arms whose best rate lies inside.
std::string EdgeText(const Results& results, const std::vector<std::string>& arms,
                     const std::vector<double>& best) {
  std::string text;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const std::string edge = EdgeOf(results, best[i]);
    if (!edge.empty()) text += (text.empty() ? "" : ", ") + arms[i] + " (" + edge + ")";
  }
  if (text.empty()) return "";
  return "; at an end of the sweep, where a better rate may lie beyond: " + text;
}

// `results` with the arms of the file, arm i at rates[i].
Results AtRates(const Results& results, const std::vector<std::string>& arms,
                const std::vector<double>& rates, View view, const std::string& title,
                const std::string& folder) {
  Results shown = results;
  shown.arms = arms;
  shown.runs.clear();
  shown.numerics = Json::object();
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const std::string swept = ArmAtRate(arms[i], rates[i]);
    for (const RunResult& run : results.runs) {
      if (run.arm != swept) continue;
      shown.runs.push_back(run);
      shown.runs.back().arm = arms[i];
    }
    if (results.numerics.contains(swept)) shown.numerics[arms[i]] = results.numerics[swept];
  }
  shown.rates.clear();
  shown.view = view;
  shown.view_title = title;
  shown.folder = (results.folder.empty() ? "" : results.folder + "/") + folder;
  return shown;
}

}  // namespace

std::vector<std::string> FileArms(const Results& results) {
  if (results.rates.empty()) return results.arms;
  std::vector<std::string> arms;
  for (const Json& name : results.study.at("arm_order")) {
    const auto arm = name.get<std::string>();
    const std::string swept = ArmAtRate(arm, results.rates[0]);
    const bool here =
        std::find(results.arms.begin(), results.arms.end(), swept) != results.arms.end();
    if (here) arms.push_back(arm);
  }
  return arms;
}

std::vector<Results> ViewsOf(const Results& results) {
  const IeeeArithmetic ieee;
  if (results.rates.empty()) return {results};
  const std::vector<std::string> arms = FileArms(results);
  std::vector<double> best;
  std::string bests;
  for (const std::string& arm : arms) {
    best.push_back(BestRate(results, arm));
    bests += (bests.empty() ? "" : ", ") + arm + " " + RateText(best.back());
  }
  const std::string& reference = results.question.reference;
  const double shared = BestRate(results, reference);
  const auto at = [&](double rate, View view, const std::string& title) {
    return AtRates(results, arms, std::vector<double>(arms.size(), rate), view, title,
                   "lr" + RateText(rate));
  };
  std::vector<Results> views = {
      at(shared, View::kSharedRate,
         "all arms at learning rate " + RateText(shared) + ", the best of " + reference +
             EdgeText(results, {reference}, {shared})),
      AtRates(results, arms, best, View::kBestRates,
              "each arm at its best learning rate: " + bests + EdgeText(results, arms, best),
              "best-rates")};
  for (const double rate : results.rates) {
    if (rate != shared) {
      views.push_back(at(rate, View::kOtherRate, "all arms at learning rate " + RateText(rate)));
    }
  }
  return views;
}

std::vector<Results> AllViews(const Results& results) {
  const IeeeArithmetic ieee;
  std::vector<Results> all;
  for (const Results& model : ByModel(results)) {
    for (Results& view : ViewsOf(model)) all.push_back(std::move(view));
  }
  return all;
}

}  // namespace fp4lab::study
