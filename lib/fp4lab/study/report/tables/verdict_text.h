// What the intervals of a study tell, in words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp4lab/study/analysis/analysis.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// "told apart" if the interval lies on one side of `equal`, else "not told apart"; without an
// interval, "no interval from 2 seeds".
std::string ToldApart(const std::optional<Interval>& interval, double equal, std::size_t seeds);

// A sentence for the registered contrast at the primary budget, and, without one, for each of up to
// three arms against the reference, or one that groups more arms: "mxfp4 - nvfp4: +0.0230 [-0.0610,
// 0.1060] nats at 26M tokens, not told apart (95 % t interval, 5 seeds)". Empty for an arm alone,
// and where no loss is there.
std::vector<std::string> VerdictSentences(const Results& results, const Analysis& analysis);

}  // namespace fp4lab::study
