#include "fp4lab/gpu/quantize/delayed_scaling.cuh"

namespace fp4lab::gpu {
namespace {

constexpr unsigned kThreads = 256;

__global__ void TakeKernel(float* history, bool records, std::uint32_t* amax) {
  const float now = __uint_as_float(*amax);
  if (records && now > history[1]) history[1] = now;
  *amax = __float_as_uint(history[0]);
}

// One thread block per operand.
__global__ void __launch_bounds__(kThreads)
    AdvanceKernel(const DelayedScaling* scalings, float* all, std::size_t stride) {
  const DelayedScaling scaling = scalings[blockIdx.x];
  float* const numbers = all + blockIdx.x * stride;
  if (scaling.length == 0) return;
  __shared__ unsigned largest;  // float bits: an amax is never negative or NaN
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  // The loop moves the history by one entry in pieces of kThreads, the oldest piece first, so that
  // every piece is read before younger entries overwrite it.
  for (unsigned end = scaling.length + 1u; end > 1; end = end > kThreads ? end - kThreads : 1) {
    const unsigned i = end - 1 - threadIdx.x;
    const bool is_history = end > 1 + threadIdx.x && i >= 1;
    const float amax = is_history ? numbers[i] : 0.0f;
    if (amax > 0.0f) atomicMax(&largest, __float_as_uint(amax));
    const float newest = numbers[1];
    __syncthreads();
    if (is_history && i < scaling.length) numbers[i + 1] = amax;
    if (is_history && i == 1) {
      numbers[0] = NextAmax(scaling, numbers[0], newest, __uint_as_float(largest));
      numbers[1] = 0.0f;
    }
    __syncthreads();
  }
}

}  // namespace

void TakeDelayedAmax(float* history, bool records, std::uint32_t* amax, cudaStream_t stream) {
  Expects(history != nullptr, "delayed scaling has a history");
  TakeKernel<<<1, 1, 0, stream>>>(history, records, amax);
  CheckLaunch("TakeDelayedAmax");
}

void AdvanceAmaxHistories(const DelayedScaling* scalings, std::size_t operands, float* numbers,
                          std::size_t stride, cudaStream_t stream) {
  if (operands == 0) return;
  AdvanceKernel<<<static_cast<unsigned>(operands), kThreads, 0, stream>>>(scalings, numbers,
                                                                          stride);
  CheckLaunch("AdvanceAmaxHistories");
}

}  // namespace fp4lab::gpu
