// The evaluation's additions to the numbers of a study: the error of the validation text, and
// quantized forward passes.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/several/joined_study.h"

namespace fp4lab::study {

// The length of the blocks of neighbouring chunks of the validation text that are drawn together.
inline constexpr std::size_t kTextBlock = 32768;  // bytes
// The same in chunks of the study; 1 where it does not say how long a chunk is.
std::size_t TextBlockOf(const JoinedStudy& study);

// The standard deviation, over `draws` resamples of blocks of chunks of the validation text, of the
// sum at a budget, mean over seeds. NaN for a study with fewer than two chunks.
double TextErrorOf(const JoinedStudy& study, const LossTerms& terms, std::size_t budget, int draws);
// The interval mean +- the root of the squares of the half-width over seeds and of 1.96 times the
// error of the text, as JSON; null without either.
Json IntervalWithText(const Json& number, double text_error);

// Of a study whose tokens are bytes:
// - "gaps" of the two formats to the reference at each budget and "ratios" of the second to the
//   first, each with the t interval over seeds and "interval_with_text", and "ratio_of_gaps" with
//   Fieller's interval, null where it is unbounded;
// - "high" of a gap, and "high_ratios": the same where products in high precision evaluate the same
//   weights, if the study has these losses.
// All seeds are validated on the same bytes, so that their scatter does not hold the error of that
// text: the standard deviation over `draws` resamples of blocks of chunks of the mean over seeds,
// whose curves give the ratio. The interval with text adds 1.96 times it to the half-width over
// seeds, as a root of squares; it is null where a study has fewer than two chunks.
Json EvaluationOf(const JoinedStudy& study, std::size_t reference,
                  const std::array<std::size_t, 2>& formats, int draws);

}  // namespace fp4lab::study
