// What the kernels of block-scaled products share: the job, rows of any alignment, the output.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/block_scaled_gemm.h"
#include "fp4lab/cuda/mma_step.h"

namespace fp4lab::cuda {

inline constexpr unsigned kChunk = 16;                       // bytes that are loaded at once
inline constexpr unsigned kScaleTile = 512, kScaleCols = 4;  // of ScaleOrder::k128x4

struct GemmJob {
  std::size_t m, n, k;
  BlockScaledOperand a, b;
  const float* alpha;
  bool accumulate, in_chunks;  // in_chunks: all rows are whole, aligned chunks
  float* d;
};

inline GemmJob JobOf(const BlockScaledProblem& p) {
  const auto aligned = [](const std::uint8_t* x) {
    return reinterpret_cast<std::uintptr_t>(x) % kChunk == 0;
  };
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .a = p.a,
          .b = p.b,
          .alpha = p.alpha,
          .accumulate = p.accumulate,
          .in_chunks = p.k % (2 * kChunk) == 0 && aligned(p.a.codes) && aligned(p.b.codes),
          .d = p.d};
}

// The first row and column of this thread block's tile of d.
struct TileOrigin {
  std::size_t row, col;
};
__device__ inline TileOrigin OriginOf(const GemmJob& job, unsigned tile) {
  const std::size_t across = (job.n + tile - 1) / tile;
  return {blockIdx.x / across * tile, blockIdx.x % across * tile};
}

// A chunk of a row from byte `first`, any alignment; zeros past the row's end, in the nibble of an
// odd k too.
__device__ inline void LoadBytes(const std::uint8_t* row, std::size_t first, std::size_t k,
                                 std::uint8_t* to) {
  for (unsigned i = 0; i < kChunk; ++i) {
    const std::size_t element = 2 * (first + i);
    const std::uint8_t byte = element < k ? row[first + i] : 0;
    to[i] = element + 1 == k ? byte & 0x0Fu : byte;
  }
}

// A word of four scales without those past the end, where `groups` are left: 0 is no NaN.
__device__ inline std::uint32_t ExistingScales(std::uint32_t word, std::size_t groups) {
  return groups >= kScaleCols ? word : word & ((1u << static_cast<unsigned>(groups) * 8) - 1);
}

__device__ inline float Finished(std::uint32_t accumulator, float alpha) {
  const float y = __uint_as_float(accumulator) * alpha;
  return y != y ? __uint_as_float(kMmaNan) : y;
}
__device__ inline float AlphaOf(const GemmJob& job) {
  return job.alpha == nullptr ? 1.0f : *job.alpha;
}

}  // namespace fp4lab::cuda
