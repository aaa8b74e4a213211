// Attention on tensor cores: BF16 products, binary32 sums (after Dao 2023, FlashAttention-2).
//
// A block of 4 warps owns 64 rows (queries, or keys for their gradients), a warp 16 of them, and
// goes over the other side in tiles of 64 in shared memory. Scores never leave registers.
#include <cmath>

#include "fp4lab/gpu/attention.cuh"
#include "fp4lab/gpu/mma.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
constexpr int kTile = kWarps * 16;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLowest = -1e30f;  // a masked score

struct Shape {
  int sequence, heads, kv_heads;
  float scale;

  template <int kDim>
  __device__ int Width() const {
    return (heads + 2 * kv_heads) * kDim;
  }
};

// A tile of rows in shared memory, 8 elements of padding a row: ldmatrix meets no bank twice.
template <int kDim>
struct Tile {
  static constexpr int kStride = kDim + 8;
  alignas(16) Bf16 x[kTile * kStride];

  // Rows [first, first + kTile) of a matrix with rows `stride` apart; zeros from row `end` on.
  __device__ void Load(const Bf16* from, std::size_t stride, int first, int end) {
    constexpr int kPieces = kDim / 8;  // 16 bytes each
    for (int i = threadIdx.x; i < kTile * kPieces; i += kThreads) {
      const int row = i / kPieces, c = i % kPieces * 8;
      uint4 value = make_uint4(0, 0, 0, 0);
      if (first + row < end) {
        value = *reinterpret_cast<const uint4*>(from + (first + row) * stride + c);
      }
      *reinterpret_cast<uint4*>(x + row * kStride + c) = value;
    }
  }
};

template <int kDim>
struct Head {
  const Bf16 *q, *k, *v;
  std::size_t stride;

  __device__ Head(const Shape& s, const Bf16* qkv, int batch, int head) {
    const int kv = head / (s.heads / s.kv_heads);
    stride = s.Width<kDim>();
    const Bf16* row = qkv + static_cast<std::size_t>(batch) * s.sequence * stride;
    q = row + head * kDim;
    k = row + (s.heads + kv) * kDim;
    v = row + (s.heads + s.kv_heads + kv) * kDim;
  }
};

__device__ inline float MaxOfFour(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ inline float SumOfFour(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// The fragments of 16 rows of a tile, as A.
template <int kDim>
struct Rows {
  FragmentA a[kDim / 16];

  __device__ void Load(const Tile<kDim>& tile, int row) {
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) a[k] = LoadA(tile.x, Tile<kDim>::kStride, row, k * 16);
  }
  // (16, 16) = these rows times 16 rows of `other`, transposed.
  __device__ void TimesRows(const Tile<kDim>& other, int row, FragmentC (&c)[2]) const {
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      Multiply(a[k], LoadB(other.x, Tile<kDim>::kStride, row, k * 16), c);
    }
  }
};

// (16, kDim) += p (16, 16) times 16 rows of `tile`.
template <int kDim>
__device__ inline void AddProduct(const FragmentA& p, const Tile<kDim>& tile, int row,
                                  FragmentC (&c)[kDim / 8]) {
#pragma unroll
  for (int n = 0; n < kDim / 16; ++n) {
    Multiply(p, LoadBTransposed(tile.x, Tile<kDim>::kStride, row, n * 16), c + 2 * n);
  }
}

// ---- Forward

// A warp's softmax so far: rows g and g + 8.
struct Running {
  float max[2] = {kLowest, kLowest}, sum[2] = {0.0f, 0.0f};
};

// Scores (16, kTile) to exp(score - max); rescales `out` and the sums.
template <int kDim>
__device__ inline void Softmax(const Shape& s, int query, int first_key, bool masks,
                               FragmentC (&scores)[kTile / 8], FragmentC (&out)[kDim / 8],
                               Running* running) {
  const int column = threadIdx.x % 4 * 2;
  const float factor = s.scale * kLog2E;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float max = running->max[half];
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = scores[n].x[2 * half + j];
        if (masks && first_key + n * 8 + column + j > query + 8 * half) score = kLowest;
        max = fmaxf(max, score);
      }
    }
    max = MaxOfFour(max);
    const float shrink = exp2f((running->max[half] - max) * factor);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = scores[n].x[2 * half + j];
        score = exp2f((score - max) * factor);
        sum += score;
      }
    }
    running->sum[half] = __fmaf_rn(running->sum[half], shrink, sum);
    running->max[half] = max;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      out[n].x[2 * half] *= shrink;
      out[n].x[2 * half + 1] *= shrink;
    }
  }
}

