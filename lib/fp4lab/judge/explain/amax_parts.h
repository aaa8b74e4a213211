// Parts of a matrix, each scaled by its own amax: several ranks, or joined projections.
#pragma once

#include <vector>

#include "fp4lab/judge/kernels/match.h"

namespace fp4lab {

// Partitions into rows, then into columns, read off the S that fits each row (column) of blocks:
// values of the deviation "amax-of-parts". Empty if one S fits all, or more than AmaxParts::kMost
// parts would be needed.
std::vector<DeviationValue> PartsToTry(const Kernel& kernel, ByteMatcher& matcher);

}  // namespace fp4lab
