// The report of a study: one HTML page with figures and tables, the figures as files, a CSV of the
// runs, and a summary for the terminal.
#pragma once

#include <filesystem>
#include <string>

#include "fp4lab/io/json.h"
#include "fp4lab/study/analysis.h"
#include "fp4lab/study/results_file.h"

namespace fp4lab::study {

// A page on its own: style and figures inline, no scripts, nothing fetched.
std::string ReportHtml(const Results& results, const Analysis& analysis);

// One row a run and budget, and one for a run that has none.
std::string RunsCsv(const Results& results);

// Gap per arm and budget, token ratios with their intervals, criteria: plain text, 100 columns.
std::string SummaryText(const Results& results, const Analysis& analysis);

// Analyzes FOLDER/results.json (or the file itself) and writes, beside it or into `out_dir` if that
// is not empty: report.html, results.csv, figures/*.svg; and adds "analysis" to results.json. Each
// file is written atomically. The same results give the same bytes.
struct ReportFiles {
  std::filesystem::path html, csv, figures;
  std::string summary;
  std::string note = {};  // what is to be said beside the summary; empty: nothing
};
ReportFiles WriteReport(const std::filesystem::path& file_or_folder,
                        const std::filesystem::path& out_dir = {});

// Error where something in `folder` stands in the way of those files. For before the training.
void CheckPlacesOfReport(const std::filesystem::path& folder);

}  // namespace fp4lab::study
