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

// kPer: elements of a lane, held in registers; 0: any number, read twice.
template <class T, int kPer>
__global__ void RmsNormKernel(const float* x, const float* gain, float epsilon, std::size_t rows,
                              std::size_t cols, T* y, float* inverse_rms) {
  const std::size_t row = Row(rows);
  const unsigned lane = threadIdx.x % kHalfWarp;
  const float* in = x + row * cols;
  T* out = y + row * cols;
  float held[kPer > 0 ? kPer : 1], squares = 0.0f;
  if constexpr (kPer > 0) {
#pragma unroll
    for (int i = 0; i < kPer; ++i) held[i] = in[lane + i * kHalfWarp];
#pragma unroll
    for (int i = 0; i < kPer; ++i) squares = squares + held[i] * held[i];
  } else {
#pragma unroll 8
    for (std::size_t c = lane; c < cols; c += kHalfWarp) squares = squares + in[c] * in[c];
  }
  squares = SumOfLanes(squares);
  const float r = 1.0f / sqrtf(squares / static_cast<float>(cols) + epsilon);
  if (lane == 0) inverse_rms[row] = r;
  if constexpr (kPer > 0) {
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const unsigned c = lane + i * kHalfWarp;
      Store(out + c, (held[i] * r) * gain[c]);
    }
  } else {
    for (std::size_t c = lane; c < cols; c += kHalfWarp) Store(out + c, (in[c] * r) * gain[c]);
  }
}

// What a block's threads know of its rows.
struct RowFacts {
  float mean[kGainChunk], inverse[kGainChunk];
};

// A block a chunk of 16 rows: a half-warp finds a row's dot product; then a thread owns columns,
// and reads the rows again from the cache.
template <class T>
__global__ void __launch_bounds__(kThreads)
    RmsNormBackwardKernel(const float* x, const float* gain, const float* inverse_rms,
                          const float* dy, bool accumulate, std::size_t rows, std::size_t cols,
                          float* dx, T* dx_rounded, float* gain_partials) {
  static_assert(kGainChunk == kRowsPerBlock);
  __shared__ RowFacts facts;
  const std::size_t first = std::size_t{blockIdx.x} * kGainChunk;
  const auto left = static_cast<unsigned>(rows - first < kGainChunk ? rows - first : kGainChunk);
  const unsigned lane = threadIdx.x % kHalfWarp, wanted = threadIdx.x / kHalfWarp;
  const std::size_t row = first + (wanted < left ? wanted : left - 1);
  const float *in = x + row * cols, *grad = dy + row * cols;
  const float r = inverse_rms[row];
  float dot = 0.0f;
#pragma unroll 8
  for (std::size_t c = lane; c < cols; c += kHalfWarp) {
    dot = dot + (grad[c] * gain[c]) * (in[c] * r);
  }
  dot = SumOfLanes(dot);
  if (lane == 0) {
    facts.mean[wanted] = dot / static_cast<float>(cols);
    facts.inverse[wanted] = r;
  }
  __syncthreads();
  for (std::size_t c = threadIdx.x; c < cols; c += kThreads) {
    const float k = gain[c];
    float dgain = 0.0f;
#pragma unroll 4
    for (unsigned i = 0; i < left; ++i) {
      const std::size_t at = (first + i) * cols + c;
      const float g = dy[at], inverse = facts.inverse[i], n = x[at] * inverse;
      const float change = inverse * (g * k - n * facts.mean[i]);
      dgain = dgain + g * n;
      const float sum = accumulate ? dx[at] + change : change;
      dx[at] = sum;
      if (dx_rounded != nullptr) Store(dx_rounded + at, sum);
    }
    gain_partials[blockIdx.x * cols + c] = dgain;
  }
}

constexpr unsigned kSumColumns = 32, kSumParts = 8;

// grid (columns / 32, norms), block (32, 8): part p adds chunks p, p + 8, ...; then the parts in
// order.
__global__ void SumGainsKernel(const float* partials, std::size_t chunks, std::size_t cols,
                               float* dgain) {
  __shared__ float parts[kSumParts][kSumColumns];
  const std::size_t c = std::size_t{blockIdx.x} * kSumColumns + threadIdx.x;
  float sum = 0.0f;
  if (c < cols) {
    const float* from = partials + blockIdx.y * chunks * cols + c;
#pragma unroll 16
    for (std::size_t i = threadIdx.y; i < chunks; i += kSumParts) sum = sum + from[i * cols];
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= cols) return;
  sum = dgain[blockIdx.y * cols + c];
  for (unsigned i = 0; i < kSumParts; ++i) sum = sum + parts[i][threadIdx.x];
  dgain[blockIdx.y * cols + c] = sum;
}

}  // namespace

template <class T>
void RmsNorm(const float* x, const float* gain, float epsilon, std::size_t rows, std::size_t cols,
             T* y, float* inverse_rms, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    kernel<<<Blocks(rows, kRowsPerBlock), kThreads, 0, stream>>>(x, gain, epsilon, rows, cols, y,
                                                                 inverse_rms);
  };
  switch (cols) {
    case 128:
      launch(RmsNormKernel<T, 8>);
      break;
    case 256:
      launch(RmsNormKernel<T, 16>);
      break;
    case 512:
      launch(RmsNormKernel<T, 32>);
      break;
    case 768:
      launch(RmsNormKernel<T, 48>);
      break;
    default:
      launch(RmsNormKernel<T, 0>);
  }
  CheckLaunch("RmsNorm");
}

template <class T>
void RmsNormBackward(const float* x, const float* gain, const float* inverse_rms, const float* dy,
                     bool accumulate, std::size_t rows, std::size_t cols, float* dx, T* dx_rounded,
                     float* gain_partials, cudaStream_t stream) {
  RmsNormBackwardKernel<<<Blocks(rows, kGainChunk), kThreads, 0, stream>>>(
      x, gain, inverse_rms, dy, accumulate, rows, cols, dx, dx_rounded, gain_partials);
  CheckLaunch("RmsNormBackward");
}

void SumGains(const float* partials, std::size_t norms, std::size_t chunks, std::size_t cols,
              float* dgain, cudaStream_t stream) {
  SumGainsKernel<<<dim3(Blocks(cols, kSumColumns), static_cast<unsigned>(norms)),
                   dim3(kSumColumns, kSumParts), 0, stream>>>(partials, chunks, cols, dgain);
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
