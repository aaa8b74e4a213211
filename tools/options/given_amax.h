// The amax that a user gives in place of the matrix's own: --amax.
#pragma once

#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab::tools {

// Refuses a count of numbers that the dialect does not take, a number that is negative, NaN or Inf,
// and 0 where the matrix (or the row) has another element than 0. Says on standard error, in one
// line, that an amax is smaller than that of the elements: their scales saturate. `x` is what the
// quantizer gets, after the Hadamard transform. Nothing is checked where `amax` is empty.
void CheckGivenAmax(const std::vector<float>& amax, const Dialect& dialect,
                    MatrixView<const float> x);
// The checks that need no matrix: signs, NaN and Inf.
void CheckGivenAmax(const std::vector<float>& amax);

}  // namespace fp4lab::tools
