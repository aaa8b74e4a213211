// The floating-point operations of a training step.
#pragma once

#include "fp4lab/train/config.h"

namespace fp4lab {

// FLOP of the products of one step's forward and backward pass over all its tokens, two for each
// multiplication and addition, as MaxText 0.2.5 counts them (calculate_tflops_training_per_device):
//   6 in out   for each token and weight matrix: linears of the blocks, routers and the head. Of
//              experts, those that a token takes, so the share that LinearShape::share states.
//   6 columns  for each query and key that it sees, with Part::attention_columns: half the square
//              of the sequence, for the causal mask, or what a window leaves of it.
// Norms, activations, the optimizer and what quantization computes do not count, and nothing
// counts twice that is computed again.
double StepFlops(const TrainConfig& config);

}  // namespace fp4lab
