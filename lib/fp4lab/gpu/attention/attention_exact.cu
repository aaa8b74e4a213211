// Attention in binary32 throughout, one warp per row. Of the scores, only each row's statistics are
// stored.
#include <cmath>

#include "fp4lab/gpu/attention/attention.cuh"
#include "fp4lab/gpu/kernels/math.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kWarps = 4;
constexpr int kLanes = 32;

__device__ inline float SumOfWarp(float x) {
  for (int width = kLanes / 2; width > 0; width /= 2) x += __shfl_xor_sync(kAllLanes, x, width);
  return x;
}

struct Shape {
  unsigned sequence, heads, kv_heads, head_dim, window;
  float scale;

  __device__ unsigned Width() const { return (heads + 2 * kv_heads) * head_dim; }
  // The first key that query i sees, and the end of the queries that see key j.
  __device__ unsigned FirstKey(unsigned i) const { return i < window ? 0 : i - window + 1; }
  __device__ unsigned EndOfQueries(unsigned j) const { return min(sequence - j, window) + j; }
};

// One head of one sequence: its first rows of queries, keys and values, and the stride from row to
// row.
struct Head {
  const float *q, *k, *v;
  unsigned stride;
};

__device__ inline Head HeadOf(const Shape& s, const float* qkv, unsigned batch, unsigned head) {
  const unsigned kv = head / (s.heads / s.kv_heads), stride = s.Width();
  const float* row = qkv + std::size_t{batch} * s.sequence * stride;
  return {row + head * s.head_dim, row + (s.heads + kv) * s.head_dim,
          row + (s.heads + s.kv_heads + kv) * s.head_dim, stride};
}

__device__ inline float Dot(const float* a, const float* b, unsigned size) {
  float sum = 0.0f;
  for (unsigned c = 0; c < size; ++c) sum = __fmaf_rn(a[c], b[c], sum);
  return sum;
}

// grid (ceil(T / warps), heads, batch). A lane takes every 32nd key, then every 32nd column.
__global__ void ForwardKernel(Shape s, const float* qkv, float* out, float* statistics) {
  extern __shared__ float scores[];  // (warps, T)
  const unsigned i = blockIdx.x * kWarps + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  if (i >= s.sequence) return;
  const unsigned head = blockIdx.y, batch = blockIdx.z;
  const Head h = HeadOf(s, qkv, batch, head);
  float* p = scores + threadIdx.x / kLanes * s.sequence;
  const float* q = h.q + std::size_t{i} * h.stride;
  const unsigned first = s.FirstKey(i);
  float max = __int_as_float(0xFF800000);
  for (unsigned j = first + lane; j <= i; j += kLanes) {
    p[j] = Dot(q, h.k + std::size_t{j} * h.stride, s.head_dim) * s.scale;
    max = fmaxf(max, p[j]);
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, width));
  }
  float sum = 0.0f;
  for (unsigned j = first + lane; j <= i; j += kLanes) {
    p[j] = ExpNonPositive(p[j] - max);
    sum += p[j];
  }
  sum = SumOfWarp(sum);
  __syncwarp();
  const std::size_t row = std::size_t{batch} * s.sequence + i;
  for (unsigned c = lane; c < s.head_dim; c += kLanes) {
    float value = 0.0f;
    for (unsigned j = first; j <= i; ++j) {
      value = __fmaf_rn(p[j], h.v[std::size_t{j} * h.stride + c], value);
    }
    out[row * s.heads * s.head_dim + head * s.head_dim + c] = value * (1.0f / sum);
  }
  if (lane == 0) {
    statistics[(std::size_t{batch} * s.heads + head) * s.sequence + i] = max + logf(sum);
  }
}

// Computes dq of row i, and dots. The grid is ForwardKernel's.
__global__ void QueryKernel(Shape s, const float* qkv, const float* out, const float* statistics,
                            const float* dout, float* dots, float* d_qkv) {
  extern __shared__ float gradients[];  // ds of the keys: (warps, T)
  const unsigned i = blockIdx.x * kWarps + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  if (i >= s.sequence) return;
  const unsigned head = blockIdx.y, batch = blockIdx.z;
  const Head h = HeadOf(s, qkv, batch, head);
  float* ds = gradients + threadIdx.x / kLanes * s.sequence;
  const std::size_t row = std::size_t{batch} * s.sequence + i;
  const std::size_t at = row * s.heads * s.head_dim + head * s.head_dim;
  const std::size_t statistic = (std::size_t{batch} * s.heads + head) * s.sequence + i;
  float dot = 0.0f;
  for (unsigned c = lane; c < s.head_dim; c += kLanes) dot += dout[at + c] * out[at + c];
  dot = SumOfWarp(dot);
  if (lane == 0) dots[statistic] = dot;
  const float* q = h.q + std::size_t{i} * h.stride;
  const unsigned first = s.FirstKey(i);
  for (unsigned j = first + lane; j <= i; j += kLanes) {
    const float score = Dot(q, h.k + std::size_t{j} * h.stride, s.head_dim) * s.scale;
    const float p = Exp(score - statistics[statistic]);
    ds[j] = p * (Dot(dout + at, h.v + std::size_t{j} * h.stride, s.head_dim) - dot);
  }
  __syncwarp();
  for (unsigned c = lane; c < s.head_dim; c += kLanes) {
    float sum = 0.0f;
    for (unsigned j = first; j <= i; ++j) {
      sum = __fmaf_rn(ds[j], h.k[std::size_t{j} * h.stride + c], sum);
    }
    d_qkv[row * s.Width() + head * s.head_dim + c] = sum * s.scale;
  }
}

