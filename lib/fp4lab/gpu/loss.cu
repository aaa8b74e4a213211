// Softmax cross-entropy in the order of nn/loss.cc.
#include "fp4lab/base/elementary.h"
#include "fp4lab/gpu/kernels.cuh"
#include "fp4lab/gpu/math.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / kHalfWarp;

struct RowSoftmax {
  float max, sum;
};

// A half-warp's row.
__device__ RowSoftmax SoftmaxOfRow(const float* z, std::size_t vocabulary, unsigned lane) {
  float max = __int_as_float(0xFF800000);
  for (std::size_t c = lane; c < vocabulary; c += kHalfWarp) max = z[c] > max ? z[c] : max;
  max = MaxOfLanes(max);
  float sum = 0.0f;
  for (std::size_t c = lane; c < vocabulary; c += kHalfWarp) sum = sum + ExpNonPositive(z[c] - max);
  return {max, SumOfLanes(sum)};
}

__device__ inline double RowLoss(float sum, float target, float max) {
  return fp4lab::Log(sum) - (static_cast<double>(target) - static_cast<double>(max));
}

// dlogits null: the losses only.
template <class T>
__global__ void CrossEntropyKernel(const float* logits, const std::uint16_t* targets, float scale,
                                   std::size_t rows, std::size_t vocabulary, double* row_loss,
                                   T* dlogits) {
  const std::size_t wanted = std::size_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kHalfWarp;
  const std::size_t row = wanted < rows ? wanted : rows - 1;
  const unsigned lane = threadIdx.x % kHalfWarp;
  const float* z = logits + row * vocabulary;
  const std::size_t target = targets[row];
  const RowSoftmax softmax = SoftmaxOfRow(z, vocabulary, lane);
  if (lane == 0) row_loss[row] = RowLoss(softmax.sum, z[target], softmax.max);
  if (dlogits == nullptr || wanted >= rows) return;
  const float factor = scale * (1.0f / softmax.sum);
  for (std::size_t c = lane; c < vocabulary; c += kHalfWarp) {
    const float gradient = ExpNonPositive(z[c] - softmax.max) * factor;
    Store(dlogits + row * vocabulary + c, c == target ? gradient - scale : gradient);
  }
}

// One block a chunk: thread i adds rows i, i + 256, ...; then a tree.
__global__ void SumLossesKernel(const double* row_loss, std::size_t rows, double* sums) {
  __shared__ double lanes[kThreads];
  const std::size_t first = blockIdx.x * kLossChunk;
  double sum = 0.0;
  for (std::size_t i = threadIdx.x; i < kLossChunk && first + i < rows; i += kThreads) {
    sum += row_loss[first + i];
  }
  lanes[threadIdx.x] = sum;
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) lanes[threadIdx.x] += lanes[threadIdx.x + width];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = lanes[0];
}

}  // namespace

void CrossEntropy(const float* logits, const std::uint16_t* targets, std::size_t rows,
                  std::size_t vocabulary, double* row_loss, cudaStream_t stream) {
  CrossEntropyKernel<float><<<Blocks(rows, kRowsPerBlock), kThreads, 0, stream>>>(
      logits, targets, 0.0f, rows, vocabulary, row_loss, nullptr);
  CheckLaunch("CrossEntropy");
}

template <class T>
void CrossEntropyGradient(const float* logits, const std::uint16_t* targets, float scale,
                          std::size_t rows, std::size_t vocabulary, double* row_loss, T* dlogits,
                          cudaStream_t stream) {
  CrossEntropyKernel<<<Blocks(rows, kRowsPerBlock), kThreads, 0, stream>>>(
      logits, targets, scale, rows, vocabulary, row_loss, dlogits);
  CheckLaunch("CrossEntropyGradient");
}

void SumLosses(const double* row_loss, std::size_t rows, double* sums, cudaStream_t stream) {
  SumLossesKernel<<<Blocks(rows, kLossChunk), kThreads, 0, stream>>>(row_loss, rows, sums);
  CheckLaunch("SumLosses");
}

template void CrossEntropyGradient(const float*, const std::uint16_t*, float, std::size_t,
                                   std::size_t, double*, float*, cudaStream_t);
template void CrossEntropyGradient(const float*, const std::uint16_t*, float, std::size_t,
                                   std::size_t, double*, Bf16*, cudaStream_t);

}  // namespace fp4lab::gpu
