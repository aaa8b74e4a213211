// The choice of experts (nn/router.h) on the device, with the CPU's bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/nn/router.h"

namespace fp4lab::gpu {

// Choices whose places are found together.
inline constexpr unsigned kRankChunk = 256;

// Routing of R tokens in device memory.
struct DeviceRouting {
  std::size_t rows = 0, experts = 0;
  float* scores = nullptr;          // (R, E)
  float* weights = nullptr;         // (R, top_k)
  std::uint32_t* chosen = nullptr;  // (R, top_k)
  std::uint32_t* counts = nullptr;  // (E)
  std::uint32_t* rank = nullptr;    // (R, top_k): the place among the tokens of the chosen expert
  std::uint32_t* before = nullptr;  // (chunks of kRankChunk choices, E), for Route
};

// logits (R, E); bias (E) or null.
void Route(const RouterOptions& options, const float* logits, const float* bias,
           const DeviceRouting& routing, cudaStream_t stream);
// d_weights (R, top_k), d_logits (R, E).
void RouteBackward(const RouterOptions& options, const DeviceRouting& routing,
                   const float* d_weights, float loss_scale, float* d_logits, cudaStream_t stream);

// gradient(e) += by how many tokens expert e had more than the mean.
void AddSurplus(const DeviceRouting& routing, std::size_t top_k, float* gradient,
                cudaStream_t stream);
// Moves each bias by `rate` against the sign of its gradient (ParameterKind::kBalance).
void BalanceStep(float rate, std::size_t size, const float* gradient, float* bias,
                 cudaStream_t stream);

}  // namespace fp4lab::gpu
