// Attention on tensor cores, backward. One kernel makes the gradients of queries, a warpgroup 64
// of them; another those of keys and values. Each computes the scores again, so that no sum needs
// atomics.
#include "fp4lab/gpu/attention_shape.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kStep = 32;  // columns of scores at a time: registers

// The rotation of a head, as RotaryTable has it; kDim / 2 angles a position.
struct Rotation {
  const float *cos, *sin;
};

// A warp's 16 rows of a (sequence, ...) matrix, rounded; rows g and g + 8 are this lane's.
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

// c times `scale`, turned back by the positions' angles: a pair (i, i + kDim / 2) lies in one lane.
// The arithmetic of nn/rope.cc.
template <int kDim>
__device__ inline void TurnBack(float scale, const Rotation& rotation, int row, int end,
                                FragmentC (&c)[kDim / 8]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= end) continue;
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

// Where a head's statistics and dots begin.
__device__ inline std::size_t RowOf(const HeadShape& s, int batch, int head) {
  return (static_cast<std::size_t>(batch) * s.heads + head) * s.sequence;
}

// Where a head's part of (rows, heads * kDim) begins.
template <int kDim>
__device__ inline std::size_t OutOf(const HeadShape& s, int batch, int head) {
  return (static_cast<std::size_t>(batch) * s.sequence * s.heads + head) * kDim;
}

// The sums of x * y over each of a lane's two rows.
template <int kCount>
__device__ inline void DotRows(const FragmentA (&x)[kCount], const FragmentA (&y)[kCount],
                               float (&dot)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
#pragma unroll
      for (int i = half; i < 4; i += 2) {
        const float2 a = UnpackBf16(x[k].x[i]), b = UnpackBf16(y[k].x[i]);
        sum = __fmaf_rn(a.x, b.x, sum);
        sum = __fmaf_rn(a.y, b.y, sum);
      }
    }
    dot[half] = SumOfFour(sum);
  }
}

// ---- The gradient of queries

constexpr int kQueryGroups = 1, kQueryThreads = kQueryGroups * kGroup;
constexpr int kQueryRows = kQueryGroups * kTile;

template <int kDim>
struct KeyStage {
  Tile<kDim> keys, values;

  __device__ void Load(const HeadShape& s, const Head<kDim>& h, int key) {
    keys.template Load<kQueryThreads>(h.k, s.Width<kDim>(), key, s.sequence);
    values.template Load<kQueryThreads>(h.v, s.Width<kDim>(), key, s.sequence);
    CommitLoads();
  }
};

// What a lane knows of its two queries.
struct QueryFacts {
  int query;
  float statistic[2] = {}, dot[2] = {};
};

// dq (64, kDim) += the gradients of kStep scores times their keys.
template <int kDim>
__device__ inline void AddQueryGradients(const HeadShape& s, FragmentA (&queries)[kDim / 16],
                                         FragmentA (&gradients)[kDim / 16],
                                         const KeyStage<kDim>& stage, const QueryFacts& facts,
                                         int first_key, int n, FragmentC (&dq)[kDim / 8]) {
  FragmentC p[kStep / 8] = {}, dp[kStep / 8] = {};
  BeginProducts(queries, gradients, p, dp);
  AddTimesRows<kStep, kDim>(queries, stage.keys, n, p);
  AddTimesRows<kStep, kDim>(gradients, stage.values, n, dp);
  FinishProducts(queries, gradients, p, dp);
  const int first = first_key + n + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < kStep / 2; ++i) {
    const int half = i % 4 / 2, key = first + i / 4 * 8 + i % 2;
    const float e = Exp2(__fmaf_rn(p[i / 4].x[i % 4], s.factor, -facts.statistic[half]));
    float& d = dp[i / 4].x[i % 4];
    d = key <= facts.query + 8 * half ? e * (d - facts.dot[half]) : 0.0f;
  }
  FragmentA ds[kStep / 16];
#pragma unroll
  for (int i = 0; i < kStep / 16; ++i) ds[i] = AsA(dp[2 * i], dp[2 * i + 1]);
  BeginProducts(ds, dq);
  AddProduct<kStep, kDim>(ds, stage.keys, n, dq);
  FinishProducts(ds, dq);
}

