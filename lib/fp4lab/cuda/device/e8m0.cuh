// The E8M0 byte of a block under the rules of OCP, for kernels that take the rule at run time.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/device/convert.cuh"
#include "fp4lab/dialect/stages.h"

namespace fp4lab::cuda {

// `rule`: kFloor, kCeil, kEven or kRceil. max_exponent, mantissa_bits and reciprocal_of_max (1 /
// the largest magnitude, rounded to binary32) are those of the element format.
__device__ inline std::uint8_t E8m0Byte(BlockScale rule, float block_amax, int max_exponent,
                                        int mantissa_bits, float reciprocal_of_max) {
  const std::uint32_t bits = __float_as_uint(block_amax);
  if (rule == BlockScale::kFloor) return FloorByte(bits, max_exponent);
  if (rule == BlockScale::kCeil) return CeilByte(bits, max_exponent);
  if (rule == BlockScale::kEven) return EvenByte(bits, max_exponent, mantissa_bits);
  return UpwardE8m0(block_amax * reciprocal_of_max);
}

}  // namespace fp4lab::cuda
