#include "fp4lab/study/report/tables/safe_rate_table.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/html.h"
#include "fp4lab/study/report/tables/text_table.h"
#include "fp4lab/study/results/arm_name.h"

namespace fp4lab::study {
namespace {

std::vector<std::string> Head(const Question& question) {
  return {"arm", "best rate", "largest safe rate", "limit, by seed",
          "limit / " + question.reference};
}

std::string LimitsText(const SafeRate& rate, double largest_of_sweep) {
  std::string text;
  for (const std::optional<double>& limit : rate.limits) {
    if (!text.empty()) text += " ";
    text += limit ? SignificantText(*limit) : "> " + RateText(largest_of_sweep);
  }
  return text;
}

std::string RelativeText(const SafeRate& rate, const Question& question) {
  if (rate.arm == question.reference) return "1";
  if (!rate.relative) return "not identified";
  std::string text = Fixed(*rate.relative, 2);
  if (rate.interval) text += " " + IntervalText(*rate.interval, 2);
  return text;
}

TextRows RowsOf(const ModelReport& model) {
  const Question& question = model.results.question;
  const Json& rates = model.results.study.at("sweep").at("learning_rate");
  TextRows rows;
  for (const SafeRate& rate : model.analysis.safe_rates) {
    const bool learns = rate.largest > 0;
    rows.push_back({rate.arm, learns ? RateText(rate.best) : "-",
                    learns ? RateText(rate.largest) : "none",
                    learns ? LimitsText(rate, rates.back().get<double>()) : "-",
                    RelativeText(rate, question)});
  }
  return rows;
}

std::string Definition(const Question& question) {
  return "A rate is safe if the loss of every seed at " +
         TokensText(static_cast<double>(question.primary_tokens)) + " tokens is at most " +
         Fixed(kSafeRateMargin, 2) +
         " nats above its loss at the arm's best rate; so are all rates "
         "between the two. The limit is where the excess reaches that margin.";
}

}  // namespace

std::string SafeRateText(const std::vector<ModelReport>& models) {
  const IeeeArithmetic ieee;
  std::string text;
  for (const ModelReport& model : models) {
    if (model.analysis.safe_rates.empty()) continue;
    if (text.empty()) text = "safe learning rates\n  " + Definition(model.results.question) + "\n";
    TextRows rows = RowsOf(model);
    rows.insert(rows.begin(), Head(model.results.question));
    text += "  " + TokensText(static_cast<double>(model.results.block_parameters)) +
            " block parameters\n" + AlignedText(rows);
  }
  return text;
}

std::string SafeRateHtml(const std::vector<ModelReport>& models) {
  const IeeeArithmetic ieee;
  std::string html;
  for (const ModelReport& model : models) {
    if (model.analysis.safe_rates.empty()) continue;
    if (html.empty()) {
      html = "<h2>Safe learning rates</h2>\n<p>" +
             EscapedMarkup(Definition(model.results.question)) + "</p>\n";
    }
    HtmlTable table;
    table.caption =
        TokensText(static_cast<double>(model.results.block_parameters)) + " block parameters";
    table.head = Head(model.results.question);
    table.rows = RowsOf(model);
    for (std::vector<std::string>& row : table.rows) {
      std::transform(row.begin(), row.end(), row.begin(), EscapedMarkup);
    }
    html += table.Html();
  }
  return html;
}

}  // namespace fp4lab::study
