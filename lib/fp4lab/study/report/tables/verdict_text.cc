#include "fp4lab/study/report/tables/verdict_text.h"

#include <algorithm>
#include <utility>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"

namespace fp4lab::study {
namespace {

constexpr std::size_t kMostSentences = 3;  // one per arm; more arms are told in groups

// "5 seeds and the validation text", or only the former.
std::string Sampled(std::size_t seeds, const Analysis& analysis) {
  return CountText(seeds, "seed") + (analysis.chunks > 0 ? " and the validation text" : "");
}

std::string Sentence(const Results& results, const Analysis& analysis, const LossGap& gap) {
  const std::string pair = gap.arm + " - " + gap.reference + ": ";
  const std::string at = " at " + TokensText(static_cast<double>(gap.tokens)) + " tokens";
  if (gap.summary.count == 0) return pair + "no loss of both" + at;
  std::string text = pair + Signed(gap.summary.mean, 4);
  const std::optional<Interval> interval = GapInterval(gap, analysis);
  if (interval) text += " " + IntervalText(*interval, 4);
  text += " nats" + at + ", " + ToldApart(interval, 0.0, gap.summary.count);
  if (interval) {
    text += " (" + Fixed(100 * results.question.confidence, 0) + " %, " +
            Sampled(gap.summary.count, analysis) + ")";
  }
  if (gap.diverged > 0) text += "; " + std::to_string(gap.diverged) + " diverged";
  return text;
}

// "To bf16 at 26M tokens (95 %, 5 seeds and the validation text): told apart: a, b; not told apart:
// c."
std::string Groups(const Results& results, const Analysis& analysis,
                   const std::vector<const LossGap*>& gaps) {
  std::vector<std::string> apart, not_apart, open;
  std::size_t seeds = 0;
  for (const LossGap* gap : gaps) {
    seeds = std::max(seeds, gap->summary.count);
    const std::optional<Interval> interval = GapInterval(*gap, analysis);
    std::vector<std::string>& group = !interval                 ? open
                                      : interval->Contains(0.0) ? not_apart
                                                                : apart;
    group.push_back(gap->arm);
  }
  std::string text = "To " + gaps[0]->reference + " at " +
                     TokensText(static_cast<double>(gaps[0]->tokens)) + " tokens (" +
                     Fixed(100 * results.question.confidence, 0) + " %, " +
                     Sampled(seeds, analysis) + ")";
  const char* separator = ": ";
  for (const auto& [name, group] :
       {std::pair{"told apart", &apart}, {"not told apart", &not_apart}, {"no interval", &open}}) {
    if (group->empty()) continue;
    text += separator + std::string(name) + ": " + Joined(*group, ", ");
    separator = "; ";
  }
  return text;
}

}  // namespace

std::string ToldApart(const std::optional<Interval>& interval, double equal, std::size_t seeds) {
  const IeeeArithmetic ieee;
  if (!interval) {
    return "no interval from " + std::to_string(seeds) + (seeds == 1 ? " seed" : " seeds");
  }
  return interval->Contains(equal) ? "not told apart" : "told apart";
}

std::optional<Interval> GapInterval(const LossGap& gap, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  if (!gap.interval || !gap.bootstrap || analysis.chunks == 0) return gap.interval;
  return Interval{std::min(gap.interval->low, gap.bootstrap->low),
                  std::max(gap.interval->high, gap.bootstrap->high)};
}

std::vector<std::string> VerdictSentences(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  const Question& question = results.question;
  const auto gap_of = [&](const std::string& arm, const std::string& reference) {
    return analysis.FindGap(arm, reference, question.primary_tokens, Precision::kTraining);
  };
  if (!question.format.empty()) {
    const LossGap* gap = gap_of(question.format, question.format_reference);
    if (gap != nullptr) return {Sentence(results, analysis, *gap)};
  }
  std::vector<const LossGap*> gaps;
  for (const std::string& arm : results.arms) {
    const LossGap* gap = gap_of(arm, question.reference);
    if (arm != question.reference && gap != nullptr) gaps.push_back(gap);
  }
  if (gaps.size() > kMostSentences) return {Groups(results, analysis, gaps)};
  std::vector<std::string> sentences;
  for (const LossGap* gap : gaps) sentences.push_back(Sentence(results, analysis, *gap));
  return sentences;
}

}  // namespace fp4lab::study
