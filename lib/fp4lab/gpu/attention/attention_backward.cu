// Attention on tensor cores, backward. QueryKernel computes the gradients of queries, a warpgroup
// 64 of them; KeyKernel computes the gradients of keys and values, a warpgroup 64 of each. Both
// kernels recompute the scores, so that no sum needs atomics.
#include "fp4lab/gpu/attention/attention.cuh"
#include "fp4lab/gpu/attention/attention_shape.cuh"

namespace fp4lab::gpu {
namespace {

// The rotation of a head (nn/attention/rope.h): kDim / 2 angles for each position; null: none.
struct Rotation {
  const float *cos, *sin;
};

// Stores a warp's 16 rows of a (sequence, ...) matrix, rounded to BF16. `row` is the first of this
// lane's two rows, row and row + 8; rows from `end` on are left out.
template <int kDim>
__device__ inline void StoreRows(const FragmentC (&c)[kDim / 8], int row, int end,
                                 std::size_t stride, Bf16* to) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= end) continue;
    Bf16* at = to + (row + 8 * half) * stride + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<std::uint32_t*>(at + n * 8) =
          PackBf16(c[n].x[2 * half], c[n].x[2 * half + 1]);
    }
  }
}

// Multiplies c by `scale` and rotates it back by its positions' angles, with the arithmetic of
// nn/attention/rope.cc. One lane holds both elements of a pair (i, i + kDim / 2).
template <int kDim>
__device__ inline void TurnBack(float scale, const Rotation& rotation, int row, int end,
                                FragmentC (&c)[kDim / 8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= end) continue;
    if (rotation.cos == nullptr) {
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        c[n].x[2 * half] *= scale;
        c[n].x[2 * half + 1] *= scale;
      }
      continue;
    }
    const std::size_t angle =
        static_cast<std::size_t>(row + 8 * half) * (kDim / 2) + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      const float2 cos = *reinterpret_cast<const float2*>(rotation.cos + angle + n * 8);
      const float2 sin = *reinterpret_cast<const float2*>(rotation.sin + angle + n * 8);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float &low = c[n].x[2 * half + j], &high = c[n + kDim / 16].x[2 * half + j];
        const float a = low * scale, b = high * scale;
        const float d = j == 0 ? cos.x : cos.y, e = -(j == 0 ? sin.x : sin.y);
        low = a * d - b * e;
        high = b * d + a * e;
      }
    }
  }
}

// The offset of a head's statistics and dots.
__device__ inline std::size_t RowOf(const HeadShape& s, int batch, int head) {
  return (static_cast<std::size_t>(batch) * s.heads + head) * s.sequence;
}

// The offset of a head's columns in (rows, heads * kDim).
template <int kDim>
__device__ inline std::size_t OutOf(const HeadShape& s, int batch, int head) {
  return (static_cast<std::size_t>(batch) * s.sequence * s.heads + head) * kDim;
}

// The sums of x * y over each of a lane's two rows.
template <int kDim>
__device__ inline void DotRows(const Bf16* x, const Bf16* y, std::size_t stride, int row, int end,
                               float (&dot)[2]) {
  FragmentA a[kDim / 16], b[kDim / 16];
  LoadRows(x, stride, row, end, a);
  LoadRows(y, stride, row, end, b);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
      for (int i = half; i < 4; i += 2) {
        const float2 u = UnpackBf16(a[k].x[i]), v = UnpackBf16(b[k].x[i]);
        sum = __fmaf_rn(u.x, v.x, sum);
        sum = __fmaf_rn(u.y, v.y, sum);
      }
    }
    dot[half] = SumOfFour(sum);
  }
}

// ---- The gradient of queries

template <int kDim>
using Stage = KeyStage<kDim, kGroup>;

template <int kDim>
struct QueryMemory {
  Tile<kDim> queries, gradients;  // of the thread block
  Stage<kDim> stages[2];
};

// A lane's two queries, `query` and `query` + 8, with their statistics and dots.
struct QueryFacts {
  int query;
  float statistic[2] = {}, dot[2] = {};
};

// dq (64, kDim) += the gradients of a tile of scores times its keys.
template <int kDim>
__device__ inline void AddQueryGradients(const HeadShape& s, const QueryMemory<kDim>& own,
                                         const Stage<kDim>& stage, const QueryFacts& facts,
                                         int first_key, bool masks, FragmentC (&dq)[kDim / 8]) {
  FragmentC p[kTile / 8] = {}, dp[kTile / 8] = {};
  BeginProducts(p, dp);
  AddTimesTile(own.queries, stage.keys, p);
  AddTimesTile(own.gradients, stage.values, dp);
  FinishProducts(p, dp);
  const int first = first_key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < kTile / 2; ++i) {
    const int half = i % 4 / 2;
    const float e = Exp2(__fmaf_rn(p[i / 4].x[i % 4], s.factor, -facts.statistic[half]));
    float& d = dp[i / 4].x[i % 4];
    d = e * (d - facts.dot[half]);
    if (masks && s.IsMasked(facts.query + 8 * half, first + i / 4 * 8 + i % 2)) d = 0.0f;
  }
  FragmentA ds[kTile / 16];
  AsFactors(dp, ds);
  BeginProducts(ds, dq);
  AddProduct<kTile, kDim>(ds, stage.keys, 0, dq);
  FinishProducts(ds, dq);
}

