#include "fp4lab/study/report/report_sections.h"

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figures.h"
#include "fp4lab/study/report/tables/cost_table.h"
#include "fp4lab/study/report/tables/report_tables.h"
#include "fp4lab/study/report/tables/safe_rate_table.h"
#include "fp4lab/study/report/tables/sweep_table.h"
#include "fp4lab/study/report/tables/text_loss_table.h"
#include "fp4lab/study/report/tables/verdict_text.h"

namespace fp4lab::study {
namespace {

std::string Card(const std::string& number, const std::string& text) {
  return "<div class=\"card\"><b>" + EscapedMarkup(number) + "</b><span>" + EscapedMarkup(text) +
         "</span></div>\n";
}

std::string Verdict(const Results& results, const Analysis& analysis) {
  std::string lines;
  for (const std::string& sentence : VerdictSentences(results, analysis)) {
    lines += (lines.empty() ? "" : "<br>\n") + EscapedMarkup(sentence);
  }
  return lines.empty() ? "" : "<p class=\"verdict\">" + lines + "</p>\n";
}

std::string Cards(const Results& results, const Analysis& analysis) {
  const Question& question = results.question;
  const std::int64_t tokens = question.primary_tokens;
  const std::string at = " at " + TokensText(static_cast<double>(tokens)) + " tokens";
  std::string html;
  if (!question.format.empty()) {
    const ArmPair pair{question.format, question.format_reference};
    const TokenRatio* r = ShownRatio(analysis, pair, tokens);
    if (r != nullptr) {
      std::string text = "token ratio, " + pair.format + " to match " + pair.reference + at;
      if (!r->identified) text += ": " + r->reason;
      if (r->form == Form::kShrink) text += ", shrink form";
      if (!r->disagreement.empty()) text += "; not identified: " + r->disagreement;
      if (r->interval) {
        text += "; " + Fixed(100 * question.confidence, 0) + " % " + IntervalText(*r->interval, 2);
        text += ", " + ToldApart(r->interval, 1.0, r->per_seed.size());
      } else if (r->identified) {
        text += "; " + r->reason;
      }
      html += Card(r->identified ? Fixed(r->ratio, 2) : "not identified", text);
    }
  }
  for (const std::string& arm : results.arms) {
    const LossGap* gap = analysis.FindGap(arm, question.reference, tokens, Precision::kTraining);
    if (gap == nullptr || gap->summary.count == 0 || arm == question.reference) continue;
    std::string text = "gap of " + arm + " to " + question.reference + at + ", " +
                       Signed(gap->summary.mean, 4) + " nats";
    const std::optional<Interval> interval = GapInterval(*gap, analysis);
    if (interval) text += " " + IntervalText(*interval, 4);
    text += ", " + ToldApart(interval, 0.0, gap->summary.count);
    html += Card(Signed(100 * gap->relative, 1) + " %", text);
  }
  return "<div class=\"cards\">\n" + html + "</div>\n";
}

constexpr std::string_view kMethod =
    "<p>Every loss is that of a run whose learning rate was taken to its end at that budget "
    "(warm-up, stable trunk, decay); losses along the trunk are not compared. The seed fixes "
    "initial weights and data order for all formats, so differences are taken seed by seed.</p>\n"
    "<p>A token ratio of f against R at D tokens, in two forms. Extend: r = D<sub>f</sub>/D, where "
    "L<sub>f</sub>(D<sub>f</sub>) = L<sub>R</sub>(D). Shrink: r' = D/D<sub>R</sub>, where "
    "L<sub>R</sub>(D<sub>R</sub>) = L<sub>f</sub>(D). Three estimators: (1) the crossing of "
    "smooth falling curves through the losses (monotone, convex where the losses are), seed by "
    "seed, the headline; (2) a fit of "
    "E<sub>f</sub> + B<sub>f</sub> D<sup>-&beta;</sup> with one &beta;, only with four budgets or "
    "more over a factor of eight; (3) the reference's curve plus a<sub>f</sub> "
    "(D/D<sub>1</sub>)<sup>&gamma;</sup> with one &gamma; for all formats and seeds. The ratio is "
    "the geometric mean over seeds.</p>\n"
    "<p>A token ratio is a gap divided by a slope: ln r &asymp; &Delta;L/s. Both change with model "
    "size, data and tokens per parameter, so a ratio without D/N and s cannot be compared, "
    "and one number is not a property of a format.</p>\n";

constexpr std::string_view kHint =
    "<p class=\"note needs-script\" hidden>Point at a mark, or tap it, for its values; click a "
    "name "
    "to hide or show its series. By keyboard: Tab to a name, arrows to its marks, Enter to hide or "
    "show.</p>\n";

// The findings on one model.
std::string Sections(const Results& results, const Analysis& analysis,
                     const std::vector<Overlay>& overlays) {
  std::string body =
      Verdict(results, analysis) + Cards(results, analysis) + NotesHtml(results, analysis);
  body +=
      "<h2>Criteria</h2>\n<p>Stated before the runs; each is judged by the losses in the "
      "precision of the training.</p>\n" +
      CriteriaTable(analysis);
  body += "<h2>Figures</h2>\n" + std::string(kHint);
  for (const Figure& figure : DrawFigures(results, analysis, overlays)) {
    body += FigureHtml(figure, results.name);
  }
  body += "<h2>Losses</h2>\n" + LossTable(results, analysis);
  if (const std::string texts = TextLossTable(results); !texts.empty()) {
    body += "<h2>Further texts</h2>\n" + texts;
  }
  body += "<h2>Paired differences</h2>\n" + GapTable(results, analysis);
  if (results.budgets.size() > 1) {
    body += "<h2>Token ratios</h2>\n" + RatioTables(results, analysis);
  }
  body += "<h2>Costs</h2>\n" + CostTable(results, analysis);
  return body + "<h2>Operands</h2>\n" + OperandTable(results);
}

}  // namespace

std::string ModelTitle(const Results& results) {
  const IeeeArithmetic ieee;
  return TokensText(static_cast<double>(results.block_parameters)) +
         " block parameters: " + Joined(results.arms, ", ") +
         (results.view_title.empty() ? "" : "; " + results.view_title);
}

std::string FigureHtml(const Figure& figure, const std::string& study) {
  const IeeeArithmetic ieee;
  const std::string file = study + "-" + std::filesystem::path(figure.file).stem().string();
  return "<figure data-file=\"" + EscapedMarkup(file) + "\">\n<div class=\"plot\">\n" +
         figure.embedded + "</div>\n<figcaption>" + EscapedMarkup(figure.caption) +
         "</figcaption>\n</figure>\n";
}

std::string_view FigureHint() { return kHint; }

std::string FindingsHtml(const std::vector<ModelReport>& models,
                         const std::vector<Overlay>& overlays) {
  const IeeeArithmetic ieee;
  std::string body = SweepHtml(models) + SafeRateHtml(models);
  for (const ModelReport& model : models) {
    if (models.size() > 1) body += "<h2>" + EscapedMarkup(ModelTitle(model.results)) + "</h2>\n";
    body += Sections(model.results, model.analysis, overlays);
  }
  return body;
}

std::string MethodHtml() { return "<h2>How the numbers are made</h2>\n" + std::string(kMethod); }

}  // namespace fp4lab::study
