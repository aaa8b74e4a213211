// The sum of squares for the gradient's norm, in the order of nn/optimizer/optimizer.cc; rounding
// to BF16.
#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;

// One half-warp per chunk.
__global__ void SumSquaresKernel(const float* x, std::size_t size, double* partial) {
  x += blockIdx.y * size;
  partial += blockIdx.y * DivideUp(size, kSquaresChunk);
  const std::size_t chunk =
      std::size_t{blockIdx.x} * (kThreads / kHalfWarp) + threadIdx.x / kHalfWarp;
  const std::size_t first = chunk * kSquaresChunk;
  const std::size_t end = first + kSquaresChunk < size ? first + kSquaresChunk : size;
  double lane = 0.0;
#pragma unroll 8
  for (std::size_t i = first + threadIdx.x % kHalfWarp; i < end; i += kHalfWarp) {
    const double value = x[i];
    lane += value * value;
  }
  for (int width = kHalfWarp / 2; width > 0; width /= 2) {
    lane += __shfl_down_sync(kAllLanes, lane, width, kHalfWarp);
  }
  if (threadIdx.x % kHalfWarp == 0 && first < size) partial[chunk] = lane;
}

// `aligned`: x and out begin at whole packs of four.
template <class From, class To>
__global__ void RoundKernel(const From* x, std::size_t size, bool aligned, To* out) {
  const auto rounded = [](From v) { return __bfloat162float(__float2bfloat16_rn(Load(&v))); };
  const std::size_t i = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) * 4;
  if (aligned && i + 4 <= size) {
    const Pack<4, From> from = LoadPack<4>(x + i);
    StorePack<4>(out + i,
                 {rounded(from.x[0]), rounded(from.x[1]), rounded(from.x[2]), rounded(from.x[3])});
    return;
  }
  for (std::size_t j = i; j < size && j < i + 4; ++j) Store(out + j, rounded(x[j]));
}

}  // namespace

void SumSquares(const float* x, std::size_t size, double* partial, cudaStream_t stream,
                std::size_t batch) {
  const std::size_t chunks = DivideUp(size, kSquaresChunk);
  const dim3 grid(Blocks(chunks, kThreads / kHalfWarp), static_cast<unsigned>(batch));
  SumSquaresKernel<<<grid, kThreads, 0, stream>>>(x, size, partial);
  CheckLaunch("SumSquares");
}

template <class From, class To>
void RoundTo(const From* x, std::size_t size, To* out, cudaStream_t stream) {
  if (size == 0) return;
  // A parameter may begin anywhere.
  const bool aligned = IsAligned(x, 4 * sizeof(From)) && IsAligned(out, 4 * sizeof(To));
  RoundKernel<<<Blocks(size, 4 * kThreads), kThreads, 0, stream>>>(x, size, aligned, out);
  CheckLaunch("RoundTo");
}

template void RoundTo(const float*, std::size_t, Bf16*, cudaStream_t);
template void RoundTo(const float*, std::size_t, float*, cudaStream_t);
template void RoundTo(const Bf16*, std::size_t, float*, cudaStream_t);

}  // namespace fp4lab::gpu
