// Criteria, which a study registers before its runs to say what counts as a reproduction, and their
// verdicts.
//
// A criterion is an object {"kind": ..., "arms": [...], ...}. "source" names the figure or table of
// the published result that the criterion tests, and "claim" repeats that result in words; the
// verdict on such a criterion is "reproduced", "not reproduced" or "not identified". Gaps are taken
// to the study's reference arm; losses are those in the precision of the training.
//   mean_order         arms a, b, ...: the mean losses rise in this order. "tokens": "all"
//                      (default: at every budget) | "primary" | "largest". With a "source" every
//                      neighbouring pair must be resolved: the t interval of its paired difference
//                      lies above 0 (holds) or below 0 (fails); else the claim is not identified.
//   seed_order         arms a, b, ...: the losses rise in this order in at least "seed_share"
//                      (default 0.8) of the seeds. "tokens" as above.
//   gap_ratio          arms a, b: "low" <= gap(a) / gap(b) <= "high". "tokens" as above. Not
//                      evaluable where Fieller's interval is unbounded: gap(b) may be 0.
//   token_ratio        arms f, R: the token ratio lies in ["low", "high"] at every budget of at
//                      least "minimum_tokens" (nominal: a budget up to 5 percent smaller counts),
//                      and, if "excludes_one" (default true), its t interval excludes 1. The ratio
//                      is the crossing estimator's extend form; where that form is not identified,
//                      as at the largest budget, its shrink form. Not evaluable where another
//                      estimator lies outside the ratio's interval.
//   token_ratio_grows  arms f, R: at every budget of at least "minimum_tokens" the token ratio is
//                      larger than at the smallest budget, in the extend form or else the shrink
//                      form, by the t interval of its growth. Not evaluable where that interval
//                      includes 1, and where neither form is identified at both budgets.
//   small_gap          arms a, b: at the largest budget gap(a) <= "share" (default 0.25) of gap(b)
//                      and within "standard_errors" (default 2) of 0.
// A diverged run counts as a loss of +infinity.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// Throws Error, at the JSON pointer below `where`, for an unknown kind, key or arm, a wrong number
// of arms, or bounds that are not ordered.
void CheckCriteria(const Json& criteria, const std::vector<std::string>& arms,
                   const std::string& where);

// One verdict for each criterion of the study, in its order. Throws Error as CheckCriteria does.
std::vector<CriterionResult> EvaluateCriteria(const Results& results, const Analysis& analysis);

}  // namespace fp4lab::study
