// The table of costs of a report, as HTML.
#pragma once

#include <string>

#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// A row an arm: its products by width (train/model/product_widths.h), their time relative to the
// reference's, the tokens that it takes to match the reference at the primary budget, and the time
// of all products to that equal loss.
std::string CostTable(const Results& results, const Analysis& analysis);

}  // namespace fp4lab::study
