// The shared parts of the kernels of block-scaled products: the job, loads of any alignment, the
// epilogue.
#pragma once

#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/cuda/gemm/block_scaled_gemm.h"
#include "fp4lab/cuda/gemm/mma_step.h"

namespace fp4lab::cuda {

inline constexpr unsigned kChunk = 16;                       // bytes of one load
inline constexpr unsigned kScaleTile = 512, kScaleCols = 4;  // of ScaleOrder::k128x4

struct GemmJob {
  std::size_t m, n, k;
  BlockScaledOperand a, b;
  const float* alpha;
  bool accumulate, in_chunks;  // in_chunks: all rows are whole, aligned chunks
  float* d;
};

inline GemmJob JobOf(const BlockScaledProblem& p) {
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .a = p.a,
          .b = p.b,
          .alpha = p.alpha,
          .accumulate = p.accumulate,
          .in_chunks = p.k % (2 * kChunk) == 0 && IsAligned(p.a.codes, kChunk) &&
                       IsAligned(p.b.codes, kChunk),
          .d = p.d};
}

// The first row and column of this thread block's tile of d.
struct TileOrigin {
  std::size_t row, col;
};
__device__ inline TileOrigin OriginOf(const GemmJob& job, unsigned tile) {
  const std::size_t across = DivideUp(job.n, tile);
  return {blockIdx.x / across * tile, blockIdx.x % across * tile};
}

// Copies a chunk of a row from byte `first` on, at any alignment. Bytes past the end of the row's k
// elements are zero, and so is the upper nibble of the last byte if k is odd.
__device__ inline void LoadBytes(const std::uint8_t* row, std::size_t first, std::size_t k,
                                 std::uint8_t* to) {
  for (unsigned i = 0; i < kChunk; ++i) {
    const std::size_t element = 2 * (first + i);
    const std::uint8_t byte = element < k ? row[first + i] : 0;
    to[i] = element + 1 == k ? byte & 0x0Fu : byte;
  }
}

// Four scales, of which those past the end are set to 0, because the padding may hold NaN; `groups`
// groups are left.
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
