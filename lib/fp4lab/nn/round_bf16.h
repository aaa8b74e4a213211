// Rounding a matrix to BF16 and finding its largest magnitude, in one pass.
#pragma once

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// out = RoundToBf16(x) element by element (RNE; overflow gives Inf, NaN gives the NaN 0x7FC00000).
// Returns TensorAmax(out). Unit column stride; out may be x.
float RoundBf16(MatrixView<const float> x, MatrixView<float> out);

namespace reference {
float RoundBf16(MatrixView<const float> x, MatrixView<float> out);
}

}  // namespace fp4lab
