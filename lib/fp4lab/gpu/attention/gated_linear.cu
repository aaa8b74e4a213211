#include <algorithm>
#include <type_traits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/gpu/attention/gated_linear.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"

namespace fp4lab::gpu {
namespace {

struct Sizes {
  unsigned sequence, heads, keys, values;
  float scale;

  __device__ std::size_t Keys() const { return std::size_t{heads} * keys; }
  __device__ std::size_t Values() const { return std::size_t{heads} * values; }
};

Sizes SizesOf(const GatedLinearShape& s) {
  return {static_cast<unsigned>(s.sequence), static_cast<unsigned>(s.heads),
          static_cast<unsigned>(s.key_dim), static_cast<unsigned>(s.value_dim), s.Scale()};
}

// ---- Decays

constexpr int kDecayThreads = 256;

__global__ void DecaysKernel(const float* z, std::size_t size, float* a, float* slope) {
  const std::size_t i = ThreadIndex();
  if (i >= size) return;
  const float s = Sigmoid(z[i]), kept = sqrtf(sqrtf(sqrtf(sqrtf(s))));
  a[i] = kept;
  if (slope != nullptr) slope[i] = kept * 0.0625f * (1.0f - s);
}

// ---- A thread per column of the state: results, and the gradient of values

constexpr unsigned kStep = 16;         // tokens that come to shared memory at a time
constexpr unsigned kMostColumns = 64;  // of a thread block
constexpr std::size_t kMostKeys = 64;  // that a thread has registers for

// The matrix that is multiplied by each token's row of keys or of queries, and the result.
template <class To>
struct ColumnData {
  const float* x;  // v, or the gradient of the results
  std::size_t x_stride;
  const float* before;  // (rows, heads * values): the sums over earlier keys; null: none
  To* to;               // may be `before`
  std::size_t to_stride;
};

// kKeys rows of the state from `first_key` on; rows beyond the last key are zeros, which change no
// sum. grid (columns / threads, heads, batch).
template <int kKeys, bool kBackward, class To>
__global__ void __launch_bounds__(kMostColumns)
    ColumnKernel(Sizes s, DeviceGatedLinear in, unsigned first_key, ColumnData<To> data) {
  __shared__ __align__(16) float a[kStep][kKeys], k[kStep][kKeys], q[kStep][kKeys];
  __shared__ float xs[kStep][kMostColumns];
  const unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
  const bool inside = column < s.values;
  const std::size_t row = std::size_t{blockIdx.z} * s.sequence;
  const std::size_t first = std::size_t{blockIdx.y} * s.keys + first_key;
  const std::size_t own = std::size_t{blockIdx.y} * s.values + column;
  float state[kKeys] = {};  // the state, or its gradient
  for (unsigned done = 0; done < s.sequence; done += kStep) {
    const unsigned left = s.sequence - done, count = left < kStep ? left : kStep;
    const std::size_t begin = row + (kBackward ? left - count : done);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < count * kKeys; i += blockDim.x) {
      const unsigned t = i / kKeys, c = i % kKeys;
      const bool is_key = first_key + c < s.keys;
      const std::size_t at = (begin + t) * in.stride + first + c;
      a[t][c] = is_key ? in.kept[(begin + t) * s.Keys() + first + c] : 0.0f;
      k[t][c] = is_key ? in.k[at] : 0.0f;
      q[t][c] = is_key ? s.scale * in.q[at] : 0.0f;
    }
    for (unsigned t = 0; t < count; ++t) {
      xs[t][threadIdx.x] = inside ? data.x[(begin + t) * data.x_stride + own] : 0.0f;
    }
    __syncthreads();
    for (unsigned i = 0; i < count; ++i) {
      const unsigned t = kBackward ? count - 1 - i : i;
      const float x = xs[t][threadIdx.x];
      float sum = 0.0f;
      if (data.before != nullptr && inside) sum = data.before[(begin + t) * s.Values() + own];
#pragma unroll
      for (int c = 0; c < kKeys; c += 4) {
        const auto kept = LoadPack<4>(&a[t][c]), key = LoadPack<4>(&k[t][c]),
                   query = LoadPack<4>(&q[t][c]);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float& at = state[c + j];
          if constexpr (kBackward) {
            const float whole = at + query.x[j] * x;
            sum = sum + key.x[j] * whole;
            at = kept.x[j] * whole;
          } else {
            at = kept.x[j] * at + key.x[j] * x;
            sum = sum + query.x[j] * at;
          }
        }
      }
      if (inside) Store(data.to + (begin + t) * data.to_stride + own, sum);
    }
  }
}

