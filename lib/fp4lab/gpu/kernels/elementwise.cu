// Embedding and rotary positions with the arithmetic of nn/, element by element.
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;

template <int kVector>
__global__ void EmbeddingKernel(const float* table, const std::uint16_t* tokens, std::size_t rows,
                                std::size_t cols, float* y) {
  const std::size_t i = ThreadIndex() * kVector, row = i / cols, c = i % cols;
  if (row >= rows) return;
  const Pack<kVector, float> from = LoadPack<kVector>(table + tokens[row] * cols + c);
  StorePack<kVector>(y + i, from.x);
}

// One thread block per segment.
__global__ void SumSegmentsKernel(TokenSegments tokens, const float* dy, std::size_t cols,
                                  float* partials) {
  const std::uint32_t first = tokens.first[blockIdx.x], end = tokens.first[blockIdx.x + 1];
  for (std::size_t c = threadIdx.x; c < cols; c += blockDim.x) {
    float sum = 0.0f;
#pragma unroll 8
    for (std::uint32_t i = first; i < end; ++i) {
      sum = sum + dy[std::size_t{tokens.rows[i]} * cols + c];
    }
    partials[blockIdx.x * cols + c] = sum;
  }
}

// One thread block per token.
__global__ void AddSegmentsKernel(TokenSegments tokens, const float* partials, std::size_t cols,
                                  float* dtable) {
  const std::uint32_t first = tokens.of_token[blockIdx.x], end = tokens.of_token[blockIdx.x + 1];
  if (first == end) return;
  for (std::size_t c = threadIdx.x; c < cols; c += blockDim.x) {
    float sum = dtable[blockIdx.x * cols + c];
#pragma unroll 8
    for (std::uint32_t i = first; i < end; ++i) sum = sum + partials[i * cols + c];
    dtable[blockIdx.x * cols + c] = sum;
  }
}

// A piece of a row is kVector pairs (i, i + half) of a head of queries or keys, or 2 kVector
// neighbours of the values. One thread block processes the pieces of kRopeRows rows.
constexpr unsigned kRopeRows = 4;

struct RopeSizes {
  unsigned positions, half, rotated, pieces;  // pieces of a row: rotated ones first
};

template <int kVector, class A>
__device__ inline void CopyValues(const float* from, A* to) {
  StorePack<kVector>(to, LoadPack<kVector>(from).x);
  StorePack<kVector>(to + kVector, LoadPack<kVector>(from + kVector).x);
}

template <int kVector, class A>
__global__ void RopeKernel(RopeSizes s, std::size_t rows, std::size_t width, const float* cos,
                           const float* sin, float sign, const float* from, A* to) {
  const unsigned per_head = s.half / kVector;
  for (unsigned i = threadIdx.x; i < kRopeRows * s.pieces; i += kThreads) {
    const std::size_t row = std::size_t{blockIdx.x} * kRopeRows + i / s.pieces;
    if (row >= rows) return;
    const unsigned piece = i % s.pieces;
    const float* in = from + row * width;
    A* out = to + row * width;
    if (piece >= s.rotated) {
      CopyValues<kVector>(in + 2 * kVector * piece, out + 2 * kVector * piece);
      continue;
    }
    const unsigned j = piece % per_head * kVector, low = piece / per_head * 2 * s.half + j;
    const std::size_t angle = row % s.positions * s.half + j;
    const Pack<kVector, float> a = LoadPack<kVector>(in + low);
    const Pack<kVector, float> b = LoadPack<kVector>(in + low + s.half);
    if (cos == nullptr) {
      StorePack<kVector>(out + low, a.x);
      StorePack<kVector>(out + low + s.half, b.x);
      continue;
    }
    const Pack<kVector, float> c = LoadPack<kVector>(cos + angle),
                               d = LoadPack<kVector>(sin + angle);
    float first[kVector], second[kVector];
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      const float e = sign * d.x[k];
      first[k] = a.x[k] * c.x[k] - b.x[k] * e;
      second[k] = b.x[k] * c.x[k] + a.x[k] * e;
    }
    StorePack<kVector>(out + low, first);
    StorePack<kVector>(out + low + s.half, second);
  }
}

template <int kVector, class A>
void LaunchRope(const RopeShape& s, const float* cos, const float* sin, float sign,
                const float* from, A* to, cudaStream_t stream) {
  const auto half = static_cast<unsigned>(s.head_dim / 2);
  const auto rotated = static_cast<unsigned>(s.heads + s.kv_heads) * half / kVector;
  const auto pieces = static_cast<unsigned>(s.Width() / 2) / kVector;
  RopeKernel<kVector><<<Blocks(s.rows, kRopeRows), kThreads, 0, stream>>>(
      {static_cast<unsigned>(s.positions), half, rotated, pieces}, s.rows, s.Width(), cos, sin,
      sign, from, to);
  CheckLaunch("Rope");
}

template <class A>
void ChooseRope(const RopeShape& s, const float* cos, const float* sin, float sign,
                const float* from, A* to, cudaStream_t stream) {
  s.head_dim % 8 == 0 ? LaunchRope<4>(s, cos, sin, sign, from, to, stream)
                      : LaunchRope<1>(s, cos, sin, sign, from, to, stream);
}

}  // namespace

void Embedding(const float* table, const std::uint16_t* tokens, std::size_t rows, std::size_t cols,
               float* y, cudaStream_t stream) {
  if (cols % 4 == 0) {
    EmbeddingKernel<4>
        <<<Blocks(rows * cols, 4 * kThreads), kThreads, 0, stream>>>(table, tokens, rows, cols, y);
  } else {
    EmbeddingKernel<1>
        <<<Blocks(rows * cols, kThreads), kThreads, 0, stream>>>(table, tokens, rows, cols, y);
  }
  CheckLaunch("Embedding");
}

void EmbeddingBackward(const TokenSegments& tokens, const float* dy, std::size_t cols,
                       float* partials, float* dtable, cudaStream_t stream) {
  const int threads = cols >= kThreads ? kThreads : cols > 64 ? 128 : 64;
  SumSegmentsKernel<<<static_cast<unsigned>(tokens.segments), threads, 0, stream>>>(tokens, dy,
                                                                                    cols, partials);
  AddSegmentsKernel<<<static_cast<unsigned>(tokens.vocabulary), threads, 0, stream>>>(
      tokens, partials, cols, dtable);
  CheckLaunch("EmbeddingBackward");
}

template <class A>
void Rope(const RopeShape& shape, const float* cos, const float* sin, const float* qkv, A* out,
          cudaStream_t stream) {
  ChooseRope(shape, cos, sin, 1.0f, qkv, out, stream);
}

template <class T>
void RopeBackward(const RopeShape& shape, const float* cos, const float* sin, const float* d_qkv,
                  T* out, cudaStream_t stream) {
  ChooseRope(shape, cos, sin, -1.0f, d_qkv, out, stream);
}

template void Rope(const RopeShape&, const float*, const float*, const float*, float*,
                   cudaStream_t);
template void Rope(const RopeShape&, const float*, const float*, const float*, Bf16*, cudaStream_t);
template void RopeBackward(const RopeShape&, const float*, const float*, const float*, float*,
                           cudaStream_t);
template void RopeBackward(const RopeShape&, const float*, const float*, const float*, Bf16*,
                           cudaStream_t);
}  // namespace fp4lab::gpu
