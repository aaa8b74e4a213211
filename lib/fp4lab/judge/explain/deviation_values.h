// Values of deviations that take one (which sign, which rows, which amax), read off the bytes.
#pragma once

#include <vector>

#include "fp4lab/judge/explain/extent.h"

namespace fp4lab {

// The values to try for a deviation of the table that takes one, likeliest first. Empty if the
// bytes contradict all of them.
std::vector<DeviationValue> ValuesToTry(const Deviation& deviation, const Kernel& kernel,
                                        ByteMatcher& matcher, const Extent& extent);

}  // namespace fp4lab
