// Maxima of magnitudes over a thread block. Non-negative floats are ordered as their bits, read as
// integers.
#pragma once

#include <cstdint>

namespace fp4lab::cuda {

// max(amax, |x|); NaN is ignored.
__device__ inline float LargerMagnitude(float amax, float x) { return fmaxf(amax, fabsf(x)); }

// *out = max(*out, amax over all threads of the thread block), as binary32 bits. Every thread calls
// this function.
template <int kThreads>
__device__ void StoreBlockAmax(float amax, unsigned* out) {
  __shared__ unsigned of_warps[kThreads / 32];
  unsigned bits = __reduce_max_sync(0xFFFFFFFFu, __float_as_uint(amax));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = bits;
  __syncthreads();
  if (threadIdx.x < 32) {
    bits = threadIdx.x < kThreads / 32 ? of_warps[threadIdx.x] : 0u;
    bits = __reduce_max_sync(0xFFFFFFFFu, bits);
    if (threadIdx.x == 0 && bits != 0) atomicMax(out, bits);
  }
  __syncthreads();  // of_warps may be written again
}

}  // namespace fp4lab::cuda
