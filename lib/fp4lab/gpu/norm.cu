// RMSNorm, forward and backward, in the order of nn/rmsnorm.cc: a half-warp is the 16 virtual
// lanes.
#include "fp4lab/gpu/kernels.cuh"
#include "fp4lab/gpu/math.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / kHalfWarp;

// Rows beyond the end repeat the last one, so that no lane is missing from a shuffle.
__device__ inline std::size_t Row(std::size_t rows) {
  const std::size_t row = std::size_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kHalfWarp;
  return row < rows ? row : rows - 1;
}

template <class T>
__global__ void RmsNormKernel(const float* x, const float* gain, float epsilon, std::size_t rows,
                              std::size_t cols, T* y, float* inverse_rms) {
  const std::size_t row = Row(rows);
  const unsigned lane = threadIdx.x % kHalfWarp;
  const float* in = x + row * cols;
  float squares = 0.0f;
#pragma unroll 8
  for (std::size_t c = lane; c < cols; c += kHalfWarp) squares = squares + in[c] * in[c];
  squares = SumOfLanes(squares);
  const float r = 1.0f / sqrtf(squares / static_cast<float>(cols) + epsilon);
  T* out = y + row * cols;
  for (std::size_t c = lane; c < cols; c += kHalfWarp) Store(out + c, (in[c] * r) * gain[c]);
  if (lane == 0) inverse_rms[row] = r;
}

// What a block's threads know of its rows.
struct RowFacts {
  float mean[kRowsPerBlock], inverse[kRowsPerBlock];
};

// A half-warp a row: facts of the rows [first, first + count), count <= kRowsPerBlock.
__device__ inline void FindFacts(const float* x, const float* gain, const float* inverse_rms,
                                 const float* dy, std::size_t first, unsigned count,
                                 std::size_t cols, RowFacts* facts) {
  const unsigned lane = threadIdx.x % kHalfWarp, wanted = threadIdx.x / kHalfWarp;
  const unsigned i = wanted < count ? wanted : count - 1;
  const float *in = x + (first + i) * cols, *grad = dy + (first + i) * cols;
  const float r = inverse_rms[first + i];
  float dot = 0.0f;
#pragma unroll 8
  for (std::size_t c = lane; c < cols; c += kHalfWarp) {
    dot = dot + (grad[c] * gain[c]) * (in[c] * r);
  }
  dot = SumOfLanes(dot);
  if (lane == 0 && wanted < count) {
    facts->mean[i] = dot / static_cast<float>(cols);
    facts->inverse[i] = r;
  }
}

// A block a chunk of kGainChunk rows, 16 at a time, so that their second reading meets the cache. A
// thread owns columns; their sums of the gain's gradient wait in shared memory.
template <class T>
__global__ void __launch_bounds__(kThreads)
    RmsNormBackwardKernel(const float* x, const float* gain, const float* inverse_rms,
                          const float* dy, bool accumulate, std::size_t rows, std::size_t cols,
                          float* dx, T* dx_rounded, float* gain_partials) {
  extern __shared__ float dgain[];  // (cols)
  __shared__ RowFacts facts;
  for (std::size_t c = threadIdx.x; c < cols; c += kThreads) dgain[c] = 0.0f;
  const std::size_t begin = std::size_t{blockIdx.x} * kGainChunk;
  const std::size_t end = begin + kGainChunk < rows ? begin + kGainChunk : rows;
  for (std::size_t first = begin; first < end; first += kRowsPerBlock) {
    const auto left = static_cast<unsigned>(end - first);
    const unsigned count = left < kRowsPerBlock ? left : kRowsPerBlock;
    __syncthreads();
    FindFacts(x, gain, inverse_rms, dy, first, count, cols, &facts);
    __syncthreads();
    for (std::size_t c = threadIdx.x; c < cols; c += kThreads) {
      const float k = gain[c];
      float sum_of_gain = dgain[c];
#pragma unroll 8
      for (unsigned i = 0; i < count; ++i) {
        const std::size_t at = (first + i) * cols + c;
        const float g = dy[at], r = facts.inverse[i], n = x[at] * r;
        const float change = r * (g * k - n * facts.mean[i]);
        sum_of_gain = sum_of_gain + g * n;
        const float sum = accumulate ? dx[at] + change : change;
        dx[at] = sum;
        if (dx_rounded != nullptr) Store(dx_rounded + at, sum);
      }
      dgain[c] = sum_of_gain;
    }
  }
  for (std::size_t c = threadIdx.x; c < cols; c += kThreads) {
    gain_partials[blockIdx.x * cols + c] = dgain[c];
  }
}

// grid (columns / threads, norms)
__global__ void SumGainsKernel(const float* partials, std::size_t chunks, std::size_t cols,
                               float* dgain) {
  const std::size_t c = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  const float* from = partials + blockIdx.y * chunks * cols + c;
  float sum = dgain[blockIdx.y * cols + c];
#pragma unroll 16
  for (std::size_t i = 0; i < chunks; ++i) sum = sum + from[i * cols];
  dgain[blockIdx.y * cols + c] = sum;
}

}  // namespace

template <class T>
void RmsNorm(const float* x, const float* gain, float epsilon, std::size_t rows, std::size_t cols,
             T* y, float* inverse_rms, cudaStream_t stream) {
  RmsNormKernel<<<Blocks(rows, kRowsPerBlock), kThreads, 0, stream>>>(x, gain, epsilon, rows, cols,
                                                                      y, inverse_rms);
  CheckLaunch("RmsNorm");
}

template <class T>
void RmsNormBackward(const float* x, const float* gain, const float* inverse_rms, const float* dy,
                     bool accumulate, std::size_t rows, std::size_t cols, float* dx, T* dx_rounded,
                     float* gain_partials, cudaStream_t stream) {
  RmsNormBackwardKernel<<<Blocks(rows, kGainChunk), kThreads, cols * sizeof(float), stream>>>(
      x, gain, inverse_rms, dy, accumulate, rows, cols, dx, dx_rounded, gain_partials);
  CheckLaunch("RmsNormBackward");
}

void SumGains(const float* partials, std::size_t norms, std::size_t chunks, std::size_t cols,
              float* dgain, cudaStream_t stream) {
  constexpr unsigned kColumns = 64;
  SumGainsKernel<<<dim3(Blocks(cols, kColumns), static_cast<unsigned>(norms)), kColumns, 0,
                   stream>>>(partials, chunks, cols, dgain);
  CheckLaunch("SumGains");
}

template void RmsNorm(const float*, const float*, float, std::size_t, std::size_t, float*, float*,
                      cudaStream_t);
template void RmsNorm(const float*, const float*, float, std::size_t, std::size_t, Bf16*, float*,
                      cudaStream_t);
template void RmsNormBackward(const float*, const float*, const float*, const float*, bool,
                              std::size_t, std::size_t, float*, float*, float*, cudaStream_t);
template void RmsNormBackward(const float*, const float*, const float*, const float*, bool,
                              std::size_t, std::size_t, float*, Bf16*, float*, cudaStream_t);

}  // namespace fp4lab::gpu
