// fp4lab study report: writes the analysis, figures and page of a results.json.
#include "fp4lab/study/report/report.h"

#include <memory>
#include <string>

#include "tools/options/commands.h"
#include "tools/options/print.h"
#include "tools/study_example.h"

namespace fp4lab::tools {
namespace {

struct ReportOptions {
  std::string results, out_dir;
};

void RunReport(const ReportOptions& options) {
  const study::ReportFiles files = study::WriteReport(options.results, options.out_dir);
  if (!files.note.empty()) Note("note: %s\n", Printable(files.note).c_str());
  Print("%s\nreport: %s\n", files.summary.c_str(), Printable(files.html.string()).c_str());
}

}  // namespace

void AddStudyReport(CLI::App& app) {
  CLI::App* study = app.get_subcommand("study");
  auto options = std::make_shared<ReportOptions>();
  CLI::App* report = study->add_subcommand(
      "report", "Analyze a results.json again: report.html, figures/*.svg, results.csv, summary");
  report->add_option("results", options->results, "A results.json, or the folder that holds one")
      ->required();
  report->add_option("--out-dir", options->out_dir,
                     "Folder for the files [the folder of results.json]");
  report->footer(
      StudyExample("  $ fp4lab study run tiny.json > summary 2> progress\n"
                   "  $ fp4lab study report out/tiny --out-dir elsewhere | tail -1\n"
                   "  report: elsewhere/report.html\n"));
  report->callback([=] { RunReport(*options); });
}

}  // namespace fp4lab::tools
