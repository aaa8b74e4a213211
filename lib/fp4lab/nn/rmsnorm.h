// RMS normalization with a gain per column (Zhang & Sennrich 2019), forward and backward.
#pragma once

#include <span>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// x, y (R, C); gain (C); inverse_rms (R) is written for the backward pass.
//   r = 1 / sqrt(sum_c x(i,c)^2 / C + epsilon);   y(i,c) = (x(i,c) * r) * gain(c)
// Views have unit column stride. y may be x.
void RmsNorm(MatrixView<const float> x, std::span<const float> gain, float epsilon,
             MatrixView<float> y, std::span<float> inverse_rms);

// RmsNorm followed by RoundBf16 (nn/round_bf16.h) of y, in one pass. Returns the amax of the
// rounded y, as RoundBf16 does.
float RmsNormToBf16(MatrixView<const float> x, std::span<const float> gain, float epsilon,
                    MatrixView<float> y, std::span<float> inverse_rms);

enum class Write { kOverwrite, kAccumulate };

// With n = x r and e = dy gain:
//   dx(i,c) = r (e(i,c) - n(i,c) sum_k e(i,k) n(i,k) / C);   dgain(c) += sum_i dy(i,c) n(i,c)
// `write` says whether dx is overwritten or added to (the residual stream's gradient). dx may be dy
// if dx is overwritten. The sum over rows is taken in chunks of 64 rows, in order.
void RmsNormBackward(MatrixView<const float> x, std::span<const float> gain,
                     std::span<const float> inverse_rms, MatrixView<const float> dy, Write write,
                     MatrixView<float> dx, std::span<float> dgain);

}  // namespace fp4lab