template <bool kBackward, class To>
void LaunchColumns(const GatedLinearShape& s, const DeviceGatedLinear& in, std::size_t first_key,
                   const ColumnData<To>& data, cudaStream_t stream) {
  const unsigned threads = s.value_dim <= 32 ? 32 : kMostColumns;
  const dim3 grid(Blocks(s.value_dim, threads), static_cast<unsigned>(s.heads),
                  static_cast<unsigned>(s.batch));
  const std::size_t keys = s.key_dim - first_key;
  const auto launch = [&](auto kernel) {
    kernel<<<grid, threads, 0, stream>>>(SizesOf(s), in, static_cast<unsigned>(first_key), data);
    CheckLaunch("GatedLinearAttention");
  };
  if (keys <= 16) return launch(ColumnKernel<16, kBackward, To>);
  if (keys <= 32) return launch(ColumnKernel<32, kBackward, To>);
  launch(ColumnKernel<static_cast<int>(kMostKeys), kBackward, To>);
}

// Keys by pieces: each adds to the sums of the pieces before it, which `sums` holds.
template <bool kBackward, class To>
void RunColumns(const GatedLinearShape& s, const DeviceGatedLinear& in, const float* x,
                std::size_t x_stride, float* sums, To* to, std::size_t to_stride,
                cudaStream_t stream) {
  const float* before = nullptr;
  std::size_t key = 0;
  for (; key + kMostKeys < s.key_dim; key += kMostKeys) {
    LaunchColumns<kBackward>(s, in, key, ColumnData<float>{x, x_stride, before, sums, s.Values()},
                             stream);
    before = sums;
  }
  LaunchColumns<kBackward>(s, in, key, ColumnData<To>{x, x_stride, before, to, to_stride}, stream);
}

// ---- A half-warp per row of the state: the gradients of queries, keys and decays

constexpr unsigned kRowThreads = 128, kRowKeys = kRowThreads / kHalfWarp;
constexpr std::size_t kMostStates = std::size_t{1} << 27;  // floats

// Tokens between two states that the backward pass keeps, for kPer columns of a lane: those between
// are computed again into registers.
constexpr unsigned PieceOf(int per) { return per <= 16 ? 4 : 2; }

// launch(std::integral_constant<int, columns of a lane>())
template <class Launch>
void WithLaneColumns(std::size_t value_dim, Launch&& launch) {
  Expects(value_dim <= kMostValueDim, "GatedLinearAttentionBackward: value_dim at most 512");
  if (value_dim <= 16) return launch(std::integral_constant<int, 1>());
  if (value_dim <= 32) return launch(std::integral_constant<int, 2>());
  if (value_dim <= 64) return launch(std::integral_constant<int, 4>());
  if (value_dim <= 128) return launch(std::integral_constant<int, 8>());
  if (value_dim <= 256) return launch(std::integral_constant<int, 16>());
  launch(std::integral_constant<int, 32>());
}

std::size_t StatesOfSequence(const GatedLinearShape& s) {
  std::size_t floats = 0;
  WithLaneColumns(s.value_dim, [&](auto per) {
    floats =
        DivideUp(s.sequence, PieceOf(per)) * s.Keys() * static_cast<std::size_t>(per) * kHalfWarp;
  });
  return floats;
}

