// The rows of experts on the device: a token's row goes to each of its experts, their results come
// back. Slot `first[e]` is the first of expert e, whose rows are padded to a multiple of `pad`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/gpu/kernels/router.cuh"

namespace fp4lab::gpu {

// slot (R, top_k): of each choice. first (E).
void PlaceSlots(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* first,
                std::uint32_t* slot, cudaStream_t stream);

// Where the padding of each expert stands: counts (E) without it, first (E).
struct ExpertPadding {
  const std::uint32_t *counts = nullptr, *first = nullptr;
  std::size_t experts = 0, pad = 1;
};

// spread (slots, cols) = the rows of x (R, cols), rounded to T, at the slots of their choices;
// zeros for padding.
template <class T>
void SpreadRows(const float* x, std::size_t rows, std::size_t top_k, const std::uint32_t* slot,
                const ExpertPadding& padding, std::size_t cols, T* spread, cudaStream_t stream);
// out (R, cols) = base + weight * results(slot) of each choice, in order. out may be base.
void AddExperts(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* slot,
                const float* results, std::size_t cols, const float* base, float* out,
                cudaStream_t stream);
// d_results (slots, cols) = weight * dy, rounded to T, zeros for padding; d_weights (R, top_k) =
// the dot products of dy and results, in double in an order of their own.
template <class T>
void AddExpertsBackward(const DeviceRouting& routing, std::size_t top_k, const std::uint32_t* slot,
                        const ExpertPadding& padding, const float* results, const float* dy,
                        std::size_t cols, T* d_results, float* d_weights, cudaStream_t stream);

// The gradient of the router's logits (R, E) and its weight (E, cols).
struct RouterGradient {
  const float *d_logits = nullptr, *w = nullptr;
  std::size_t experts = 0;
};
// d_x (R, cols) = d_x if `adds`, or 0, then + d_inputs(slot) of each choice in order, then
// + d_logits w, whose sums are the CPU's: fma over ascending experts.
void AddInputGradients(std::size_t rows, std::size_t top_k, const std::uint32_t* slot,
                       const float* d_inputs, const RouterGradient& router, std::size_t cols,
                       bool adds, float* d_x, cudaStream_t stream);

}  // namespace fp4lab::gpu