// grid (tiles of queries, heads, batch). Also writes dots, which KeyKernel reads.
template <int kDim>
__global__ void __launch_bounds__(kGroup, kDim > 64 ? 2 : 3)
    QueryKernel(HeadShape s, Rotation rotation, const Bf16* qkv, const Bf16* out,
                const float* statistics, const Bf16* dout, float* dots, Bf16* d_qkv) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& own = *reinterpret_cast<QueryMemory<kDim>*>(memory);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;  // the longest first
  const int head = blockIdx.y, batch = blockIdx.z;
  const Head<kDim> h(s, qkv, batch, head);
  const std::size_t out_stride = static_cast<std::size_t>(s.heads) * kDim;
  const Bf16* const gradient = dout + OutOf<kDim>(s, batch, head);
  own.queries.template Load<kGroup>(h.q, s.Width<kDim>(), first, s.sequence);
  own.gradients.template Load<kGroup>(gradient, out_stride, first, s.sequence);
  const int begin = s.FirstTile(first);
  own.stages[0].Load(s, h, begin);
  QueryFacts facts;
  facts.query = first + static_cast<int>(threadIdx.x) / 32 * 16 + threadIdx.x % 32 / 4;
  DotRows<kDim>(out + OutOf<kDim>(s, batch, head), gradient, out_stride, facts.query, s.sequence,
                facts.dot);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = facts.query + 8 * half;
    if (row >= s.sequence) continue;
    facts.statistic[half] = statistics[RowOf(s, batch, head) + row];
    if (threadIdx.x % 4 == 0) dots[RowOf(s, batch, head) + row] = facts.dot[half];
  }
  FragmentC dq[kDim / 8] = {};
  for (int key = begin, stage = 0; key <= first; key += kTile, stage ^= 1) {
    WaitForLoads();
    if (key < first) own.stages[stage ^ 1].Load(s, h, key + kTile);
    AddQueryGradients<kDim>(s, own, own.stages[stage], facts, key, s.Masks(first, key), dq);
  }
  TurnBack<kDim>(s.scale, rotation, facts.query, s.sequence, dq);
  Bf16* to = d_qkv + static_cast<std::size_t>(batch) * s.sequence * s.Width<kDim>() + head * kDim;
  StoreRows<kDim>(dq, facts.query, s.sequence, s.Width<kDim>(), to);
}

// ---- The gradients of keys and values: rows of scores are keys, columns queries

template <int kDim>
struct QueryStage {
  Tile<kDim> queries, gradients;
  float statistic[kTile], dot[kTile];
};

template <int kDim>
struct KeyMemory {
  Tile<kDim> keys, values;  // of the thread block
  QueryStage<kDim> stages[2];
};

// The queries of a head in global memory, with their gradients, statistics and dots.
template <int kDim>
struct QuerySource {
  const Bf16 *queries, *gradients;
  const float *statistics, *dots;

  __device__ void Load(const HeadShape& s, int query, QueryStage<kDim>* stage) const {
    stage->queries.template Load<kGroup>(queries, s.Width<kDim>(), query, s.sequence);
    stage->gradients.template Load<kGroup>(gradients, static_cast<std::size_t>(s.heads) * kDim,
                                           query, s.sequence);
    const int i = threadIdx.x % kTile, row = query + i;
    const bool inside = row < s.sequence;
    const float* from = threadIdx.x < kTile ? statistics : dots;
    cuda::CopyFloat((threadIdx.x < kTile ? stage->statistic : stage->dot) + i,
                    from + (inside ? row : 0), inside);
    cuda::CommitCopies();
  }
};