// Sequences whose states fit.
std::size_t GroupOf(const GatedLinearShape& s) {
  return std::clamp(kMostStates / StatesOfSequence(s), std::size_t{1}, s.batch);
}

// A lane's columns of a row of `values` elements: lane, lane + 16, ...; zeros beyond the last.
template <int kPer>
__device__ inline void LoadLane(const float* __restrict__ row, unsigned lane, unsigned values,
                                float (&x)[kPer]) {
#pragma unroll
  for (int n = 0; n < kPer; ++n) {
    const unsigned column = lane + n * kHalfWarp;
    x[n] = column < values ? row[column] : 0.0f;
  }
}

// grid (keys / kRowKeys, heads, sequences). `states`: each row's state before every kPiece-th
// token. The pass over ascending tokens writes them and the gradient of queries; the pass over
// descending tokens reads them.
template <int kPer, class T>
__global__ void __launch_bounds__(kRowThreads, kPer <= 8 ? 4 : 1)
    RowKernel(Sizes s, std::size_t first_sequence, DeviceGatedLinear in,
              const float* __restrict__ slope, const float* __restrict__ dout,
              float* __restrict__ states, DeviceGatedLinearGradients<T> d) {
  constexpr unsigned kPiece = PieceOf(kPer);
  const unsigned lane = threadIdx.x % kHalfWarp, head = blockIdx.y;
  const unsigned wanted = blockIdx.x * kRowKeys + threadIdx.x / kHalfWarp;
  // Half-warps beyond the last key repeat it, so that no lane is missing from a shuffle.
  const bool inside = wanted < s.keys, writes = inside && lane == 0;
  const std::size_t at_key = std::size_t{head} * s.keys + (inside ? wanted : s.keys - 1);
  const std::size_t at_value = std::size_t{head} * s.values;
  const std::size_t first_row = (first_sequence + blockIdx.z) * s.sequence;
  const unsigned pieces = (s.sequence + kPiece - 1) / kPiece;
  float* const saved =
      states + (std::size_t{blockIdx.z} * s.Keys() + at_key) * pieces * (kPer * kHalfWarp) + lane;
  const auto step = [&](std::size_t row, float(&state)[kPer]) {
    const float a = in.kept[row * s.Keys() + at_key], k = in.k[row * in.stride + at_key];
    float v[kPer];
    LoadLane(in.v + row * in.stride + at_value, lane, s.values, v);
#pragma unroll
    for (int n = 0; n < kPer; ++n) state[n] = a * state[n] + k * v[n];
  };

  float state[kPer] = {};
  for (unsigned t = 0; t < s.sequence; ++t) {
    if (t % kPiece == 0 && inside) {
#pragma unroll
      for (int n = 0; n < kPer; ++n) saved[(t / kPiece * kPer + n) * kHalfWarp] = state[n];
    }
    const std::size_t row = first_row + t;
    float g[kPer], sum = 0.0f;
    LoadLane(dout + row * s.Values() + at_value, lane, s.values, g);
    step(row, state);
#pragma unroll
    for (int n = 0; n < kPer; ++n) sum = sum + state[n] * g[n];
    sum = SumOfLanes(sum);
    if (writes) Store(d.q + row * d.stride + at_key, s.scale * sum);
  }

  float d_state[kPer] = {};
  for (unsigned piece = pieces; piece-- > 0;) {
    const std::size_t first = first_row + std::size_t{piece} * kPiece;
    const unsigned left = s.sequence - piece * kPiece, count = left < kPiece ? left : kPiece;
    float before[kPiece][kPer];  // each token's
#pragma unroll
    for (int n = 0; n < kPer; ++n) {
      before[0][n] = inside ? saved[(piece * kPer + n) * kHalfWarp] : 0.0f;
    }
#pragma unroll
    for (unsigned u = 1; u < kPiece; ++u) {
#pragma unroll
      for (int n = 0; n < kPer; ++n) before[u][n] = before[u - 1][n];
      if (u < count) step(first + u - 1, before[u]);
    }
#pragma unroll
    for (unsigned i = 0; i < kPiece; ++i) {
      const unsigned u = kPiece - 1 - i;
      if (u >= count) continue;
      const std::size_t row = first + u;
      const float q = s.scale * in.q[row * in.stride + at_key];
      const float a = in.kept[row * s.Keys() + at_key];
      float g[kPer], v[kPer], dk = 0.0f, da = 0.0f;
      LoadLane(dout + row * s.Values() + at_value, lane, s.values, g);
      LoadLane(in.v + row * in.stride + at_value, lane, s.values, v);
#pragma unroll
      for (int n = 0; n < kPer; ++n) {
        const float whole = d_state[n] + q * g[n];
        dk = dk + whole * v[n];
        da = da + whole * before[u][n];
        d_state[n] = a * whole;
      }
      dk = SumOfLanes(dk);
      da = SumOfLanes(da);
      if (!writes) continue;
      const std::size_t at_decay = row * s.Keys() + at_key;
      Store(d.k + row * d.stride + at_key, dk);
      Store(d.z + at_decay, da * slope[at_decay]);
    }
  }
}

