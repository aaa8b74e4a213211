// Inputs on which dialects differ although their formulas are equal in real arithmetic.
#pragma once

#include <span>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// Square tiles of 32x32 under a tensor amax: blocks whose amax lies on or beside a boundary of the
// scale where the dialects' bytes differ, with elements on or beside boundaries of the codes.
Matrix<float> HazardInput(std::span<const Dialect> dialects, float amax);

// Zeros of both signs, zero blocks, scales that underflow, subnormals; and some elements that are
// `special` (NaN, Inf), unless `special` is 0.
Matrix<float> SpecialInput(float special);

}  // namespace fp4lab
