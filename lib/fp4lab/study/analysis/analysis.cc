#include "fp4lab/study/analysis/analysis.h"

#include <algorithm>

namespace fp4lab::study {

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
