// The conclusions of a study that sweeps the learning rate: at the rate that all arms share, at
// each arm's best rate, and the weaker of both.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/study/report/study_report.h"

namespace fp4lab::study {

struct SweepRow {
  std::string quantity, shared, best;
  // The value nearer to no difference (a ratio of 1, a gap of 0), or the lesser verdict; "not
  // identified" where either is.
  std::string weaker;
};

// The token ratio of the contrast and the gap of every arm at the primary budget, and the verdict
// on every criterion, of each model in `models` that has views of a sweep. Empty: there is none.
std::vector<SweepRow> SweepRows(const std::vector<ModelReport>& models);

// The rows as lines for a terminal, and as a section of a page; empty without rows.
std::string SweepText(const std::vector<ModelReport>& models);
std::string SweepHtml(const std::vector<ModelReport>& models);

}  // namespace fp4lab::study
