#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"
#include "fp4lab/gpu/kernels/router_gemm.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kWarp = 32, kVector = kVectorOfRows, kThreads = 128;
constexpr int kExperts = 8;            // that share one reading of x
constexpr int kRows = 16, kStep = 32;  // of a tile of x
constexpr int kPitch = kStep + 4;
constexpr int kOwn = kExperts * kRows / kWarp;  // experts that a lane has

// One warp per kRows rows and kExperts experts: a lane has a row and half of the experts. Tiles
// come through shared memory, the next one of x while this one is multiplied.
__global__ void LogitsKernel(const float* x, const float* w, std::size_t rows, std::size_t cols,
                             std::size_t experts, float* logits) {
  __shared__ __align__(16) float x_tile[kRows][kPitch], w_tile[kStep][kExperts];
  const unsigned lane = threadIdx.x, own_row = lane % kRows, own = lane / kRows * kOwn;
  const std::size_t first_row = std::size_t{blockIdx.x} * kRows;
  const std::size_t first_expert = std::size_t{blockIdx.y} * kExperts;
  float next[kRows], next_w[kExperts], sum[kOwn] = {};
  const auto load = [&](std::size_t c) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::size_t row = first_row + r;
      next[r] = row < rows && c + lane < cols ? x[row * cols + c + lane] : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < kExperts; ++e) {
      const std::size_t expert = first_expert + e;
      next_w[e] = expert < experts && c + lane < cols ? w[expert * cols + c + lane] : 0.0f;
    }
  };
  const auto multiply = [&](int k, float value) {
#pragma unroll
    for (int e = 0; e < kOwn; ++e) sum[e] = __fmaf_rn(value, w_tile[k][own + e], sum[e]);
  };
  load(0);
  for (std::size_t c = 0; c < cols; c += kStep) {
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kRows; ++r) x_tile[r][lane] = next[r];
#pragma unroll
    for (int e = 0; e < kExperts; ++e) w_tile[lane][e] = next_w[e];
    __syncwarp();
    if (c + kStep <= cols) {
      load(c + kStep);
#pragma unroll
      for (int k = 0; k < kStep; k += kVector) {
        const auto values = LoadPack<kVector>(&x_tile[own_row][k]);
#pragma unroll
        for (int i = 0; i < kVector; ++i) multiply(k + i, values.x[i]);
      }
    } else {
      for (int k = 0; k < static_cast<int>(cols - c); ++k) multiply(k, x_tile[own_row][k]);
    }
  }
  const std::size_t row = first_row + own_row;
  if (row >= rows) return;
#pragma unroll
  for (int e = 0; e < kOwn; ++e) {
    const std::size_t expert = first_expert + own + e;
    if (expert < experts) logits[row * experts + expert] = sum[e];
  }
}

// One thread block per chunk of rows, kThreads * kVector columns and kExperts experts.
template <int kVector>
__global__ void WeightGradientKernel(const float* d_logits, const float* x, std::size_t rows,
                                     std::size_t cols, std::size_t experts, float* partials) {
  __shared__ float d[kRouterChunk][kExperts];
  const std::size_t first_row = std::size_t{blockIdx.x} * kRouterChunk;
  const std::size_t first_expert = std::size_t{blockIdx.z} * kExperts;
  const std::size_t left = rows - first_row;
  const auto count = static_cast<int>(left < kRouterChunk ? left : kRouterChunk);
  for (unsigned i = threadIdx.x; i < kRouterChunk * kExperts; i += kThreads) {
    const unsigned r = i / kExperts;
    const std::size_t e = first_expert + i % kExperts;
    d[r][i % kExperts] = r < count && e < experts ? d_logits[(first_row + r) * experts + e] : 0.0f;
  }
  __syncthreads();
  const std::size_t c = (std::size_t{blockIdx.y} * kThreads + threadIdx.x) * kVector;
  if (c >= cols) return;
  Pack<kVector, float> sum[kExperts] = {};
#pragma unroll 8
  for (int r = 0; r < count; ++r) {
    const auto values = LoadPack<kVector>(x + (first_row + r) * cols + c);
#pragma unroll
    for (int e = 0; e < kExperts; ++e) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        sum[e].x[i] = __fmaf_rn(d[r][e], values.x[i], sum[e].x[i]);
      }
    }
  }
#pragma unroll
  for (int e = 0; e < kExperts; ++e) {
    const std::size_t expert = first_expert + e;
    if (expert < experts) {
      StorePack<kVector>(partials + (blockIdx.x * experts + expert) * cols + c, sum[e].x);
    }
  }
}

}  // namespace

void RouterLogits(const float* x, const float* w, std::size_t rows, std::size_t cols,
                  std::size_t experts, float* logits, cudaStream_t stream) {
  if (rows == 0) return;
  LogitsKernel<<<dim3(Blocks(rows, kRows), Blocks(experts, kExperts)), kWarp, 0, stream>>>(
      x, w, rows, cols, experts, logits);
  CheckLaunch("RouterLogits");
}

void AddRouterWeightGradient(const float* d_logits, const float* x, std::size_t rows,
                             std::size_t cols, std::size_t experts, float* partials,
                             const GainPlace* place, float* dw, cudaStream_t stream) {
  if (rows == 0) return;
  WithVector(cols, [&](auto vector) {
    const dim3 grid(Blocks(rows, kRouterChunk), Blocks(cols, kThreads * vector),
                    Blocks(experts, kExperts));
    WeightGradientKernel<vector>
        <<<grid, kThreads, 0, stream>>>(d_logits, x, rows, cols, experts, partials);
  });
  CheckLaunch("AddRouterWeightGradient");
  SumGains(partials, 0, 1, Blocks(rows, kRouterChunk), place, experts * cols, dw, stream);
}

}  // namespace fp4lab::gpu
