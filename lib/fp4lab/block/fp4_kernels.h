// What the implementations of fp4_integers.h share.
#pragma once

#include "fp4lab/block/fp4_integers.h"

namespace fp4lab::internal {

// Scales below 2^-60 of blocks of zeros become +0; whether all scales are in range then.
bool FinishFp4Scales(const BlockFormat& format, const Fp4Integers& out);

}  // namespace fp4lab::internal
