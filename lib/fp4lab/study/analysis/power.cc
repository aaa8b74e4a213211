#include "fp4lab/study/analysis/power.h"

#include <limits>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/numbers/statistics.h"

namespace fp4lab::study {
namespace {

double HalfWidth(double deviation, std::size_t seeds, double confidence) {
  const auto interval = StudentInterval({seeds, 0.0, deviation}, confidence);
  return interval ? interval->high : std::numeric_limits<double>::infinity();
}

// The values of the seeds that have one; empty for fewer than two.
void AddRow(PowerRow row, const std::vector<double>& values, double wanted,
            const PowerOptions& options, std::vector<PowerRow>* rows) {
  if (values.size() < 2) return;
  row.pilot_seeds = values.size();
  row.deviation = Summarize(values).deviation;
  row.half_width = HalfWidth(row.deviation, options.seeds, options.confidence);
  row.needed = SeedsNeeded(row.deviation, wanted, options.confidence);
  rows->push_back(std::move(row));
}

std::vector<double> IdentifiedOf(const TokenRatio* ratio) {
  std::vector<double> values;
  if (ratio == nullptr) return values;
  for (const LogRatio& seed : ratio->per_seed) {
    if (seed.status == LogRatio::Status::kIdentified) values.push_back(seed.value);
  }
  return values;
}

}  // namespace

std::size_t SeedsNeeded(double deviation, double half_width, double confidence) {
  const IeeeArithmetic ieee;
  for (std::size_t seeds = kLeastSeeds; seeds <= kMostSeeds; ++seeds) {
    if (HalfWidth(deviation, seeds, confidence) <= half_width) return seeds;
  }
  return 0;
}

std::vector<PowerRow> PowerTable(const Results& pilot, const Analysis& analysis,
                                 const PowerOptions& options) {
  const IeeeArithmetic ieee;
  std::vector<PowerRow> rows;
  const Question& question = pilot.question;
  for (const std::string& arm : pilot.arms) {
    for (const std::int64_t tokens : pilot.budgets) {
      const LossGap* gap = analysis.FindGap(arm, question.reference, tokens, Precision::kTraining);
      if (gap == nullptr || arm == question.reference) continue;
      std::vector<double> values;
      for (const std::optional<double>& seed : gap->per_seed) {
        if (seed) values.push_back(*seed);
      }
      AddRow({.quantity = PowerRow::Quantity::kGap,
              .arm = arm,
              .reference = question.reference,
              .tokens = tokens},
             values, options.gap, options, &rows);
    }
  }
  for (const std::int64_t tokens : pilot.budgets) {
    const auto values = [&](Form form) {
      return IdentifiedOf(analysis.FindRatio(question.format, question.format_reference, tokens,
                                             Precision::kTraining, Estimator::kCrossing, form));
    };
    const std::vector<double> extend = values(Form::kExtend), shrink = values(Form::kShrink);
    AddRow({.quantity = PowerRow::Quantity::kLogRatio,
            .arm = question.format,
            .reference = question.format_reference,
            .tokens = tokens},
           shrink.size() > extend.size() ? shrink : extend, options.log_ratio, options, &rows);
  }
  return rows;
}

}  // namespace fp4lab::study
