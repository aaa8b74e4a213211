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

// The interval of a gap that statements are made from: it holds both the t interval over seeds and
// the bootstrap over seeds and blocks of the validation text, where chunks of that were kept.
// nullopt without a t interval.
std::optional<Interval> GapInterval(const LossGap& gap, const Analysis& analysis);

// A sentence for the registered contrast at the primary budget, and, without one, for each of up to
// three arms against the reference, or one that groups more arms: "mxfp4 - nvfp4: +0.0230 [-0.0610,
// 0.1060] nats at 26M tokens, not told apart (95 %, 5 seeds and the validation text)". Empty for an
// arm alone,
// and where no loss is there.
std::vector<std::string> VerdictSentences(const Results& results, const Analysis& analysis);

}  // namespace fp4lab::study