// grid (tiles, heads, batch)
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(Shape s, const Bf16* qkv, Bf16* out, float* statistics) {
  __shared__ Tile<kDim> keys, values;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;  // the longest first
  const int head = blockIdx.y, batch = blockIdx.z, warp = threadIdx.x / 32;
  const Head<kDim> h(s, qkv, batch, head);
  keys.Load(h.q, h.stride, first, s.sequence);  // for a moment: queries
  __syncthreads();
  Rows<kDim> queries;
  queries.Load(keys, warp * 16);
  const int query = first + warp * 16 + threadIdx.x % 32 / 4;
  FragmentC result[kDim / 8] = {};
  Running running;
  for (int key = 0; key <= first; key += kTile) {
    __syncthreads();
    keys.Load(h.k, h.stride, key, s.sequence);
    values.Load(h.v, h.stride, key, s.sequence);
    __syncthreads();
    FragmentC scores[kTile / 8] = {};
#pragma unroll
    for (int n = 0; n < kTile / 16; ++n) {
      FragmentC pair[2] = {};
      queries.TimesRows(keys, n * 16, pair);
      scores[2 * n] = pair[0];
      scores[2 * n + 1] = pair[1];
    }
    Softmax<kDim>(s, query, key, key == first, scores, result, &running);
#pragma unroll
    for (int n = 0; n < kTile / 16; ++n) {
      AddProduct<kDim>(AsA(scores[2 * n], scores[2 * n + 1]), values, n * 16, result);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = query + 8 * half;
    const float sum = SumOfFour(running.sum[half]), inverse = 1.0f / sum;
    if (row >= s.sequence) continue;
    Bf16* to = out + (static_cast<std::size_t>(batch) * s.sequence + row) * s.heads * kDim +
               head * kDim + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<std::uint32_t*>(to + n * 8) =
          PackBf16(result[n].x[2 * half] * inverse, result[n].x[2 * half + 1] * inverse);
    }
    if (threadIdx.x % 4 == 0) {
      statistics[(static_cast<std::size_t>(batch) * s.heads + head) * s.sequence + row] =
          running.max[half] * s.scale + logf(sum);
    }
  }
}

// ---- Backward

// dout rounded, and dots = dout . out: kDim / 4 lanes a row of a head.
template <int kDim>
__global__ void DotsKernel(Shape s, std::size_t rows, const Bf16* out, const float* dout,
                           Bf16* dout_rounded, float* dots) {
  constexpr int kLanes = kDim / 4;
  const std::size_t i = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const std::size_t row = i / s.heads, head = i % s.heads;
  const bool inside = row < rows;
  const std::size_t at = i * kDim + threadIdx.x % kLanes * 4;
  float dot = 0.0f;
  if (inside) {
    const float4 g = *reinterpret_cast<const float4*>(dout + at);
    const uint2 bits = *reinterpret_cast<const uint2*>(out + at);
    const Bf16* o = reinterpret_cast<const Bf16*>(&bits);
    dot = g.x * Load(o) + g.y * Load(o + 1) + (g.z * Load(o + 2) + g.w * Load(o + 3));
    *reinterpret_cast<uint2*>(dout_rounded + at) =
        make_uint2(PackBf16(g.x, g.y), PackBf16(g.z, g.w));
  }
#pragma unroll
  for (int width = kLanes / 2; width > 0; width /= 2) {
    dot += __shfl_xor_sync(kAllLanes, dot, width, kLanes);
  }
  if (!inside || threadIdx.x % kLanes != 0) return;
  const std::size_t batch = row / s.sequence, position = row % s.sequence;
  dots[(batch * s.heads + head) * s.sequence + position] = dot;
}

