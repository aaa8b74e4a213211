// fp4lab study report: writes the analysis, figures and page of a results.json, or one page about
// several.
#include "fp4lab/study/report/report.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/study/report/compare.h"
#include "fp4lab/study/report/figures/overlay.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/training/study_example.h"
#include "tools/training/study_results.h"

namespace fp4lab::tools {
namespace {

struct ReportOptions {
  std::vector<std::string> results, overlays;
  std::string out_dir;
  std::int64_t tokens_per_step = 0;
  bool allow_mixed = false;
};

study::ReportFiles Write(const ReportOptions& options) {
  std::vector<study::Overlay> overlays;
  for (const std::string& overlay : options.overlays) {
    overlays.push_back(study::ReadOverlay(overlay, options.tokens_per_step));
    const std::string& note = overlays.back().note;
    if (!note.empty()) Note("note: %s\n", Printable(note).c_str());
  }
  if (options.results.size() == 1) {
    return study::WriteReport(options.results[0], options.out_dir, overlays);
  }
  if (options.out_dir.empty()) {
    throw Error("study report",
                "a page about several studies belongs to none of their folders; name one with "
                "--out-dir");
  }
  return study::WriteComparison(
      {options.results.begin(), options.results.end()},
      {.out_dir = options.out_dir, .allow_mixed = options.allow_mixed, .overlays = overlays});
}

void RunReport(const ReportOptions& options) {
  // The runs of a study that is not complete, or that several processes trained.
  if (options.results.size() == 1 && IsPartialStudy(options.results[0])) {
    CollectResults(options.results[0]);
    if (options.out_dir.empty() && options.overlays.empty()) return;
  }
  const study::ReportFiles files = Write(options);
  for (const std::string& note : files.notes) Note("note: %s\n", Printable(note).c_str());
  Print("%s\nreport: %s\n", files.summary.c_str(), Printable(files.html.string()).c_str());
}

}  // namespace

void AddStudyReport(CLI::App& app) {
  CLI::App* study = app.get_subcommand("study");
  auto options = std::make_shared<ReportOptions>();
  CLI::App* report = study->add_subcommand(
      "report",
      "Analyze a results.json again: report.html, figures/*.svg, results.csv, summary; "
      "several: one page with the studies side by side");
  report
      ->add_option("results", options->results,
                   "A results.json, or the folder that holds one; "
                   "or several of them")
      ->required();
  report->add_option("--out-dir", options->out_dir,
                     "Folder for the files [the folder of results.json]; needed for several");
  report->add_flag("--allow-mixed", options->allow_mixed,
                   "Accept studies whose fingerprints differ for one recipe, and mark them");
  report
      ->add_option("--overlay", options->overlays,
                   "FILE or LABEL=FILE: your own loss curve, laid over the training curves; CSV "
                   "(TensorBoard's export too) or JSON Lines (MaxText, Megatron-LM); repeatable")
      ->allow_extra_args(false);
  report
      ->add_option("--overlay-tokens-per-step", options->tokens_per_step,
                   "Tokens of a step, for overlays that have steps only")
      ->transform(WholeNumber(1, std::uint64_t{1} << 40));
  report->footer(
      StudyExample("  $ fp4lab study run tiny.json > summary 2> progress\n"
                   "  $ fp4lab study report out/tiny --out-dir elsewhere | tail -1\n"
                   "  report: elsewhere/report.html\n"));
  report->callback([=] { RunReport(*options); });
}

}  // namespace fp4lab::tools
