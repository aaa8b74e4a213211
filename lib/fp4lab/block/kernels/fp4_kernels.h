// Internals shared by the implementations of fp4_integers.h.
#pragma once

#include "fp4lab/block/fp4_integers.h"

namespace fp4lab::internal {

// Sets the scales below 2^-60 of all-zero blocks to +0. Returns whether every scale is then +0 or
// in [2^-60, 2^58].
bool FinishFp4Scales(const Dialect& dialect, const Fp4Integers& out);

}  // namespace fp4lab::internal
