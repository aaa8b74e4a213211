// The tables of a report, as HTML.
#pragma once

#include <string>

#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

std::string CriteriaTable(const Analysis& analysis);
std::string LossTable(const Results& results, const Analysis& analysis);
std::string GapTable(const Results& results, const Analysis& analysis);
std::string RatioTables(const Results& results, const Analysis& analysis);
// A table with a column for each of Diagnostics(), and a note that lists the diagnostics that the
// file does not have.
std::string OperandTable(const Results& results);
std::string SetupTables(const Results& results);
// Diverged runs and the noise floor; empty when there are none.
std::string NotesHtml(const Results& results, const Analysis& analysis);

// "1.32 [1.13, 1.55]", "not identified (> 1.41: ...)".
std::string RatioText(const TokenRatio& ratio);

}  // namespace fp4lab::study
