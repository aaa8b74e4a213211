#include "fp4lab/base/error.h"
#include "fp4lab/gpu/kernels/latent_heads.cuh"
#include "fp4lab/gpu/kernels/math.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;

struct Sizes {
  unsigned positions, heads, nope, rope, value, latent, padded;

  __device__ unsigned Head() const { return nope + rope; }
  __device__ unsigned Queries() const { return heads * Head(); }
  __device__ unsigned Keys() const { return heads * nope; }
  __device__ unsigned Expanded() const { return Keys() + heads * value; }
  __device__ unsigned Compressed() const { return latent + rope; }
  __device__ unsigned Padded() const { return heads * padded; }  // of all heads
};

Sizes SizesOf(const LatentShape& s) {
  Expects(s.padded >= s.nope + s.rope && s.padded >= s.value, "a head fits its padded columns");
  return {static_cast<unsigned>(s.positions), static_cast<unsigned>(s.heads),
          static_cast<unsigned>(s.nope),      static_cast<unsigned>(s.rope),
          static_cast<unsigned>(s.value),     static_cast<unsigned>(s.latent),
          static_cast<unsigned>(s.padded)};
}

// The rotation by a row's angles; `sign` -1 turns back.
struct Rotation {
  const float *cos, *sin;
  float sign;

  // Element i of the rotated vector, whose element j is at(j).
  template <class At>
  __device__ float Rotated(const Sizes& s, std::size_t row, unsigned i, const At& at) const {
    if (cos == nullptr) return at(i);
    const unsigned half = s.rope / 2, pair = i < half ? i : i - half;
    const std::size_t angle = row % s.positions * half + pair;
    const float a = at(pair), b = at(pair + half), c = cos[angle], d = sign * sin[angle];
    return i < half ? a * c - b * d : b * c + a * d;
  }
};

// One thread block per row.
template <class A>
__global__ void JoinHeadsKernel(Sizes s, Rotation rotation, const float* queries,
                                const float* compressed, const float* expanded, A* qkv) {
  const std::size_t row = blockIdx.x;
  const float *const q = queries + row * s.Queries(), *const own = expanded + row * s.Expanded();
  const float* const shared = compressed + row * s.Compressed() + s.latent;
  for (unsigned i = threadIdx.x; i < 3 * s.Padded(); i += kThreads) {
    const unsigned which = i / s.Padded(), head = i / s.padded % s.heads, c = i % s.padded;
    float x = 0.0f;
    if (which == 2) {
      if (c < s.value) x = own[s.Keys() + head * s.value + c];
    } else if (c < s.nope) {
      x = which == 0 ? q[head * s.Head() + c] : own[head * s.nope + c];
    } else if (c < s.Head()) {
      const float* const from = which == 0 ? q + head * s.Head() + s.nope : shared;
      x = rotation.Rotated(s, row, c - s.nope, [&](unsigned j) { return from[j]; });
    }
    Store(qkv + row * 3 * s.Padded() + i, x);
  }
}

// One thread block per row.
template <class A, class T>
__global__ void SplitHeadsKernel(Sizes s, Rotation rotation, const A* d_qkv, T* d_queries,
                                 T* d_compressed, T* d_expanded) {
  const std::size_t row = blockIdx.x;
  const A* const queries = d_qkv + row * 3 * s.Padded();
  const A *const keys = queries + s.Padded(), *const values = keys + s.Padded();
  for (unsigned i = threadIdx.x; i < s.Queries(); i += kThreads) {
    const unsigned c = i % s.Head();
    const A* const from = queries + i / s.Head() * s.padded;
    const auto at = [&](unsigned j) { return Load(from + s.nope + j); };
    const float x = c < s.nope ? Load(from + c) : rotation.Rotated(s, row, c - s.nope, at);
    Store(d_queries + row * s.Queries() + i, x);
  }
  for (unsigned i = threadIdx.x; i < s.Expanded(); i += kThreads) {
    const unsigned v = i - s.Keys();  // of values
    const A* const from = i < s.Keys() ? keys + i / s.nope * s.padded + i % s.nope
                                       : values + v / s.value * s.padded + v % s.value;
    Store(d_expanded + row * s.Expanded() + i, Load(from));
  }
  for (unsigned i = threadIdx.x; i < s.rope; i += kThreads) {
    const auto sum_of_heads = [&](unsigned j) {
      float sum = 0.0f;
      for (unsigned head = 0; head < s.heads; ++head) {
        sum = sum + Load(keys + head * s.padded + s.nope + j);
      }
      return sum;
    };
    Store(d_compressed + row * s.Compressed() + s.latent + i,
          rotation.Rotated(s, row, i, sum_of_heads));
  }
}

}  // namespace

template <class A>
void JoinHeads(const LatentShape& shape, const float* cos, const float* sin, const float* queries,
               const float* compressed, const float* expanded, A* qkv, cudaStream_t stream) {
  JoinHeadsKernel<<<static_cast<unsigned>(shape.rows), kThreads, 0, stream>>>(
      SizesOf(shape), {cos, sin, 1.0f}, queries, compressed, expanded, qkv);
  CheckLaunch("JoinHeads");
}

template <class A, class T>
void SplitHeads(const LatentShape& shape, const float* cos, const float* sin, const A* d_qkv,
                T* d_queries, T* d_compressed, T* d_expanded, cudaStream_t stream) {
  SplitHeadsKernel<<<static_cast<unsigned>(shape.rows), kThreads, 0, stream>>>(
      SizesOf(shape), {cos, sin, -1.0f}, d_qkv, d_queries, d_compressed, d_expanded);
  CheckLaunch("SplitHeads");
}

template void JoinHeads(const LatentShape&, const float*, const float*, const float*, const float*,
                        const float*, float*, cudaStream_t);
template void JoinHeads(const LatentShape&, const float*, const float*, const float*, const float*,
                        const float*, Bf16*, cudaStream_t);
template void SplitHeads(const LatentShape&, const float*, const float*, const float*, float*,
                         float*, float*, cudaStream_t);
template void SplitHeads(const LatentShape&, const float*, const float*, const float*, Bf16*, Bf16*,
                         Bf16*, cudaStream_t);
template void SplitHeads(const LatentShape&, const float*, const float*, const Bf16*, Bf16*, Bf16*,
                         Bf16*, cudaStream_t);

}  // namespace fp4lab::gpu
