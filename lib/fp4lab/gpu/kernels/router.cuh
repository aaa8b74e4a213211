// The choice of experts (nn/router.h) and the rows of experts on the device, with the CPU's bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/nn/router.h"

namespace fp4lab::gpu {

inline constexpr std::uint32_t kNoToken = 0xFFFFFFFFu;
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

// The rows of experts: slot `first[e]` is the first of expert e. token (slots): of each slot,
// kNoToken for padding. slot (R, top_k): of each choice.
void PlaceSlots(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* first,
                std::size_t slots, std::uint32_t* slot, std::uint32_t* token, cudaStream_t stream);

// gathered (slots, cols) = the rows of x, rounded to T; zeros for padding.
template <class T>
void GatherRows(const float* x, const std::uint32_t* token, std::size_t slots, std::size_t cols,
                T* gathered, cudaStream_t stream);
// out (R, cols) = base + weight * results(slot) of each choice, in order. out may be base.
void AddExperts(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* slot,
                const float* results, std::size_t cols, const float* base, float* out,
                cudaStream_t stream);
// d_results (slots, cols) = weight * dy, rounded to T, zeros for padding; d_weights (R, top_k) =
// the dot products of dy and results, in double in an order of their own.
template <class T>
void AddExpertsBackward(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* slot,
                        std::size_t slots, const float* results, const float* dy, std::size_t cols,
                        T* d_results, float* d_weights, cudaStream_t stream);
// d_x (R, cols) = d_x if `adds`, or 0, then + d_inputs(slot) of each choice in order and d_router.
void AddInputGradients(std::size_t rows, std::size_t top_k, const std::uint32_t* slot,
                       const float* d_inputs, const float* d_router, std::size_t cols, bool adds,
                       float* d_x, cudaStream_t stream);

// gradient(e) += by how many tokens expert e had more than the mean.
void AddSurplus(const DeviceRouting& routing, std::size_t top_k, float* gradient,
                cudaStream_t stream);
// Moves each bias by `rate` against the sign of its gradient (ParameterKind::kBalance).
void BalanceStep(float rate, std::size_t size, const float* gradient, float* bias,
                 cudaStream_t stream);

}  // namespace fp4lab::gpu
