// AdamW (Loshchilov & Hutter 2019) on flat binary32 master weights, and the global gradient norm.
#pragma once

#include <cstdint>
#include <span>

namespace fp4lab {

struct AdamW {
  float learning_rate = 0.0f;
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
  float weight_decay = 0.0f;    // decoupled; 0 for tensors that do not decay
  float gradient_scale = 1.0f;  // clip factor, applied to the gradient first
  std::int64_t step = 1;        // 1 for the first update
};

// With c1 = 1 / (1 - beta1^step), c2 = 1 / (1 - beta2^step) (in double, rounded once), each
// operation below rounded in binary32, in this order:
//   g = gradient * gradient_scale
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) (g g)
//   u = (c1 m) / (sqrt(c2 v) + epsilon)
//   weight = weight - learning_rate (u + weight_decay weight)
void AdamWStep(const AdamW& options, std::span<const float> gradient, std::span<float> weight,
               std::span<float> m, std::span<float> v);

// Sum of squares in double: chunks of 4096 elements by 16 lanes and a fixed tree, chunks in order.
double SumOfSquares(std::span<const float> x);

// The factor that brings a global gradient norm down to `clip`: clip / norm where norm > clip,
// else 1. `clip` <= 0 means no clipping. A NaN norm gives 1: the caller reports it.
float ClipFactor(double norm, float clip);

}  // namespace fp4lab
