#include "fp4lab/study/report/tables/text_loss_table.h"

#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/report/html.h"

namespace fp4lab::study {
namespace {

// The loss of a run on a text at the primary budget; nullopt where the run has none.
std::optional<double> TextLossOf(const Results& results, const std::string& arm, std::uint64_t seed,
                                 const std::string& text) {
  const RunResult* const run = results.Find(arm, seed);
  if (run == nullptr) return std::nullopt;
  for (const AnnealedPoint& point : run->points) {
    if (point.tokens != results.question.primary_tokens) continue;
    const auto found = point.texts.find(text);
    if (found != point.texts.end()) return found->second.loss;
  }
  return std::nullopt;
}

std::set<std::string> TextsOf(const Results& results) {
  std::set<std::string> names;
  for (const RunResult& run : results.runs) {
    for (const AnnealedPoint& point : run.points) {
      for (const auto& [name, losses] : point.texts) names.insert(name);
    }
  }
  return names;
}

std::string TextCell(const Results& results, const std::string& arm, const std::string& text) {
  std::vector<double> losses, gaps;
  for (const std::uint64_t seed : results.seeds) {
    const auto loss = TextLossOf(results, arm, seed, text);
    if (!loss) continue;
    losses.push_back(*loss);
    const auto base = TextLossOf(results, results.question.reference, seed, text);
    if (base) gaps.push_back(*loss - *base);
  }
  if (losses.empty()) return "-";
  std::string cell = Fixed(Summarize(losses).mean, 4);
  if (arm == results.question.reference || gaps.empty()) return cell;
  const Summary gap = Summarize(gaps);
  cell += " <span class=\"muted\">" + Signed(gap.mean, 4);
  const auto interval = StudentInterval(gap, results.question.confidence);
  if (interval) cell += " " + IntervalText(*interval, 4);
  return cell + "</span>";
}

}  // namespace

std::string TextLossTable(const Results& results) {
  const IeeeArithmetic ieee;
  const std::set<std::string> texts = TextsOf(results);
  if (texts.empty()) return "";
  HtmlTable table;
  table.caption = "Final loss on each further text at " +
                  TokensText(static_cast<double>(results.question.primary_tokens)) +
                  " tokens, nats per token: mean over seeds, and the paired difference to " +
                  results.question.reference + " with its t interval.";
  table.head = {"arm"};
  for (const std::string& text : texts) table.head.push_back(EscapedMarkup(text));
  for (const std::string& arm : results.arms) {
    std::vector<std::string> row = {EscapedMarkup(arm)};
    for (const std::string& text : texts) row.push_back(TextCell(results, arm, text));
    table.rows.push_back(std::move(row));
  }
  return table.Html();
}

}  // namespace fp4lab::study
