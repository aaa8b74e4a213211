// The router's products on the device, in binary32 under every recipe. A router has few outputs,
// for which cuBLASLt's products take several times what reading x takes.
#pragma once

#include <cstddef>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"

namespace fp4lab::gpu {

// logits (R, E) = x w^T with the CPU's bits (tensor/gemm.h): fma over ascending columns. x (R,
// cols), w (E, cols).
void RouterLogits(const float* x, const float* w, std::size_t rows, std::size_t cols,
                  std::size_t experts, float* logits, cudaStream_t stream);

// Adds d_logits^T x to dw (E, cols): sums over kRouterChunk rows, then over the chunks, in a fixed
// order. `partials` (chunks of the rows, E, cols). `place` on the device says {0, E * cols}.
inline constexpr std::size_t kRouterChunk = 128;
void AddRouterWeightGradient(const float* d_logits, const float* x, std::size_t rows,
                             std::size_t cols, std::size_t experts, float* partials,
                             const GainPlace* place, float* dw, cudaStream_t stream);

}  // namespace fp4lab::gpu
