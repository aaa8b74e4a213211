// Attention on tensor cores, forward (after Dao 2023, FlashAttention-2): a warpgroup owns 64
// queries and goes over tiles of 64 keys, which the warpgroups of a block share. Scores never leave
// registers.
#include "fp4lab/gpu/attention/attention.cuh"
#include "fp4lab/gpu/attention/attention_shape.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kGroups = 2, kThreads = kGroups * kGroup, kRows = kGroups * kTile;

template <int kDim>
using Stage = KeyStage<kDim, kThreads>;

// The online softmax of a lane's rows g and g + 8: the rows' maxima and the lane's part of their
// sums.
struct Running {
  float max[2] = {kLowest, kLowest}, sum[2] = {0.0f, 0.0f};
};

// Turns a warp's scores (16, kTile) into exp(score - max), and rescales `out` and the sums to the
// new maxima. A row whose window begins in a later tile has seen no key yet; its sums stay 0.
template <int kDim>
__device__ inline void Softmax(const HeadShape& s, int query, int first_key, bool masks,
                               FragmentC (&scores)[kTile / 8], FragmentC (&out)[kDim / 8],
                               Running* running) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float max = running->max[half];
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = scores[n].x[2 * half + j];
        if (masks && s.IsMasked(query + 8 * half, first_key + n * 8 + column + j)) score = kLowest;
        max = fmaxf(max, score);
      }
    }
    max = MaxOfFour(max);
    const float shrink = Exp2((running->max[half] - max) * s.factor);
    const float shift = max == kLowest ? 0.0f : max * s.factor;
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = scores[n].x[2 * half + j];
        score = Exp2(__fmaf_rn(score, s.factor, -shift));
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

// out += softmax of (queries times a tile of keys) times their values.
template <int kDim>
__device__ inline void AddTile(const HeadShape& s, FragmentA (&queries)[kDim / 16],
                               const Stage<kDim>& stage, int query, int first_key, bool masks,
                               FragmentC (&out)[kDim / 8], Running* running) {
  FragmentC scores[kTile / 8] = {};
  BeginProducts(queries, scores);
  AddTimesRows<kTile, kDim>(queries, stage.keys, 0, scores);
  FinishProducts(queries, scores);
  Softmax<kDim>(s, query, first_key, masks, scores, out, running);
  FragmentA p[kTile / 16];
  AsFactors(scores, p);
  BeginProducts(p, out);
  AddProduct<kTile, kDim>(p, stage.values, 0, out);
  FinishProducts(p, out);
}

template <int kDim>
__device__ inline void StoreOut(const HeadShape& s, int batch, int head, int query,
                                const FragmentC (&out)[kDim / 8], const Running& running, Bf16* to,
                                float* statistics) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = query + 8 * half;
    const float sum = SumOfFour(running.sum[half]), inverse = 1.0f / sum;
    if (row >= s.sequence) continue;
    Bf16* at = to + (static_cast<std::size_t>(batch) * s.sequence + row) * s.heads * kDim +
               head * kDim + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<std::uint32_t*>(at + n * 8) =
          PackBf16(out[n].x[2 * half] * inverse, out[n].x[2 * half + 1] * inverse);
    }
    if (threadIdx.x % 4 == 0) {
      statistics[(static_cast<std::size_t>(batch) * s.heads + head) * s.sequence + row] =
          __fmaf_rn(running.max[half], s.factor, log2f(sum));
    }
  }
}

// grid (blocks of kRows queries, heads, batch)
template <int kDim>
__global__ void __launch_bounds__(kThreads, kDim > 64 ? 1 : 2)
    ForwardKernel(HeadShape s, const Bf16* qkv, Bf16* out, float* statistics) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto* const stages = reinterpret_cast<Stage<kDim>*>(memory);                      // 2
  const int first_of_block = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;  // longest first
  const int head = blockIdx.y, batch = blockIdx.z;
  const int first = first_of_block + static_cast<int>(threadIdx.x) / kGroup * kTile;
  const int query = first + static_cast<int>(threadIdx.x) % kGroup / 32 * 16 + threadIdx.x % 32 / 4;
  const Head<kDim> h(s, qkv, batch, head);
  const int begin = s.FirstTile(first_of_block);
  stages[0].Load(s, h, begin);
  FragmentA queries[kDim / 16];
  LoadRows(h.q, s.Width<kDim>(), query, s.sequence, queries);
  FragmentC result[kDim / 8] = {};
  Running running;
  const int end = min(first_of_block + kRows, s.sequence);
  for (int key = begin, stage = 0; key < end; key += kTile, stage ^= 1) {
    WaitForLoads();
    if (key + kTile < end) stages[stage ^ 1].Load(s, h, key + kTile);
    if (key > first || key < s.FirstTile(first)) continue;
    AddTile<kDim>(s, queries, stages[stage], query, key, s.Masks(first, key), result, &running);
  }
  StoreOut<kDim>(s, batch, head, query, result, running, out, statistics);
}

}  // namespace

void Attention(const AttentionShape& s, const Bf16* qkv, Bf16* out, float* statistics,
               cudaStream_t stream) {
  WithHeadDim(s.head_dim, [&](auto dim) {
    constexpr std::size_t kShared = 2 * sizeof(Stage<dim>);
    AllowShared(ForwardKernel<dim>, kShared);
    ForwardKernel<dim><<<GridOf(s, s.heads, kRows), kThreads, kShared, stream>>>(ShapeOf(s), qkv,
                                                                                 out, statistics);
  });
  CheckLaunch("Attention");
}

}  // namespace fp4lab::gpu
