// The report's summary for a terminal.
#include <algorithm>
#include <string>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figures.h"
#include "fp4lab/study/report/report.h"
#include "fp4lab/study/report/tables/report_tables.h"
#include "fp4lab/study/report/tables/text_table.h"

namespace fp4lab::study {
namespace {

std::vector<std::string> Header(const Results& results, const std::string& first) {
  std::vector<std::string> row = {first};
  for (const std::int64_t tokens : results.budgets) {
    const auto d = static_cast<double>(tokens);
    row.push_back(TokensText(d) + " (D/N " +
                  PerParameterText(d / static_cast<double>(results.block_parameters)) + ")");
  }
  return row;
}

std::string LossCell(const ArmLoss& loss) {
  std::string text = loss.summary.count == 0 ? "-" : Fixed(loss.summary.mean, 4);
  if (loss.diverged > 0) text += " (" + std::to_string(loss.diverged) + " diverged)";
  return text;
}

std::string GapCell(const LossGap& gap, bool with_percent) {
  if (gap.summary.count == 0) return "-";
  std::string text = Signed(gap.summary.mean, 4);
  if (gap.interval) text += " +-" + Fixed(gap.interval->high - gap.summary.mean, 4);
  if (with_percent) text += " " + Signed(100 * gap.relative, 1) + "%";
  if (gap.diverged > 0) text += " (" + std::to_string(gap.diverged) + " diverged)";
  return text;
}

std::string RatioCell(const TokenRatio& ratio) {
  if (!ratio.identified) {
    const std::size_t colon = ratio.reason.find(':');
    return colon == std::string::npos ? "not identified" : ratio.reason.substr(0, colon);
  }
  return RatioText(ratio) + (ratio.form == Form::kShrink ? " r'" : "") +
         (ratio.disagreement.empty() ? "" : " ?");
}

// `text` wrapped into lines of at most `width` characters, each after `indent` spaces.
std::string Wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string result, line;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, space - at);
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
      result += std::string(indent, ' ') + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = space + 1;
  }
  return result + std::string(indent, ' ') + line + "\n";
}

std::string Criteria(const Analysis& analysis) {
  std::string text;
  for (const CriterionResult& c : analysis.criteria) {
    std::string status(c.Verdict());
    status.resize(15, ' ');
    text += "  " + status + Wrapped(c.statement, 17, 100).substr(17);
    if (!c.source.empty()) text += Wrapped("published: " + c.Published(), 19, 100);
    text += Wrapped(c.numbers, 19, 100);
  }
  return text;
}

}  // namespace

std::string SummaryText(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  const std::string& reference = results.question.reference;
  std::string text = results.name + ": " + std::to_string(results.arms.size()) + " arms, " +
                     std::to_string(results.seeds.size()) +
                     (results.seeds.size() == 1 ? " seed" : " seeds") +
                     ", N = " + std::to_string(results.block_parameters) + " block parameters, " +
                     results.corpus + "\n\n";
  if (results.exploratory) {
    text += "exploratory: the question or the criteria were changed after a run was complete\n\n";
  }
  TextRows losses = {Header(results, "loss, nats per token")};
  TextRows gaps = {Header(results, "gap to " + reference)};
  for (const std::string& arm : results.arms) {
    losses.push_back({arm});
    gaps.push_back({arm});
    for (const std::int64_t tokens : results.budgets) {
      losses.back().push_back(LossCell(*analysis.FindLoss(arm, tokens, Precision::kTraining)));
      const LossGap* gap = analysis.FindGap(arm, reference, tokens, Precision::kTraining);
      gaps.back().push_back(gap == nullptr ? "" : GapCell(*gap, results.budgets.size() <= 3));
    }
    if (arm == reference) gaps.pop_back();
  }
  text += AlignedText(losses);
  if (gaps.size() > 1) text += "\n" + AlignedText(gaps);
  TextRows ratios = {Header(results, "token ratio")};
  for (const ArmPair& pair : PairsOf(results)) {
    ratios.push_back({pair.format + " to match " + pair.reference});
    for (const std::int64_t tokens : results.budgets) {
      ratios.back().push_back(RatioCell(*ShownRatio(analysis, pair, tokens)));
    }
  }
  if (ratios.size() > 1 && results.budgets.size() > 1) text += "\n" + AlignedText(ratios);
  const std::string percent = Fixed(100 * results.question.confidence, 0);
  text += results.seeds.size() >= kLeastSeeds
              ? "  +- and []: " + percent +
                    "% t intervals over seeds; r': shrink form; ?: estimators disagree\n"
              : "  no intervals: they need " + std::to_string(kLeastSeeds) +
                    " seeds; r': shrink form\n";
  if (!analysis.criteria.empty()) text += "\ncriteria\n" + Criteria(analysis);
  return text;
}

}  // namespace fp4lab::study
