// "analysis" of a study: what is compared, and by which criteria.
#pragma once

#include <string>

#include "fp4lab/io/json.h"
#include "fp4lab/study/run/file/study_types.h"

namespace fp4lab::study {

// Reads the object at `where` on top of study.analysis. The study's arms and budgets are known.
// Throws Error for an arm that the study lacks, or one whose model the comparison does not allow.
AnalysisConfig ReadAnalysis(const Json& json, const std::string& where, const Study& study);
Json ToJson(const AnalysisConfig& analysis);

}  // namespace fp4lab::study
