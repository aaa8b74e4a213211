// RMSNorm of each head's queries and keys, forward and backward, in the order of nn/rmsnorm.cc: a
// half-warp is the 16 virtual lanes, and takes one head of one row.
#include "fp4lab/base/error.h"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/kernels/math.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kHalfWarps = kThreads / kHalfWarp;
constexpr unsigned kMostOfLane = kMostHeadDim / kHalfWarp;  // a lane's columns of a head

struct HeadSizes {
  unsigned heads, normed, head_dim, width;  // normed: heads of queries and of keys
};

HeadSizes SizesOf(const RopeShape& s) {
  return {static_cast<unsigned>(s.heads), static_cast<unsigned>(s.heads + s.kv_heads),
          static_cast<unsigned>(s.head_dim), static_cast<unsigned>(s.Width())};
}

// One thread block per row: a half-warp takes every 16th head, then all copy the values.
__global__ void NormHeadsKernel(HeadSizes s, const float* qkv, HeadGains gains, float epsilon,
                                float* out, float* inverse_rms) {
  const std::size_t row = blockIdx.x;
  const unsigned lane = threadIdx.x % kHalfWarp, own = threadIdx.x / kHalfWarp;
  // Half-warps without a head repeat the last one, so that no lane is missing from a shuffle.
  for (unsigned first = 0; first < s.normed; first += kHalfWarps) {
    const unsigned head = min(first + own, s.normed - 1);
    const float* const x = qkv + row * s.width + head * s.head_dim;
    const float* const gain = head < s.heads ? gains.queries : gains.keys;
    float squares = 0.0f;
    for (unsigned c = lane; c < s.head_dim; c += kHalfWarp) squares = squares + x[c] * x[c];
    squares = SumOfLanes(squares);
    const float r = 1.0f / sqrtf(squares / static_cast<float>(s.head_dim) + epsilon);
    if (lane == 0) inverse_rms[row * s.normed + head] = r;
    float* const y = out + row * s.width + head * s.head_dim;
    for (unsigned c = lane; c < s.head_dim; c += kHalfWarp) y[c] = (x[c] * r) * gain[c];
  }
  for (unsigned c = s.normed * s.head_dim + threadIdx.x; c < s.width; c += kThreads) {
    out[row * s.width + c] = qkv[row * s.width + c];
  }
}

// The sums over the half-warps, in order, of a lane's columns.
__device__ inline void AddHalfWarps(const float (&own)[kMostOfLane], unsigned head_dim,
                                    float (*shared)[kMostHeadDim], float* to) {
  const unsigned lane = threadIdx.x % kHalfWarp, half_warp = threadIdx.x / kHalfWarp;
#pragma unroll
  for (unsigned i = 0; i < kMostOfLane; ++i) shared[half_warp][lane + i * kHalfWarp] = own[i];
  __syncthreads();
  for (unsigned c = threadIdx.x; c < head_dim; c += kThreads) {
    float sum = 0.0f;
    for (int i = 0; i < kHalfWarps; ++i) sum = sum + shared[i][c];
    to[c] = sum;
  }
  __syncthreads();
}

// One thread block per kGainChunk rows; a half-warp takes every 16th head of these rows.
template <class From, class To>
__global__ void NormHeadsBackwardKernel(HeadSizes s, std::size_t rows, const float* qkv,
                                        HeadGains gains, const float* inverse_rms, const From* d,
                                        To* out, float* query_partials, float* key_partials) {
  __shared__ float shared[kHalfWarps][kMostHeadDim];
  const unsigned lane = threadIdx.x % kHalfWarp, own = threadIdx.x / kHalfWarp;
  const std::size_t begin = std::size_t{blockIdx.x} * kGainChunk;
  const std::size_t end = begin + kGainChunk < rows ? begin + kGainChunk : rows;
  const auto count = static_cast<unsigned>(end - begin) * s.normed;
  float of_queries[kMostOfLane] = {}, of_keys[kMostOfLane] = {};
  for (unsigned first = 0; first < count; first += kHalfWarps) {
    const bool inside = first + own < count;
    const unsigned at = inside ? first + own : count - 1;
    const std::size_t row = begin + at / s.normed;
    const unsigned head = at % s.normed;
    const bool query = head < s.heads;
    const std::size_t place = row * s.width + head * s.head_dim;
    const float* const gain = query ? gains.queries : gains.keys;
    const float r = inverse_rms[row * s.normed + head];
    float gradient[kMostOfLane], normed[kMostOfLane], dot = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < kMostOfLane; ++i) {
      const unsigned c = lane + i * kHalfWarp;
      if (c >= s.head_dim) break;
      gradient[i] = Load(d + place + c);
      normed[i] = qkv[place + c] * r;
      dot = dot + (gradient[i] * gain[c]) * normed[i];
    }
    const float mean = SumOfLanes(dot) / static_cast<float>(s.head_dim);
    if (!inside) continue;
#pragma unroll
    for (unsigned i = 0; i < kMostOfLane; ++i) {
      const unsigned c = lane + i * kHalfWarp;
      if (c >= s.head_dim) break;
      const float product = gradient[i] * normed[i];
      of_queries[i] = query ? of_queries[i] + product : of_queries[i];
      of_keys[i] = query ? of_keys[i] : of_keys[i] + product;
      Store(out + place + c, r * (gradient[i] * gain[c] - normed[i] * mean));
    }
  }
  AddHalfWarps(of_queries, s.head_dim, shared, query_partials + blockIdx.x * s.head_dim);
  AddHalfWarps(of_keys, s.head_dim, shared, key_partials + blockIdx.x * s.head_dim);
  const unsigned values = s.width - s.normed * s.head_dim;
  for (std::size_t i = threadIdx.x; i < (end - begin) * values; i += kThreads) {
    const std::size_t place = (begin + i / values) * s.width + s.normed * s.head_dim + i % values;
    Store(out + place, Load(d + place));
  }
}

}  // namespace

void NormHeads(const RopeShape& shape, const float* qkv, const HeadGains& gains, float epsilon,
               float* out, float* inverse_rms, cudaStream_t stream) {
  Expects(shape.head_dim <= kMostHeadDim, "NormHeads: head_dim at most 256");
  NormHeadsKernel<<<static_cast<unsigned>(shape.rows), kThreads, 0, stream>>>(
      SizesOf(shape), qkv, gains, epsilon, out, inverse_rms);
  CheckLaunch("NormHeads");
}

template <class From, class To>
void NormHeadsBackward(const RopeShape& shape, const float* qkv, const HeadGains& gains,
                       const float* inverse_rms, const From* d, To* out, float* query_partials,
                       float* key_partials, cudaStream_t stream) {
  Expects(shape.head_dim <= kMostHeadDim, "NormHeadsBackward: head_dim at most 256");
  NormHeadsBackwardKernel<<<Blocks(shape.rows, kGainChunk), kThreads, 0, stream>>>(
      SizesOf(shape), shape.rows, qkv, gains, inverse_rms, d, out, query_partials, key_partials);
  CheckLaunch("NormHeadsBackward");
}

template void NormHeadsBackward(const RopeShape&, const float*, const HeadGains&, const float*,
                                const float*, float*, float*, float*, cudaStream_t);
template void NormHeadsBackward(const RopeShape&, const float*, const HeadGains&, const float*,
                                const float*, Bf16*, float*, float*, cudaStream_t);
template void NormHeadsBackward(const RopeShape&, const float*, const HeadGains&, const float*,
                                const Bf16*, Bf16*, float*, float*, cudaStream_t);

}  // namespace fp4lab::gpu
