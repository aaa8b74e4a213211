// The values of deviations that take one - which sign, which rows, what amax - read off the bytes.
#pragma once

#include <vector>

#include "fp4lab/judge/extent.h"

namespace fp4lab {

// The values worth trying for a deviation of the table that takes one, likeliest first. None where
// the bytes speak against all of them.
std::vector<DeviationValue> ValuesToTry(const Deviation& deviation, const Kernel& kernel,
                                        ByteMatcher& matcher, const Extent& extent);

}  // namespace fp4lab
