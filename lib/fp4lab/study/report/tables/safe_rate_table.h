// The largest safe learning rate of each arm (analysis/safe_rate.h), for a terminal and for a page.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/study/report/study_report.h"

namespace fp4lab::study {

// A table for each model in `models` whose analysis has safe rates; empty: none has.
std::string SafeRateText(const std::vector<ModelReport>& models);
std::string SafeRateHtml(const std::vector<ModelReport>& models);

}  // namespace fp4lab::study
