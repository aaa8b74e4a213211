#include "fp4lab/study/report/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/analysis/analyze.h"
#include "fp4lab/study/analysis/number_text.h"
#include "fp4lab/study/report/figures.h"
#include "fp4lab/study/report/html.h"
#include "fp4lab/study/report/report_tables.h"
#include "fp4lab/study/report/svg.h"

namespace fp4lab::study {
namespace {

std::string Card(const std::string& number, const std::string& text) {
  return "<div class=\"card\"><b>" + EscapedMarkup(number) + "</b><span>" + EscapedMarkup(text) +
         "</span></div>\n";
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
    if (gap->interval) text += " " + IntervalText(*gap->interval, 4);
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
    "piecewise log-linear curves after monotone repair, seed by seed, the headline; (2) a fit of "
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

// The figure with its caption; `study` begins the names of the files that the figure is saved as.
std::string FigureHtml(const Figure& figure, const std::string& study) {
  const std::string file = study + "-" + std::filesystem::path(figure.file).stem().string();
  return "<figure data-file=\"" + EscapedMarkup(file) + "\">\n<div class=\"plot\">\n" +
         figure.embedded + "</div>\n<figcaption>" + EscapedMarkup(figure.caption) +
         "</figcaption>\n</figure>\n";
}

// "1.2M block parameters: bf16, nvfp4"
std::string ModelTitle(const Results& results) {
  return TokensText(static_cast<double>(results.block_parameters)) +
         " block parameters: " + Joined(results.arms, ", ");
}

// The findings on one model.
std::string Sections(const Results& results, const Analysis& analysis) {
  std::string body = Cards(results, analysis) + NotesHtml(results, analysis);
  body +=
      "<h2>Criteria</h2>\n<p>Stated before the runs; each is judged by the losses in the "
      "precision of the training.</p>\n" +
      CriteriaTable(analysis);
  body += "<h2>Figures</h2>\n" + std::string(kHint);
  for (const Figure& figure : DrawFigures(results, analysis)) {
    body += FigureHtml(figure, results.name);
  }
  body += "<h2>Losses</h2>\n" + LossTable(results, analysis);
  body += "<h2>Paired differences</h2>\n" + GapTable(results, analysis);
  if (results.budgets.size() > 1) {
    body += "<h2>Token ratios</h2>\n" + RatioTables(results, analysis);
  }
  return body + "<h2>Operands</h2>\n" + OperandTable(results);
}

std::string Number(double x) { return std::isfinite(x) ? Json(x).dump() : ""; }

}  // namespace

std::string ReportHtml(const std::vector<ModelReport>& models) {
  const Results& first = models[0].results;
  std::string body = "<h1>" + EscapedMarkup(first.title) + "</h1>\n";
  if (!first.description.empty()) {
    body += "<p class=\"lead\">" + EscapedMarkup(first.description) + "</p>\n";
  }
  for (const ModelReport& model : models) {
    if (models.size() > 1) body += "<h2>" + EscapedMarkup(ModelTitle(model.results)) + "</h2>\n";
    body += Sections(model.results, model.analysis);
  }
  body += "<h2>How the numbers are made</h2>\n" + std::string(kMethod);
  body += "<h2>Setup</h2>\n";
  for (const ModelReport& model : models) body += SetupTables(model.results);
  return HtmlPage(first.title, body);
}

std::string ReportHtml(const Results& results, const Analysis& analysis) {
  return ReportHtml({{results, analysis}});
}

std::string RunsCsv(const Results& results) {
  const auto block_parameters = [&](const std::string& arm) {
    const auto own = results.sizes.find(arm);
    return own == results.sizes.end() ? results.block_parameters : own->second.block_parameters;
  };
  std::string csv =
      "arm,seed,status,tokens,steps,tokens_per_block_parameter,validation_loss,"
      "validation_loss_high,seconds\n";
  for (const RunResult& run : results.runs) {
    const std::string front =
        run.arm + "," + std::to_string(run.seed) + "," + (run.diverged ? "diverged" : "ok") + ",";
    for (const AnnealedPoint& p : run.points) {
      csv +=
          front + std::to_string(p.tokens) + "," + std::to_string(p.steps) + "," +
          Number(static_cast<double>(p.tokens) / static_cast<double>(block_parameters(run.arm))) +
          "," + Number(p.loss) + "," + Number(p.loss_high) + "," + Number(run.seconds) + "\n";
    }
    if (run.points.empty()) csv += front + ",,,,," + Number(run.seconds) + "\n";
  }
  return csv;
}

ReportTexts MakeReport(const Json& json, const std::string& where, int draws) {
  const Results results = ReadResults(json, where);
  ReportTexts texts;
  try {
    std::vector<ModelReport> models;
    for (Results& group : ByModel(results)) {
      Analysis analysis = Analyze(group, draws);
      models.push_back({std::move(group), std::move(analysis)});
    }
    Json analyses = Json::array();
    for (const ModelReport& model : models) {
      if (!texts.summary.empty()) texts.summary += "\n\n";
      if (models.size() > 1) texts.summary += ModelTitle(model.results) + "\n\n";
      texts.summary += SummaryText(model.results, model.analysis);
      const std::filesystem::path folder =
          models.size() > 1 ? model.results.question.reference : std::string();
      for (Figure& figure : DrawFigures(model.results, model.analysis)) {
        texts.figures[folder / figure.file] = std::move(figure.standalone);
      }
      analyses.push_back(ToJson(model.analysis, model.results));
    }
    texts.csv = RunsCsv(results);
    texts.html = ReportHtml(models);
    texts.analysis = models.size() > 1 ? std::move(analyses) : std::move(analyses[0]);
  } catch (const Json::exception& e) {  // a malformed member "study" passes ReadResults
    throw Error(where + "#/study", "is not as fp4lab writes it: " + ProblemOf(e));
  }
  return texts;
}

ReportFiles WriteReport(const std::filesystem::path& file_or_folder,
                        const std::filesystem::path& out_dir) {
  const std::filesystem::path file = ResultsPath(file_or_folder);
  Json json = ReadJsonFile(file);
  ReportTexts texts = MakeReport(json, file.string());
  const std::filesystem::path folder = out_dir.empty() ? file.parent_path() : out_dir;
  ReportFiles files{folder / "report.html", folder / "results.csv", folder / "figures",
                    std::move(texts.summary)};
  if (!HasHash(json)) {
    files.note =
        file.string() +
        ": has no \"sha256\", as older versions wrote it: edits of its numbers cannot be detected";
  }
  for (const auto& [name, text] : texts.figures) WriteFileAtomically(files.figures / name, text);
  WriteFileAtomically(files.csv, texts.csv);
  WriteFileAtomically(files.html, texts.html);
  json["analysis"] = std::move(texts.analysis);
  WriteFileAtomically(folder / "results.json", ResultsText(std::move(json)));
  return files;
}

void CheckPlacesOfReport(const std::filesystem::path& folder) {
  for (const char* name :
       {"results.json", "results.csv", "report.html", "study.json", "registered.json"}) {
    if (std::filesystem::is_directory(folder / name)) {
      throw Error((folder / name).string(),
                  "is a folder, and a file will be written there; move it");
    }
  }
  const std::filesystem::path figures = folder / "figures";
  if (std::filesystem::exists(figures) && !std::filesystem::is_directory(figures)) {
    throw Error(figures.string(), "is a file, and figures will be written into it; move it");
  }
}

}  // namespace fp4lab::study
