#include "fp4lab/study/report/report.h"

#include <cmath>
#include <span>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figures.h"
#include "fp4lab/study/report/figures/overlay_range.h"
#include "fp4lab/study/report/html.h"
#include "fp4lab/study/report/report_sections.h"
#include "fp4lab/study/report/tables/report_tables.h"
#include "fp4lab/study/report/tables/safe_rate_table.h"
#include "fp4lab/study/report/tables/sweep_table.h"

namespace fp4lab::study {
namespace {

std::string Number(double x) { return std::isfinite(x) ? Json(x).dump() : ""; }

}  // namespace

std::string ReportHtml(const std::vector<ModelReport>& models,
                       const std::vector<Overlay>& overlays) {
  const IeeeArithmetic ieee;
  const Results& first = models[0].results;
  std::string body = "<h1>" + EscapedMarkup(first.title) + "</h1>\n";
  if (!first.description.empty()) {
    body += "<p class=\"lead\">" + EscapedMarkup(first.description) + "</p>\n";
  }
  body += FindingsHtml(models, overlays) + MethodHtml() + "<h2>Setup</h2>\n";
  for (const ModelReport& model : models) body += SetupTables(model.results);
  return HtmlPage(first.title, body);
}

std::string ReportHtml(const Results& results, const Analysis& analysis) {
  const IeeeArithmetic ieee;
  return ReportHtml({{results, analysis}});
}

std::string RunsCsv(const Results& results) {
  const IeeeArithmetic ieee;
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

std::string DiagnosticsCsv(const Results& results) {
  const IeeeArithmetic ieee;
  if (!results.HasObservations()) return "";
  std::string csv = "arm,seed,budget,step,name,diagnostic,value\n";
  for (const RunResult& run : results.runs) {
    for (const Observation& o : run.observations) {
      const std::string front = run.arm + "," + std::to_string(run.seed) + "," +
                                std::to_string(o.budget) + "," + std::to_string(o.step) + ",";
      for (const ObservedRow& row : o.rows) {
        const auto line = [&](const std::string& what, const std::string& value) {
          csv += front + row.name + "," + what + "," + value + "\n";
        };
        for (const auto& [key, value] : row.numbers) line(key, Number(value));
        if (!row.scales) continue;
        line("scales 0", std::to_string(row.scales->zeros));
        line("scales not finite", std::to_string(row.scales->not_finite));
        for (std::size_t i = 0; i < row.scales->counts.size(); ++i) {
          line("scales 2^" + std::to_string(row.scales->first + static_cast<int>(i)),
               std::to_string(row.scales->counts[i]));
        }
      }
    }
  }
  return csv;
}

ReportTexts MakeReport(const StudyReport& study, const std::vector<Overlay>& overlays) {
  const IeeeArithmetic ieee;
  ReportTexts texts;
  const bool several = study.models.size() > 1;
  try {
    Json analyses = Json::array();
    for (const ModelReport& model : study.models) {
      if (!texts.summary.empty()) texts.summary += "\n\n";
      if (several) texts.summary += ModelTitle(model.results) + "\n\n";
      texts.summary += SummaryText(model.results, model.analysis);
      const std::filesystem::path folder = model.results.folder;
      for (Figure& figure : DrawFigures(model.results, model.analysis, overlays)) {
        texts.figures[folder / figure.file] = std::move(figure.standalone);
      }
      analyses.push_back(ToJson(model.analysis, model.results));
    }
    if (const std::string sweep = SweepText(study.models); !sweep.empty()) {
      texts.summary += "\n\n" + sweep + SafeRateText(study.models);
    }
    texts.html = ReportHtml(study.models, overlays);
    texts.csv = RunsCsv(study.results);
    texts.diagnostics = DiagnosticsCsv(study.results);
    texts.analysis = several ? std::move(analyses) : std::move(analyses[0]);
  } catch (const Json::exception& e) {
    throw MalformedStudy(study.file, e);
  }
  return texts;
}

ReportFiles WriteReport(const std::filesystem::path& file_or_folder,
                        const std::filesystem::path& out_dir,
                        const std::vector<Overlay>& overlays) {
  const IeeeArithmetic ieee;
  StudyReport study = LoadStudyReport(file_or_folder);
  CheckOverlays(overlays, std::span(&study, 1));
  ReportTexts texts = MakeReport(study, overlays);
  const std::filesystem::path folder = out_dir.empty() ? study.file.parent_path() : out_dir;
  ReportFiles files{folder / "report.html", folder / "results.csv", folder / "figures",
                    std::move(texts.summary), NotesOn(study)};
  for (const auto& [place, drawing] : texts.figures) {
    WriteFileAtomically(files.figures / place, drawing);
  }
  WriteFileAtomically(files.csv, texts.csv);
  if (!texts.diagnostics.empty()) {
    WriteFileAtomically(folder / "diagnostics.csv", texts.diagnostics);
  }
  WriteFileAtomically(files.html, texts.html);
  study.json["analysis"] = std::move(texts.analysis);
  WriteFileAtomically(folder / "results.json", ResultsText(std::move(study.json)));
  return files;
}

void CheckPlacesOfReport(const std::filesystem::path& folder) {
  for (const char* name : {"results.json", "results.csv", "diagnostics.csv", "report.html",
                           "study.json", "registered.json"}) {
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
