// Shapes, stages of keys and reductions that the tensor-core kernels of attention share.
#pragma once

#include <cmath>
#include <type_traits>

#include "fp4lab/base/error.h"
#include "fp4lab/gpu/gemm/wgmma.cuh"
#include "fp4lab/nn/attention/attention.h"
#include "fp4lab/nn/attention/tensor_core_attention.h"

namespace fp4lab::gpu {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLowest = -1e30f;  // a masked score
constexpr int kNoWindow = 1 << 30;

struct HeadShape {
  int sequence, heads, kv_heads;
  int window;    // the keys that a query sees, its own included; kNoWindow: all before it
  float scale;   // of scores
  float factor;  // scale log2(e)

  template <int kDim>
  __device__ std::size_t Width() const {
    return static_cast<std::size_t>(heads + 2 * kv_heads) * kDim;
  }
  // The first tile of keys that a query from `query` on sees.
  __device__ int FirstTile(int query) const { return max(0, query - window + 1) / kTile * kTile; }
  // Whether some query of the tile from `query` on does not see some key of the tile from `key` on.
  __device__ bool Masks(int query, int key) const {
    return key == query || query + kTile - 1 - key >= window;
  }
  __device__ bool IsMasked(int query, int key) const {
    return key > query || query - key >= window;
  }
};

// The first row of a query head of a sequence, and of its keys and values.
template <int kDim>
struct Head {
  const Bf16 *q, *k, *v;

  __device__ Head(const HeadShape& s, const Bf16* qkv, int batch, int head) {
    const int kv = head / (s.heads / s.kv_heads);
    const Bf16* row = qkv + static_cast<std::size_t>(batch) * s.sequence * s.Width<kDim>();
    q = row + head * kDim;
    k = row + (s.heads + kv) * kDim;
    v = row + (s.heads + s.kv_heads + kv) * kDim;
  }
};

// A tile of keys and their values in shared memory, loaded by kThreads threads.
template <int kDim, int kThreads>
struct KeyStage {
  Tile<kDim> keys, values;

  __device__ void Load(const HeadShape& s, const Head<kDim>& h, int key) {
    keys.template Load<kThreads>(h.k, s.Width<kDim>(), key, s.sequence);
    values.template Load<kThreads>(h.v, s.Width<kDim>(), key, s.sequence);
    cuda::CommitCopies();
  }
};

// Rounds results (16, 16 kPairs) to BF16 as the first factor of the next product.
template <int kPairs>
__device__ inline void AsFactors(const FragmentC (&c)[2 * kPairs], FragmentA (&a)[kPairs]) {
#pragma unroll
  for (int i = 0; i < kPairs; ++i) a[i] = AsA(c[2 * i], c[2 * i + 1]);
}

// 2^x by the special function unit; results below 2^-126 are 0.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The maximum and the sum over the four lanes that share a row.
__device__ inline float MaxOfFour(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ inline float SumOfFour(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

inline HeadShape ShapeOf(const AttentionShape& s) {
  const float scale = s.Scale();
  return {static_cast<int>(s.sequence),
          static_cast<int>(s.heads),
          static_cast<int>(s.kv_heads),
          s.window == 0 ? kNoWindow : static_cast<int>(s.window),
          scale,
          scale * kLog2E};
}

// One thread block for every `rows` positions of each head of each sequence.
inline dim3 GridOf(const AttentionShape& s, std::size_t heads, std::size_t rows) {
  return dim3(Blocks(s.sequence, rows), static_cast<unsigned>(heads),
              static_cast<unsigned>(s.batch));
}

// launch(std::integral_constant<int, head_dim>())
template <class Launch>
void WithHeadDim(std::size_t head_dim, Launch&& launch) {
  Expects(HasTensorCoreAttention(head_dim), "BF16 attention: head_dim 16, 32, 64 or 128");
  if (head_dim == 16) return launch(std::integral_constant<int, 16>());
  if (head_dim == 32) return launch(std::integral_constant<int, 32>());
  if (head_dim == 64) return launch(std::integral_constant<int, 64>());
  launch(std::integral_constant<int, 128>());
}

}  // namespace fp4lab::gpu
