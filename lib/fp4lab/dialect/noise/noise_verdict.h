// Tests whether codes are those of a rounding that adds noise (dialect/noise/added_noise.h), from
// the codes alone.
//
// Statistics, in this order: `codes` (every code can be reached, which is certain), `rates` (how
// often each magnitude occurs, and how often a code lies above the likeliest one: of all
// elements and by column mod 16), `neighbours` (two elements of a pair of columns lie above it
// together) and, for several runs, `repetitions` (an element lies above it in two successive runs).
// Each sum is tested by an exact tail or Chernoff's bound (formats/tail_bounds.h). A correct kernel
// is refused with probability `error_rate` at most.
#pragma once

#include "fp4lab/dialect/noise/added_noise.h"
#include "fp4lab/formats/stochastic_verdict.h"

namespace fp4lab {

// `sample.form` is not used, and `power` of the verdict is not set. Fewer than 512 elements that
// have two codes are kUndecided.
StochasticVerdict JudgeAddedNoise(const AddedNoise& noise, const StochasticSample& sample,
                                  double error_rate = 1e-6);

}  // namespace fp4lab
