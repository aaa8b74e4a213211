// The analysis of a study, made from its results.
#pragma once

#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// Analyzes `results` with `draws` draws of the bootstrap. Deterministic: equal results give equal
// bytes for any number of threads. Throws Error for criteria that CheckCriteria refuses.
Analysis Analyze(const Results& results, int draws = kBootstrapDraws);

}  // namespace fp4lab::study
