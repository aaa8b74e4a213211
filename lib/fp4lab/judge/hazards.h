// Inputs on which dialects part whose formulas are equal in real numbers.
#pragma once

#include <span>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// Under this tensor amax, square tiles of 32x32: blocks whose amax lies on or beside a boundary of
// the scale where the dialects' bytes differ, with elements on or beside boundaries of the codes.
Matrix<float> HazardInput(std::span<const Dialect> dialects, float amax);

// Zeros of both signs, zero blocks, scales that underflow, subnormals; and, unless it is 0, some
// elements that are `special` (NaN, Inf).
Matrix<float> SpecialInput(float special);

}  // namespace fp4lab