// grid (ceil(T / warps), kv_heads, batch): dk and dv of key j, from the queries of its heads that
// see it.
__global__ void KeyKernel(Shape s, const float* qkv, const float* statistics, const float* dout,
                          const float* dots, float* d_qkv) {
  extern __shared__ float pairs[];  // p, then ds of the queries: (warps, 2, T)
  const unsigned j = blockIdx.x * kWarps + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  if (j >= s.sequence) return;
  const unsigned kv = blockIdx.y, batch = blockIdx.z, group = s.heads / s.kv_heads;
  const unsigned end = s.EndOfQueries(j);
  float* p = pairs + threadIdx.x / kLanes * 2 * s.sequence;
  float* ds = p + s.sequence;
  constexpr unsigned kMostColumns = 8;  // head_dim up to 256
  float dk[kMostColumns] = {}, dv[kMostColumns] = {};
  for (unsigned head = kv * group; head < (kv + 1) * group; ++head) {
    const Head h = HeadOf(s, qkv, batch, head);
    const std::size_t statistic = (std::size_t{batch} * s.heads + head) * s.sequence;
    const unsigned out_stride = s.heads * s.head_dim;
    const float* grad = dout + std::size_t{batch} * s.sequence * out_stride + head * s.head_dim;
    const float *k = h.k + std::size_t{j} * h.stride, *v = h.v + std::size_t{j} * h.stride;
    for (unsigned i = j + lane; i < end; i += kLanes) {
      const float score = Dot(h.q + std::size_t{i} * h.stride, k, s.head_dim) * s.scale;
      p[i] = Exp(score - statistics[statistic + i]);
      ds[i] = p[i] * (Dot(grad + std::size_t{i} * out_stride, v, s.head_dim) - dots[statistic + i]);
    }
    __syncwarp();
#pragma unroll
    for (unsigned n = 0; n < kMostColumns; ++n) {
      const unsigned c = lane + n * kLanes;
      if (c >= s.head_dim) break;
      for (unsigned i = j; i < end; ++i) {
        dk[n] = __fmaf_rn(ds[i], h.q[std::size_t{i} * h.stride + c], dk[n]);
        dv[n] = __fmaf_rn(p[i], grad[std::size_t{i} * out_stride + c], dv[n]);
      }
    }
    __syncwarp();
  }
  float* row = d_qkv + (std::size_t{batch} * s.sequence + j) * s.Width();
#pragma unroll
  for (unsigned n = 0; n < kMostColumns; ++n) {
    const unsigned c = lane + n * kLanes;
    if (c >= s.head_dim) break;
    row[(s.heads + kv) * s.head_dim + c] = dk[n] * s.scale;
    row[(s.heads + s.kv_heads + kv) * s.head_dim + c] = dv[n];
  }
}

Shape ShapeOf(const AttentionShape& s) {
  return {static_cast<unsigned>(s.sequence),
          static_cast<unsigned>(s.heads),
          static_cast<unsigned>(s.kv_heads),
          static_cast<unsigned>(s.head_dim),
          static_cast<unsigned>(s.window == 0 ? s.sequence : s.window),
          s.Scale()};
}

template <class Kernel, class... Arguments>
void Launch(Kernel kernel, const AttentionShape& s, std::size_t heads, std::size_t rows_of_scratch,
            cudaStream_t stream, Arguments... arguments) {
  const std::size_t bytes = kWarps * rows_of_scratch * s.sequence * sizeof(float);
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "binary32 attention of so long a sequence");
  const dim3 grid(Blocks(s.sequence, kWarps), static_cast<unsigned>(heads),
                  static_cast<unsigned>(s.batch));
  kernel<<<grid, kWarps * kLanes, bytes, stream>>>(ShapeOf(s), arguments...);
  CheckLaunch("Attention");
}

}  // namespace

void Attention(const AttentionShape& s, const float* qkv, float* out, float* statistics,
               cudaStream_t stream) {
  Expects(s.head_dim <= 256, "binary32 attention: head_dim at most 256");
  Launch(ForwardKernel, s, s.heads, 1, stream, qkv, out, statistics);
}

void AttentionBackward(const AttentionShape& s, const float* qkv, const float* out,
                       const float* statistics, const float* dout, float* dots, float* d_qkv,
                       cudaStream_t stream) {
  Launch(QueryKernel, s, s.heads, 1, stream, qkv, out, statistics, dout, dots, d_qkv);
  Launch(KeyKernel, s, s.kv_heads, 2, stream, qkv, statistics, dout, dots, d_qkv);
}

}  // namespace fp4lab::gpu
