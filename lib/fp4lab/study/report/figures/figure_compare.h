// The figures of several studies, overlaid against tokens per parameter.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/report/study_report.h"

namespace fp4lab::study {

// Token ratios and gaps, one series a study and pair. A pair has one colour in all studies, a study
// has one shape. A figure without data is left out. `labels` names the studies.
std::vector<Figure> DrawComparison(const std::vector<StudyReport>& studies,
                                   const std::vector<std::string>& labels);

}  // namespace fp4lab::study
