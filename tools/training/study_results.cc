#include "tools/training/study_results.h"

#include <atomic>

#include "fp4lab/io/shared_lock.h"
#include "fp4lab/study/report/report.h"
#include "fp4lab/study/results/results_file.h"
#include "fp4lab/study/run/cluster/collect.h"
#include "fp4lab/study/run/record/results.h"
#include "tools/options/print.h"
#include "tools/options/version.h"

namespace fp4lab::tools {

void WriteResults(const study::Study& study, const Corpus& corpus, const study::Outcome& outcome,
                  const std::filesystem::path& out_dir) {
  Json results = study::ResultsJson(study, corpus, outcome);
  results["fp4lab_commit"] = BuildCommit();
  const std::atomic<bool> never{false};
  SharedLock lock;
  study::WaitForLock(
      out_dir, &lock, [](const std::string& line) { Note("%s\n", Printable(line).c_str()); },
      never);
  WriteFileAtomically(out_dir / "results.json", study::ResultsText(results));
  const study::ReportFiles files = study::WriteReport(out_dir);
  Print("%s\nreport: %s\n", files.summary.c_str(), Printable(files.html.string()).c_str());
}

bool CollectResults(const std::filesystem::path& out_dir) {
  study::CheckPlacesOfReport(out_dir);
  const study::Collected all = study::Collect(out_dir);
  for (const std::string& note : all.notes) Note("note: %s\n", Printable(note).c_str());
  WriteResults(all.study, all.corpus, all.outcome, out_dir);
  if (all.missing.empty()) return true;
  Note("note: %s; the report is of the %zu seeds that every arm has complete\n",
       Printable(study::MissingText(all.missing, all.runs)).c_str(), all.study.seeds.size());
  return false;
}

bool IsPartialStudy(const std::filesystem::path& folder) {
  return Exists(folder / "study.json") && !Exists(folder / "results.json");
}

}  // namespace fp4lab::tools
