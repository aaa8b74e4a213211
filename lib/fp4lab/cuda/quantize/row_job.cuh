// The arguments of the kernels of rows.
#pragma once

#include <cuda_runtime_api.h>

#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/cuda/device/divider.cuh"
#include "fp4lab/cuda/quantize/quantize.h"
#include "fp4lab/dialect/block_scale_rules.h"

namespace fp4lab::cuda {

struct RowJob {
  const void* x;
  std::uint32_t octets;  // groups of eight elements, in memory order
  std::uint8_t* codes;
  std::uint8_t* scales;
  std::uint16_t* values;
  const float* amax;
  BlockScale rule;
  KeyedStream random;
  bool swizzled;
  Divider scale_cols;  // divides by the number of scales of a row, for swizzled scales
};

// Stores the scale of block number `block`, counted row by row.
__device__ inline void StoreScale(const RowJob& job, std::uint32_t block, std::uint32_t byte) {
  std::size_t place = block;
  if (job.swizzled) {
    const std::uint32_t row = job.scale_cols.Quotient(block);
    place = Offset128x4(row, block - row * job.scale_cols.divisor, job.scale_cols.divisor);
  }
  job.scales[place] = static_cast<std::uint8_t>(byte);
}

// Launches row16_kernel.cu: NVFP4 of BF16 elements.
void LaunchRows16(const RowJob& job, RandomBits bits, cudaStream_t stream);

}  // namespace fp4lab::cuda
