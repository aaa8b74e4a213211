// Several studies on one page: a table of all their arms, overlaid figures against tokens per
// parameter, and the sections of each study.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/study/report/figures/overlay.h"
#include "fp4lab/study/report/report.h"

namespace fp4lab::study {

// Two arms of two studies that should have the same numerics and do not. A fingerprint is measured
// from the recipe, the activation, whether the head is tied, and the device
// (study/run/record/fingerprint.h); arms that agree in these and differ in the fingerprint were
// trained by builds, or on chips, whose numbers differ. Arms of different recipes differ by nature.
struct NumericsConflict {
  std::size_t first = 0, second = 0;  // of the studies
  std::string first_arm, second_arm;
  std::string first_numerics, second_numerics;
};
std::vector<NumericsConflict> NumericsConflicts(const std::vector<StudyReport>& studies);

// The label of each study on a page about several: its name, and its folder too where names repeat.
std::vector<std::string> LabelsOf(const std::vector<StudyReport>& studies);

// The page; `conflicts` are marked in it. Gaps and token ratios of its first table stand at the
// largest budget that all studies have or, where they have none in common, at each study's largest.
std::string ComparisonHtml(const std::vector<StudyReport>& studies,
                           const std::vector<NumericsConflict>& conflicts,
                           const std::vector<Overlay>& overlays = {});

struct ComparisonOptions {
  std::filesystem::path out_dir;  // must not be empty
  bool allow_mixed = false;       // accept conflicts, and mark them
  std::vector<Overlay> overlays = {};
};
// Writes report.html and figures/compare_*.svg into out_dir. Throws Error, with both files named,
// for the first conflict, unless conflicts are allowed. The same results give the same bytes.
ReportFiles WriteComparison(const std::vector<std::filesystem::path>& files,
                            const ComparisonOptions& options);

}  // namespace fp4lab::study
