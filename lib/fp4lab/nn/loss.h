// Softmax cross-entropy of logits against target tokens, in nats.
#pragma once

#include <cstdint>
#include <span>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// logits (R, V), targets and row_loss (R). With m the row's maximum and l = sum_c exp(z_c - m)
// (base/simd/reduce.h; exp is 0 below 2^-126): row_loss = ln(l) - (z_target - m), in double.
// Returns the mean of row_loss: its sum in double in row order, divided by R.
double CrossEntropy(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                    std::span<double> row_loss);

// CrossEntropy, and the gradient: dlogits(r,c) = exp(z_c - m) (scale (1 / l)) - [c = target] scale.
// `scale` is 1 / R for the gradient of the mean, or 1 / (R * micro-batches) if the gradients of
// several micro-batches add up. dlogits may be logits.
double CrossEntropyGradient(MatrixView<const float> logits, std::span<const std::uint16_t> targets,
                            float scale, std::span<double> row_loss, MatrixView<float> dlogits);

}  // namespace fp4lab