template <class T>
void RunRows(const GatedLinearShape& s, const DeviceGatedLinear& in, const float* dout,
             const GatedLinearScratch& scratch, const DeviceGatedLinearGradients<T>& d,
             cudaStream_t stream) {
  const std::size_t group = GroupOf(s);
  WithLaneColumns(s.value_dim, [&](auto per) {
    for (std::size_t first = 0; first < s.batch; first += group) {
      const dim3 grid(Blocks(s.key_dim, kRowKeys), static_cast<unsigned>(s.heads),
                      static_cast<unsigned>(std::min(group, s.batch - first)));
      RowKernel<per, T><<<grid, kRowThreads, 0, stream>>>(SizesOf(s), first, in, scratch.slope,
                                                          dout, scratch.states, d);
      CheckLaunch("GatedLinearAttentionBackward");
    }
  });
}

}  // namespace

void MakeDecays(const float* z, std::size_t size, float* a, float* slope, cudaStream_t stream) {
  DecaysKernel<<<Blocks(size, kDecayThreads), kDecayThreads, 0, stream>>>(z, size, a, slope);
  CheckLaunch("MakeDecays");
}

void GatedLinearAttention(const GatedLinearShape& shape, const DeviceGatedLinear& in, float* out,
                          cudaStream_t stream) {
  RunColumns<false>(shape, in, in.v, in.stride, out, out, shape.Values(), stream);
}

std::size_t GatedLinearStates(const GatedLinearShape& shape) {
  return GroupOf(shape) * StatesOfSequence(shape);
}

template <class T>
void GatedLinearAttentionBackward(const GatedLinearShape& shape, const DeviceGatedLinear& in,
                                  const float* dout, const GatedLinearScratch& scratch,
                                  const DeviceGatedLinearGradients<T>& d, cudaStream_t stream) {
  RunColumns<true>(shape, in, dout, shape.Values(), scratch.values, d.v, d.stride, stream);
  RunRows(shape, in, dout, scratch, d, stream);
}

template void GatedLinearAttentionBackward(const GatedLinearShape&, const DeviceGatedLinear&,
                                           const float*, const GatedLinearScratch&,
                                           const DeviceGatedLinearGradients<float>&, cudaStream_t);
template void GatedLinearAttentionBackward(const GatedLinearShape&, const DeviceGatedLinear&,
                                           const float*, const GatedLinearScratch&,
                                           const DeviceGatedLinearGradients<Bf16>&, cudaStream_t);

}  // namespace fp4lab::gpu