// grid (blocks of kQueryRows queries, heads, batch). Writes dots, for KeyKernel.
template <int kDim>
__global__ void __launch_bounds__(kQueryThreads, kDim > 64 ? 1 : 3)
    QueryKernel(HeadShape s, Rotation rotation, const Bf16* qkv, const Bf16* out,
                const float* statistics, const Bf16* dout, float* dots, Bf16* d_qkv) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto* const stages = reinterpret_cast<KeyStage<kDim>*>(memory);  // 2
  const int first_of_block = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueryRows;
  const int head = blockIdx.y, batch = blockIdx.z;
  const int first = first_of_block + static_cast<int>(threadIdx.x) / kGroup * kTile;
  const Head<kDim> h(s, qkv, batch, head);
  stages[0].Load(s, h, 0);
  QueryFacts facts;
  facts.query = first + static_cast<int>(threadIdx.x) % kGroup / 32 * 16 + threadIdx.x % 32 / 4;
  const std::size_t out_stride = static_cast<std::size_t>(s.heads) * kDim;
  FragmentA queries[kDim / 16], gradients[kDim / 16];
  LoadRows(out + OutOf<kDim>(s, batch, head), out_stride, facts.query, s.sequence, queries);
  LoadRows(dout + OutOf<kDim>(s, batch, head), out_stride, facts.query, s.sequence, gradients);
  DotRows(queries, gradients, facts.dot);
  LoadRows(h.q, s.Width<kDim>(), facts.query, s.sequence, queries);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = facts.query + 8 * half;
    if (row >= s.sequence) continue;
    facts.statistic[half] = statistics[RowOf(s, batch, head) + row];
    if (threadIdx.x % 4 == 0) dots[RowOf(s, batch, head) + row] = facts.dot[half];
  }
  FragmentC dq[kDim / 8] = {};
  const int end = min(first_of_block + kQueryRows, s.sequence);
  for (int key = 0, stage = 0; key < end; key += kTile, stage ^= 1) {
    WaitForLoads();
    if (key + kTile < end) stages[stage ^ 1].Load(s, h, key + kTile);
    if (key > first) continue;
#pragma unroll
    for (int n = 0; n < kTile; n += kStep) {
      AddQueryGradients<kDim>(s, queries, gradients, stages[stage], facts, key, n, dq);
    }
  }
  TurnBack<kDim>(s.scale, rotation, facts.query, s.sequence, dq);
  Bf16* to = d_qkv + static_cast<std::size_t>(batch) * s.sequence * s.Width<kDim>() + head * kDim;
  StoreRows<kDim>(dq, facts.query, s.sequence, s.Width<kDim>(), to);
}

// ---- The gradients of keys and values: rows of scores are keys, columns queries

constexpr int kKeyThreads = kGroup;

template <int kDim>
struct QueryStage {
  Tile<kDim> queries, gradients;
  float statistic[kTile], dot[kTile];
};

// Where the queries of a head come from.
template <int kDim>
struct QuerySource {
  const Bf16 *queries, *gradients;
  const float *statistics, *dots;

  __device__ void Load(const HeadShape& s, int query, QueryStage<kDim>* stage) const {
    stage->queries.template Load<kKeyThreads>(queries, s.Width<kDim>(), query, s.sequence);
    stage->gradients.template Load<kKeyThreads>(gradients, static_cast<std::size_t>(s.heads) * kDim,
                                                query, s.sequence);
    const int i = threadIdx.x % kTile, row = query + i;
    const bool inside = row < s.sequence;
    const float* from = threadIdx.x < kTile ? statistics : dots;
    LoadFloat((threadIdx.x < kTile ? stage->statistic : stage->dot) + i, from + (inside ? row : 0),
              inside);
    CommitLoads();
  }
};