// A warp's 16 rows of a (sequence, ...) matrix in binary32, times `scale`.
template <int kDim>
__device__ inline void StoreRows(const FragmentC (&c)[kDim / 8], float scale, int row, int end,
                                 std::size_t stride, float* to) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= end) continue;
    float* at = to + (row + 8 * half) * stride + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<float2*>(at + n * 8) =
          make_float2(c[n].x[2 * half] * scale, c[n].x[2 * half + 1] * scale);
    }
  }
}

// The gradient of queries. grid (tiles, heads, batch)
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    QueryKernel(Shape s, const Bf16* qkv, const float* statistics, const Bf16* dout,
                const float* dots, float* d_qkv) {
  __shared__ Tile<kDim> keys, values;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int head = blockIdx.y, batch = blockIdx.z, warp = threadIdx.x / 32;
  const Head<kDim> h(s, qkv, batch, head);
  const std::size_t out_stride = static_cast<std::size_t>(s.heads) * kDim;
  keys.Load(h.q, h.stride, first, s.sequence);  // for a moment: queries and their gradients
  values.Load(dout + static_cast<std::size_t>(batch) * s.sequence * out_stride + head * kDim,
              out_stride, first, s.sequence);
  __syncthreads();
  Rows<kDim> queries, gradients;
  queries.Load(keys, warp * 16);
  gradients.Load(values, warp * 16);
  const int query = first + warp * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  float statistic[2] = {}, dot[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = query + 8 * half;
    if (row >= s.sequence) continue;
    const std::size_t at = (static_cast<std::size_t>(batch) * s.heads + head) * s.sequence + row;
    statistic[half] = statistics[at] * kLog2E;
    dot[half] = dots[at];
  }
  FragmentC result[kDim / 8] = {};
  for (int key = 0; key <= first; key += kTile) {
    __syncthreads();
    keys.Load(h.k, h.stride, key, s.sequence);
    values.Load(h.v, h.stride, key, s.sequence);
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kTile; n += 16) {
      FragmentC p[2] = {}, dp[2] = {};
      queries.TimesRows(keys, n, p);
      gradients.TimesRows(values, n, dp);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int half = i % 4 / 2, seen = key + n + i / 4 * 8 + column + i % 2;
        const float score = p[i / 4].x[i % 4];
        const float e = exp2f(__fmaf_rn(score, s.scale * kLog2E, -statistic[half]));
        float& d = dp[i / 4].x[i % 4];
        d = seen <= query + 8 * half ? e * (d - dot[half]) : 0.0f;
      }
      AddProduct<kDim>(AsA(dp[0], dp[1]), keys, n, result);
    }
  }
  StoreRows<kDim>(
      result, s.scale, query, s.sequence, s.Width<kDim>(),
      d_qkv + static_cast<std::size_t>(batch) * s.sequence * s.Width<kDim>() + head * kDim);
}

