#include "fp4lab/study/report/verdict_text.h"

#include "fp4lab/study/analysis/number_text.h"

namespace fp4lab::study {
namespace {

std::string Sentence(const Results& results, const LossGap& gap) {
  const std::string pair = gap.arm + " - " + gap.reference + ": ";
  const std::string at = " at " + TokensText(static_cast<double>(gap.tokens)) + " tokens";
  if (gap.summary.count == 0) return pair + "no loss of both" + at;
  std::string text = pair + Signed(gap.summary.mean, 4);
  if (gap.interval) text += " " + IntervalText(*gap.interval, 4);
  text += " nats" + at + ", " + ToldApart(gap.interval, 0.0, gap.summary.count);
  if (gap.interval) {
    text += " (" + Fixed(100 * results.question.confidence, 0) + " % t interval, " +
            std::to_string(gap.summary.count) + " seeds)";
  }
  if (gap.diverged > 0) text += "; " + std::to_string(gap.diverged) + " diverged";
  return text;
}

}  // namespace

std::string ToldApart(const std::optional<Interval>& interval, double equal, std::size_t seeds) {
  if (!interval) {
    return "no interval from " + std::to_string(seeds) + (seeds == 1 ? " seed" : " seeds");
  }
  return interval->Contains(equal) ? "not told apart" : "told apart";
}

std::vector<std::string> VerdictSentences(const Results& results, const Analysis& analysis) {
  const Question& question = results.question;
  const auto gap_of = [&](const std::string& arm, const std::string& reference) {
    return analysis.FindGap(arm, reference, question.primary_tokens, Precision::kTraining);
  };
  if (!question.format.empty()) {
    const LossGap* gap = gap_of(question.format, question.format_reference);
    if (gap != nullptr) return {Sentence(results, *gap)};
  }
  std::vector<std::string> sentences;
  for (const std::string& arm : results.arms) {
    const LossGap* gap = gap_of(arm, question.reference);
    if (arm != question.reference && gap != nullptr) sentences.push_back(Sentence(results, *gap));
  }
  return sentences;
}

}  // namespace fp4lab::study