// dk += the gradients of kStep scores times their queries; dv += probabilities times gradients.
template <int kDim>
__device__ inline void AddKeyGradients(const HeadShape& s, FragmentA (&keys)[kDim / 16],
                                       FragmentA (&values)[kDim / 16],
                                       const QueryStage<kDim>& stage, int key, int first_query,
                                       int n, FragmentC (&dk)[kDim / 8],
                                       FragmentC (&dv)[kDim / 8]) {
  FragmentC p[kStep / 8] = {}, dp[kStep / 8] = {};
  BeginProducts(keys, values, p, dp);
  AddTimesRows<kStep, kDim>(keys, stage.queries, n, p);
  AddTimesRows<kStep, kDim>(values, stage.gradients, n, dp);
  FinishProducts(keys, values, p, dp);
#pragma unroll
  for (int j = 0; j < kStep / 8; ++j) {
    const int place = n + j * 8 + threadIdx.x % 4 * 2;
    const float2 statistic = *reinterpret_cast<const float2*>(stage.statistic + place);
    const float2 dot = *reinterpret_cast<const float2*>(stage.dot + place);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = first_query + place + i % 2;
      float &e = p[j].x[i], &d = dp[j].x[i];
      e = Exp2(__fmaf_rn(e, s.factor, -(i % 2 == 0 ? statistic.x : statistic.y)));
      if (query < key + i / 2 * 8 || query >= s.sequence) e = 0.0f;
      d = e * (d - (i % 2 == 0 ? dot.x : dot.y));
    }
  }
  FragmentA probabilities[kStep / 16], ds[kStep / 16];
#pragma unroll
  for (int i = 0; i < kStep / 16; ++i) {
    probabilities[i] = AsA(p[2 * i], p[2 * i + 1]);
    ds[i] = AsA(dp[2 * i], dp[2 * i + 1]);
  }
  BeginProducts(probabilities, ds, dv, dk);
  AddProduct<kStep, kDim>(probabilities, stage.gradients, n, dv);
  AddProduct<kStep, kDim>(ds, stage.queries, n, dk);
  FinishProducts(probabilities, ds, dv, dk);
}

// grid (blocks of kTile keys, kv_heads, batch).
template <int kDim>
__global__ void __launch_bounds__(kKeyThreads, kDim > 64 ? 1 : 3)
    KeyKernel(HeadShape s, Rotation rotation, const Bf16* qkv, const float* statistics,
              const Bf16* dout, const float* dots, Bf16* d_qkv) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto* const stages = reinterpret_cast<QueryStage<kDim>*>(memory);  // 2
  const int first = static_cast<int>(blockIdx.x) * kTile, kv = blockIdx.y, batch = blockIdx.z;
  const int group = s.heads / s.kv_heads;
  const int key = first + static_cast<int>(threadIdx.x) / 32 * 16 + threadIdx.x % 32 / 4;
  const auto source = [&](int head) {
    const Head<kDim> h(s, qkv, batch, head);
    const std::size_t row = RowOf(s, batch, head);
    return QuerySource<kDim>{h.q, dout + OutOf<kDim>(s, batch, head), statistics + row, dots + row};
  };
  source(kv * group).Load(s, first, &stages[0]);
  FragmentA keys[kDim / 16], values[kDim / 16];
  {
    const Head<kDim> h(s, qkv, batch, kv * group);
    LoadRows(h.k, s.Width<kDim>(), key, s.sequence, keys);
    LoadRows(h.v, s.Width<kDim>(), key, s.sequence, values);
  }
  FragmentC dk[kDim / 8] = {}, dv[kDim / 8] = {};
  int head = kv * group, query = first, stage = 0;
  while (head < (kv + 1) * group) {
    int next_head = head, next = query + kTile;
    if (next >= s.sequence) {
      next = first;
      ++next_head;
    }
    WaitForLoads();
    if (next_head < (kv + 1) * group) source(next_head).Load(s, next, &stages[stage ^ 1]);
#pragma unroll
    for (int n = 0; n < kTile; n += kStep) {
      AddKeyGradients<kDim>(s, keys, values, stages[stage], key, query, n, dk, dv);
    }
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
    constexpr std::size_t kQueryShared = 2 * sizeof(KeyStage<dim>);
    constexpr std::size_t kKeyShared = 2 * sizeof(QueryStage<dim>);
    AllowShared(QueryKernel<dim>, kQueryShared);
    AllowShared(KeyKernel<dim>, kKeyShared);
    QueryKernel<dim><<<GridOf(s, s.heads, kQueryRows), kQueryThreads, kQueryShared, stream>>>(
        ShapeOf(s), {cos, sin}, qkv, out, statistics, dout, dots, d_qkv);
    KeyKernel<dim><<<GridOf(s, s.kv_heads, kTile), kKeyThreads, kKeyShared, stream>>>(
        ShapeOf(s), {cos, sin}, qkv, statistics, dout, dots, d_qkv);
  });
  CheckLaunch("AttentionBackward");
}

}  // namespace fp4lab::gpu
