// Criteria: what a study said beforehand would count as a reproduction, as data, and the verdicts.
//
// Each is an object {"kind": ..., "arms": [...], ...}; gaps are taken to the study's reference arm,
// losses are those in the precision of the training.
//   mean_order         arms a, b, ...: the mean losses rise in this order. "tokens": "all"
//                      (default: at every budget) | "primary" | "largest".
//   seed_order         the same in at least "seed_share" (default 0.8) of the seeds. "tokens".
//   gap_ratio          arms a, b: "low" <= gap(a) / gap(b) <= "high". "tokens".
//   token_ratio        arms f, R: the token ratio lies in ["low", "high"] at every budget of at
//                      least "minimum_tokens" (nominal: 5 percent less will do), and, if
//                      "excludes_one" (default true), its t interval excludes 1. By the crossing
//                      estimator, in the extend form; in the shrink form where that is not
//                      identified, as at the largest budget.
//   token_ratio_grows  arms f, R: at every budget of at least "minimum_tokens" the token ratio is
//                      larger than at the smallest budget.
//   small_gap          arms a, b: at the largest budget gap(a) <= "share" (default 0.25) of gap(b)
//                      and within "standard_errors" (default 2) of 0.
// A diverged run counts as a loss of +infinity.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/analysis.h"
#include "fp4lab/study/results_file.h"

namespace fp4lab::study {

// Error at the JSON pointer for an unknown kind, key or arm.
void CheckCriteria(const Json& criteria, const std::vector<std::string>& arms,
                   const std::string& where);

std::vector<CriterionResult> EvaluateCriteria(const Results& results, const Analysis& analysis);

}  // namespace fp4lab::study