// The gradients of keys and values. grid (tiles, kv_heads, batch). Rows are keys, columns queries.
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    KeyKernel(Shape s, const Bf16* qkv, const float* statistics, const Bf16* dout,
              const float* dots, float* d_qkv) {
  __shared__ Tile<kDim> queries, gradients;
  __shared__ float statistic[kTile], dot[kTile];
  const int first = static_cast<int>(blockIdx.x) * kTile;
  const int kv = blockIdx.y, batch = blockIdx.z, warp = threadIdx.x / 32;
  const int group = s.heads / s.kv_heads;
  const std::size_t out_stride = static_cast<std::size_t>(s.heads) * kDim;
  Rows<kDim> keys, values;
  {
    const Head<kDim> h(s, qkv, batch, kv * group);
    queries.Load(h.k, h.stride, first, s.sequence);  // for a moment: keys and values
    gradients.Load(h.v, h.stride, first, s.sequence);
    __syncthreads();
    keys.Load(queries, warp * 16);
    values.Load(gradients, warp * 16);
  }
  const int key = first + warp * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  FragmentC dk[kDim / 8] = {}, dv[kDim / 8] = {};
  for (int head = kv * group; head < (kv + 1) * group; ++head) {
    const Head<kDim> h(s, qkv, batch, head);
    const Bf16* grad =
        dout + static_cast<std::size_t>(batch) * s.sequence * out_stride + head * kDim;
    const std::size_t row = (static_cast<std::size_t>(batch) * s.heads + head) * s.sequence;
    for (int query = first; query < s.sequence; query += kTile) {
      __syncthreads();
      queries.Load(h.q, h.stride, query, s.sequence);
      gradients.Load(grad, out_stride, query, s.sequence);
      if (threadIdx.x < kTile) {
        const int i = query + static_cast<int>(threadIdx.x);
        statistic[threadIdx.x] = i < s.sequence ? statistics[row + i] * kLog2E : 0.0f;
        dot[threadIdx.x] = i < s.sequence ? dots[row + i] : 0.0f;
      }
      __syncthreads();
#pragma unroll
      for (int n = 0; n < kTile; n += 16) {
        FragmentC p[2] = {}, dp[2] = {};
        keys.TimesRows(queries, n, p);
        values.TimesRows(gradients, n, dp);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int half = i % 4 / 2, place = n + i / 4 * 8 + column + i % 2;
          float &e = p[i / 4].x[i % 4], &d = dp[i / 4].x[i % 4];
          e = exp2f(__fmaf_rn(e, s.scale * kLog2E, -statistic[place]));
          if (query + place < key + 8 * half || query + place >= s.sequence) e = 0.0f;
          d = e * (d - dot[place]);
        }
        AddProduct<kDim>(AsA(p[0], p[1]), gradients, n, dv);
        AddProduct<kDim>(AsA(dp[0], dp[1]), queries, n, dk);
      }
    }
  }
  const std::size_t stride = s.Width<kDim>();
  float* to = d_qkv + static_cast<std::size_t>(batch) * s.sequence * stride;
  StoreRows<kDim>(dk, s.scale, key, s.sequence, stride, to + (s.heads + kv) * kDim);
  StoreRows<kDim>(dv, 1.0f, key, s.sequence, stride, to + (s.heads + s.kv_heads + kv) * kDim);
}

Shape ShapeOf(const AttentionShape& s) {
  return {static_cast<int>(s.sequence), static_cast<int>(s.heads), static_cast<int>(s.kv_heads),
          1.0f / std::sqrt(static_cast<float>(s.head_dim))};
}

dim3 GridOf(const AttentionShape& s, std::size_t heads) {
  return dim3(Blocks(s.sequence, kTile), static_cast<unsigned>(heads),
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

}  // namespace

bool HasTensorCoreAttention(std::size_t head_dim) {
  return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128;
}

void Attention(const AttentionShape& s, const Bf16* qkv, Bf16* out, float* statistics,
               cudaStream_t stream) {
  WithHeadDim(s.head_dim, [&](auto dim) {
    ForwardKernel<dim>
        <<<GridOf(s, s.heads), kThreads, 0, stream>>>(ShapeOf(s), qkv, out, statistics);
  });
  CheckLaunch("Attention");
}

void AttentionBackward(const AttentionShape& s, const Bf16* qkv, const Bf16* out,
                       const float* statistics, const float* dout, Bf16* dout_rounded, float* dots,
                       float* d_qkv, cudaStream_t stream) {
  WithHeadDim(s.head_dim, [&](auto dim) {
    const std::size_t threads = s.Rows() * s.heads * s.head_dim / 4;
    DotsKernel<dim><<<Blocks(threads, kThreads), kThreads, 0, stream>>>(ShapeOf(s), s.Rows(), out,
                                                                        dout, dout_rounded, dots);
    QueryKernel<dim><<<GridOf(s, s.heads), kThreads, 0, stream>>>(ShapeOf(s), qkv, statistics,
                                                                  dout_rounded, dots, d_qkv);
    KeyKernel<dim><<<GridOf(s, s.kv_heads), kThreads, 0, stream>>>(ShapeOf(s), qkv, statistics,
                                                                   dout_rounded, dots, d_qkv);
  });
  CheckLaunch("AttentionBackward");
}

}  // namespace fp4lab::gpu
