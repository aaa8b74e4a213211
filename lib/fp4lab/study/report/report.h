// The report of a study: one HTML page with figures and tables, the figures as files, a CSV of the
// runs, and a summary for the terminal.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/report/figures/overlay.h"
#include "fp4lab/study/report/study_report.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// A self-contained page: style, figures and script inline, nothing fetched. A study of several
// models has the sections of each, one model after the other. `overlays` are laid over the figures
// of training losses.
std::string ReportHtml(const std::vector<ModelReport>& models,
                       const std::vector<Overlay>& overlays = {});
std::string ReportHtml(const Results& results, const Analysis& analysis);

// One row for each run and budget, and one row for a run without annealed losses.
std::string RunsCsv(const Results& results);

// One row for each number of each observation: arm, seed, budget (0: the trunk), step, name,
// diagnostic, value. Histograms of scales have a row a bin, "scales 2^-3", and "scales 0" and
// "scales not finite". Empty without observations.
std::string DiagnosticsCsv(const Results& results);

// Gap per arm and budget, token ratios with their intervals, criteria: plain text, 100 columns.
std::string SummaryText(const Results& results, const Analysis& analysis);

// The files of a report, as texts.
struct ReportTexts {
  std::string html, csv, summary;
  std::string diagnostics;                               // empty: no observations
  std::map<std::filesystem::path, std::string> figures;  // by their places in the folder "figures"
  Json analysis;  // the member "analysis" of results.json: of the model, or a list of the models'
};
// Throws Error for a study that is not as fp4lab writes it.
ReportTexts MakeReport(const StudyReport& study, const std::vector<Overlay>& overlays = {});

struct ReportFiles {
  std::filesystem::path html, csv, figures;  // `figures` is a folder
  std::string summary;
  std::vector<std::string> notes = {};  // lines to print beside the summary
};
// Analyzes FOLDER/results.json (or the file itself) and writes, beside it or into `out_dir` if that
// is not empty: report.html, results.csv, diagnostics.csv where there are observations,
// figures/*.svg, and results.json with the member "analysis". A study of several models has its
// figures in figures/REFERENCE, after the reference arm of each model, and a list of analyses. Each
// file is written atomically, and none if MakeReport throws. The same results give the same bytes.
// Throws Error as LoadStudyReport does, and for overlays where no run has a curve.
ReportFiles WriteReport(const std::filesystem::path& file_or_folder,
                        const std::filesystem::path& out_dir = {},
                        const std::vector<Overlay>& overlays = {});

// Throws Error if a folder in `folder` has the name of a file of the study, or a file the name
// "figures". Called before the training, so that hours of it are not lost to a name.
void CheckPlacesOfReport(const std::filesystem::path& folder);

}  // namespace fp4lab::study
