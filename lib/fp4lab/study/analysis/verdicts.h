// The verdict on each kind of criterion; criteria.h defines the kinds.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/results/loss_cube.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// A criterion of a study, with the defaults of the keys that it leaves out.
struct Criterion {
  std::string kind, claim, source;
  std::vector<std::string> arms;
  std::string tokens = "all";
  double low = 0, high = 0, minimum_tokens = 0, seed_share = 0.8, share = 0.25;
  double standard_errors = 2;
  bool excludes_one = true;
};

// The inputs of every verdict.
struct Context {
  const Results& results;
  const Analysis& analysis;
  LossCube losses;  // of the runs, in the precision of training
};

CriterionResult MeanOrder(const Context& context, const Criterion& criterion);
CriterionResult SeedOrder(const Context& context, const Criterion& criterion);
CriterionResult GapRatio(const Context& context, const Criterion& criterion);
CriterionResult RatioRange(const Context& context, const Criterion& criterion);
CriterionResult RatioGrows(const Context& context, const Criterion& criterion);
CriterionResult SmallGap(const Context& context, const Criterion& criterion);

}  // namespace fp4lab::study
