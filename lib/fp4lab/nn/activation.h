// The non-linearities of the feed-forward block, forward and backward, element by element.
#pragma once

#include "fp4lab/base/matrix.h"

namespace fp4lab {

enum class Activation { kSquaredRelu, kGelu, kSwiglu };

// All views have the same shape and unit column stride. An output may be an input.

// y = max(x, 0)^2;  dx = dy * (2 max(x, 0)).  (So et al. 2021, Primer.)
void SquaredRelu(MatrixView<const float> x, MatrixView<float> y);
void SquaredReluBackward(MatrixView<const float> x, MatrixView<const float> dy,
                         MatrixView<float> dx);

// y = 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), computed as x sigmoid(2 u).
void Gelu(MatrixView<const float> x, MatrixView<float> y);
void GeluBackward(MatrixView<const float> x, MatrixView<const float> dy, MatrixView<float> dx);

// The functions above followed by RoundBf16 (nn/round_bf16.h) of their result, in one pass. They
// return the amax of the rounded result, as RoundBf16 does.
float SquaredReluToBf16(MatrixView<const float> x, MatrixView<float> y);
float SquaredReluBackwardToBf16(MatrixView<const float> x, MatrixView<const float> dy,
                                MatrixView<float> dx);
float GeluToBf16(MatrixView<const float> x, MatrixView<float> y);
float GeluBackwardToBf16(MatrixView<const float> x, MatrixView<const float> dy,
                         MatrixView<float> dx);

// y = gate sigmoid(gate) up.  (Shazeer 2020.)
void Swiglu(MatrixView<const float> gate, MatrixView<const float> up, MatrixView<float> y);
void SwigluBackward(MatrixView<const float> gate, MatrixView<const float> up,
                    MatrixView<const float> dy, MatrixView<float> dgate, MatrixView<float> dup);

}  // namespace fp4lab