// dk += the gradients of a tile of scores times its queries; dv += the tile's probabilities times
// the gradients of its outputs.
template <int kDim>
__device__ inline void AddKeyGradients(const HeadShape& s, const KeyMemory<kDim>& own,
                                       const QueryStage<kDim>& stage, int key, int first_query,
                                       bool masks, FragmentC (&dk)[kDim / 8],
                                       FragmentC (&dv)[kDim / 8]) {
  FragmentC p[kTile / 8] = {}, dp[kTile / 8] = {};
  BeginProducts(p, dp);
  AddTimesTile(own.keys, stage.queries, p);
  AddTimesTile(own.values, stage.gradients, dp);
  FinishProducts(p, dp);
#pragma unroll
  for (int j = 0; j < kTile / 8; ++j) {
    const int place = j * 8 + threadIdx.x % 4 * 2;
    const float2 statistic = *reinterpret_cast<const float2*>(stage.statistic + place);
    const float2 dot = *reinterpret_cast<const float2*>(stage.dot + place);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float &e = p[j].x[i], &d = dp[j].x[i];
      e = Exp2(__fmaf_rn(e, s.factor, -(i % 2 == 0 ? statistic.x : statistic.y)));
      const int query = first_query + place + i % 2;
      if (masks && (s.IsMasked(query, key + i / 2 * 8) || query >= s.sequence)) e = 0.0f;
      d = e * (d - (i % 2 == 0 ? dot.x : dot.y));
    }
  }
  FragmentA probabilities[kTile / 16], ds[kTile / 16];
  AsFactors(p, probabilities);
  AsFactors(dp, ds);
  BeginProducts(probabilities, ds, dv, dk);
  AddProduct<kTile, kDim>(probabilities, stage.gradients, 0, dv);
  AddProduct<kTile, kDim>(ds, stage.queries, 0, dk);
  FinishProducts(probabilities, ds, dv, dk);
}

// grid (tiles of keys, kv_heads, batch).
template <int kDim>
__global__ void __launch_bounds__(kGroup, kDim > 64 ? 2 : 3)
    KeyKernel(HeadShape s, Rotation rotation, const Bf16* qkv, const float* statistics,
              const Bf16* dout, const float* dots, Bf16* d_qkv) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& own = *reinterpret_cast<KeyMemory<kDim>*>(memory);
  const int first = static_cast<int>(blockIdx.x) * kTile, kv = blockIdx.y, batch = blockIdx.z;
  const int group = s.heads / s.kv_heads;
  const int key = first + static_cast<int>(threadIdx.x) / 32 * 16 + threadIdx.x % 32 / 4;
  const auto source = [&](int head) {
    const Head<kDim> h(s, qkv, batch, head);
    const std::size_t row = RowOf(s, batch, head);
    return QuerySource<kDim>{h.q, dout + OutOf<kDim>(s, batch, head), statistics + row, dots + row};
  };
  const Head<kDim> h(s, qkv, batch, kv * group);
  own.keys.template Load<kGroup>(h.k, s.Width<kDim>(), first, s.sequence);
  own.values.template Load<kGroup>(h.v, s.Width<kDim>(), first, s.sequence);
  source(kv * group).Load(s, first, &own.stages[0]);
  FragmentC dk[kDim / 8] = {}, dv[kDim / 8] = {};
  const int end = min(s.sequence - first, kTile - 1 + s.window) + first;
  int head = kv * group, query = first, stage = 0;
  while (head < (kv + 1) * group) {
    int next_head = head, next = query + kTile;
    if (next >= end) {
      next = first;
      ++next_head;
    }
    WaitForLoads();
    if (next_head < (kv + 1) * group) source(next_head).Load(s, next, &own.stages[stage ^ 1]);
    const bool masks = s.Masks(query, first) || query + kTile > s.sequence;
    AddKeyGradients<kDim>(s, own, own.stages[stage], key, query, masks, dk, dv);
    head = next_head;
    query = next;
    stage ^= 1;
  }
  TurnBack<kDim>(s.scale, rotation, key, s.sequence, dk);
  Bf16* to = d_qkv + static_cast<std::size_t>(batch) * s.sequence * s.Width<kDim>();
  StoreRows<kDim>(dk, key, s.sequence, s.Width<kDim>(), to + (s.heads + kv) * kDim);
  StoreRows<kDim>(dv, key, s.sequence, s.Width<kDim>(), to + (s.heads + s.kv_heads + kv) * kDim);
}

}  // namespace

void AttentionBackward(const AttentionShape& s, const Bf16* qkv, const Bf16* out,
                       const float* statistics, const Bf16* dout, const float* cos,
                       const float* sin, float* dots, Bf16* d_qkv, cudaStream_t stream) {
  WithHeadDim(s.head_dim, [&](auto dim) {
    constexpr std::size_t kQueryShared = sizeof(QueryMemory<dim>);
    constexpr std::size_t kKeyShared = sizeof(KeyMemory<dim>);
    AllowShared(QueryKernel<dim>, kQueryShared);
    AllowShared(KeyKernel<dim>, kKeyShared);
    QueryKernel<dim><<<GridOf(s, s.heads, kTile), kGroup, kQueryShared, stream>>>(
        ShapeOf(s), {cos, sin}, qkv, out, statistics, dout, dots, d_qkv);
    KeyKernel<dim><<<GridOf(s, s.kv_heads, kTile), kGroup, kKeyShared, stream>>>(
        ShapeOf(s), {cos, sin}, qkv, statistics, dout, dots, d_qkv);
  });
  CheckLaunch("AttentionBackward");
}

}  // namespace fp4lab::gpu
