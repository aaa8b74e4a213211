#include "fp4lab/study/report/tables/sweep_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/html.h"
#include "fp4lab/study/report/tables/report_tables.h"

namespace fp4lab::study {
namespace {

constexpr const char* kOpen = "not identified";

// A value with its text; `distance` from no difference, NaN: not identified.
struct Finding {
  std::string text;
  double distance = NAN;
};

SweepRow RowOf(std::string quantity, const Finding& shared, const Finding& best) {
  const bool open = std::isnan(shared.distance) || std::isnan(best.distance);
  const Finding& nearer = shared.distance <= best.distance ? shared : best;
  return {std::move(quantity), shared.text, best.text, open ? kOpen : nearer.text};
}

Finding RatioOf(const ModelReport& model) {
  const Question& question = model.results.question;
  const TokenRatio* ratio = ShownRatio(model.analysis, {question.format, question.format_reference},
                                       question.primary_tokens);
  if (ratio == nullptr || !ratio->identified || !ratio->disagreement.empty()) return {kOpen};
  return {RatioText(*ratio) + (ratio->form == Form::kShrink ? " (shrink form)" : ""),
          std::abs(std::log(ratio->ratio))};
}

Finding GapOf(const ModelReport& model, const std::string& arm) {
  const Question& question = model.results.question;
  const LossGap* gap = model.analysis.FindGap(arm, question.reference, question.primary_tokens,
                                              Precision::kTraining);
  if (gap == nullptr || gap->summary.count == 0 || gap->diverged > 0) return {kOpen};
  std::string text = Signed(gap->summary.mean, 4);
  if (gap->interval) text += " " + IntervalText(*gap->interval, 4);
  return {text, std::abs(gap->summary.mean)};
}

// Held is stronger than not evaluable, and that than failed.
double Strength(CriterionResult::Status status) {
  switch (status) {
    case CriterionResult::Status::kHeld:
      return 2;
    case CriterionResult::Status::kNotEvaluable:
      return 1;
    case CriterionResult::Status::kFailed:
      return 0;
  }
  return 0;
}

void AddRows(const ModelReport& shared, const ModelReport& best, std::vector<SweepRow>* rows) {
  const Results& results = shared.results;
  const Question& question = results.question;
  const std::string at = " at " + TokensText(static_cast<double>(question.primary_tokens));
  if (!question.format.empty()) {
    rows->push_back(
        RowOf("token ratio, " + question.format + " to match " + question.format_reference + at,
              RatioOf(shared), RatioOf(best)));
  }
  for (const std::string& arm : results.arms) {
    if (arm == question.reference) continue;
    rows->push_back(RowOf("gap of " + arm + " to " + question.reference + at, GapOf(shared, arm),
                          GapOf(best, arm)));
  }
  for (std::size_t i = 0; i < shared.analysis.criteria.size(); ++i) {
    const CriterionResult &a = shared.analysis.criteria[i], &b = best.analysis.criteria[i];
    rows->push_back(RowOf(a.statement, {std::string(a.Verdict()), Strength(a.status)},
                          {std::string(b.Verdict()), Strength(b.status)}));
  }
}

}  // namespace

std::vector<SweepRow> SweepRows(const std::vector<ModelReport>& models) {
  const IeeeArithmetic ieee;
  std::vector<SweepRow> rows;
  for (std::size_t i = 0; i + 1 < models.size(); ++i) {
    if (models[i].results.view == View::kSharedRate) AddRows(models[i], models[i + 1], &rows);
  }
  return rows;
}

std::string SweepText(const std::vector<ModelReport>& models) {
  const IeeeArithmetic ieee;
  std::string text;
  for (const SweepRow& row : SweepRows(models)) {
    text += "  " + row.quantity + "\n    shared rate " + row.shared + "; best rates " + row.best +
            "; weaker: " + row.weaker + "\n";
  }
  return text.empty() ? text : "learning rate\n" + text;
}

std::string SweepHtml(const std::vector<ModelReport>& models) {
  const IeeeArithmetic ieee;
  HtmlTable table;
  table.head = {"quantity", "shared rate", "best rates", "weaker"};
  table.text_columns = 4;
  for (const SweepRow& row : SweepRows(models)) {
    table.rows.push_back({EscapedMarkup(row.quantity), EscapedMarkup(row.shared),
                          EscapedMarkup(row.best), EscapedMarkup(row.weaker)});
  }
  if (table.rows.empty()) return "";
  return "<h2>Learning rate</h2>\n<p>Shared: all arms at the rate that is best for the reference. "
         "Best: each arm at its own. A rate is best for an arm if its mean loss at the primary "
         "budget is the least. A conclusion that holds at the shared rate only may be one about "
         "learning rates.</p>\n" +
         table.Html();
}

}  // namespace fp4lab::study
