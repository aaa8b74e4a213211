// The kernel of Hadamard transforms of 16 to 128 BF16 numbers (hadamard_chunks.cuh).
#include <algorithm>

#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/cuda/device/shared_memory.cuh"
#include "fp4lab/dialect/gemm_alpha.h"
#include "fp4lab/gpu/quantize/hadamard_chunks.cuh"

namespace fp4lab::gpu {
namespace {

constexpr unsigned kThreads = 128, kBlocksOfProcessor = 4;
constexpr unsigned kTileSize = 8192, kPieceSize = 8;  // of a tile of 64 chunks, and of 16 bytes
constexpr unsigned kPieces = kTileSize / kPieceSize;

struct Job {
  std::uint32_t rows, cols;
  const Bf16* x;
  Bf16* out;
  HadamardSigns before, after;  // of a chunk, applied before and after the transform
  bool signs_after;             // whether `after` has any
  std::uint32_t* amax;          // raised to the bits of the outputs' amax; may be null
  std::uint32_t tiles, tiles_across;
};

// Signs for lanes that have numbers 8 j + 2 t and the next of chunks (t = lane % 4), gathered: bit
// j of the lower and of the upper half of word t.
struct GatheredSigns {
  std::uint32_t words[4];

  // The sign bits of pair j in a word of two BF16 numbers.
  static __device__ std::uint32_t OfPair(std::uint32_t word, unsigned j) {
    return word << (15 - j) & 0x80008000u;
  }
};
GatheredSigns Gathered(const HadamardSigns& signs) {
  GatheredSigns gathered{};
  for (unsigned k = 0; k < kChunk; ++k) {
    const bool negates = signs.Negates(static_cast<int>(k));
    gathered.words[k % 8 / 2] |= static_cast<std::uint32_t>(negates) << (k / 8 + k % 2 * 16);
  }
  return gathered;
}

// A piece of a tile in shared memory, in elements. Pieces of eight neighbouring lines are permuted,
// so that the same piece of these lines lies in different banks.
template <unsigned kPiecesOfLine>
__device__ unsigned PlaceOfPiece(unsigned line, unsigned piece) {
  return (line * kPiecesOfLine + (piece ^ line % 8)) * kPieceSize;
}

// Tiles of 128 rows of 64 columns, whose chunks are columns. The number of columns is a multiple of
// eight.
struct DownColumns {
  static constexpr unsigned kPiecesOfLine = 8, kLines = kPieces / kPiecesOfLine;
  std::uint32_t top, left;

  __device__ DownColumns(const Job& job, std::uint32_t tile)
      : top(tile / job.tiles_across * kLines),
        left(tile % job.tiles_across * kPiecesOfLine * kPieceSize) {}
  __device__ bool Has(const Job& job, unsigned line, unsigned piece) const {
    return top + line < job.rows && left + piece * kPieceSize < job.cols;
  }
  __device__ std::size_t PlaceOf(const Job& job, unsigned line, unsigned piece) const {
    return std::size_t{top + line} * job.cols + left + piece * kPieceSize;
  }
  static __device__ std::size_t Step(const Job& job, unsigned lines) {
    return std::size_t{job.cols} * lines;
  }

  static __device__ unsigned PlaceOfNumber(unsigned chunk, unsigned k) {
    return PlaceOfPiece<kPiecesOfLine>(k, chunk / kPieceSize) + chunk % kPieceSize;
  }
  // Where numbers 32 i to 32 i + 31 of chunks 8 n to 8 n + 7 lie for LoadMatrices.
  static __device__ unsigned Place(unsigned n) {
    return PlaceOfPiece<kPiecesOfLine>(threadIdx.x % 32, n);
  }
  static __device__ unsigned Next(unsigned place, unsigned i) {
    return place + i * 32 * kPiecesOfLine * kPieceSize;
  }
  static __device__ void Load(std::uint32_t address, std::uint32_t (&words)[4]) {
    LoadMatricesTransposed(address, words);
  }
  static __device__ void Store(std::uint32_t address, const std::uint32_t (&words)[4]) {
    StoreMatrices(address, words);
  }
  static __device__ void LoadOutputs(std::uint32_t address, std::uint32_t (&words)[4]) {
    LoadMatrices(address, words);
  }
};

// Tiles of 64 chunks of 128 neighbours.
struct AlongRows {
  static constexpr unsigned kPiecesOfLine = 16, kLines = kPieces / kPiecesOfLine;
  std::size_t first;

  __device__ AlongRows(const Job&, std::uint32_t tile) : first(std::size_t{tile} * kTileSize) {}
  __device__ bool Has(const Job& job, unsigned line, unsigned piece) const {
    return PlaceOf(job, line, piece) < std::size_t{job.rows} * job.cols;
  }
  __device__ std::size_t PlaceOf(const Job&, unsigned line, unsigned piece) const {
    return first + line * kChunk + piece * kPieceSize;
  }
  static __device__ std::size_t Step(const Job&, unsigned lines) { return lines * kChunk; }

  static __device__ unsigned PlaceOfNumber(unsigned chunk, unsigned k) {
    return PlaceOfPiece<kPiecesOfLine>(chunk, k / kPieceSize) + k % kPieceSize;
  }
  static __device__ unsigned Place(unsigned n) {
    return PlaceOfPiece<kPiecesOfLine>(n * 8 + threadIdx.x % 8, threadIdx.x % 32 / 8);
  }
  static __device__ unsigned Next(unsigned place, unsigned i) { return place ^ i * 4 * kPieceSize; }
  static __device__ void Load(std::uint32_t address, std::uint32_t (&words)[4]) {
    LoadMatrices(address, words);
  }
  static __device__ void Store(std::uint32_t address, const std::uint32_t (&words)[4]) {
    StoreMatricesTransposed(address, words);
  }
  static __device__ void LoadOutputs(std::uint32_t address, std::uint32_t (&words)[4]) {
    LoadMatricesTransposed(address, words);
  }
};

// The numbers of chunks 8 n to 8 n + 7 of a tile with their signs: numbers[q][i] holds numbers 16 q
// + 8 i + 2 (lane % 4) and the next of chunk lane / 4. `place`: Layout::Place(n). `signs`: this
// lane's word of GatheredSigns. Returns the plan of that chunk.
template <int kSize, class Layout, bool kDecodes>
__device__ ChunkPlan LoadNumbers(const Bf16* tile, unsigned place, std::uint32_t signs,
                                 float decode, Numbers& numbers) {
  Magnitudes magnitudes;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    std::uint32_t words[4];
    Layout::Load(cuda::SharedAddress(tile + Layout::Next(place, i)), words);
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
      if (kDecodes) {
        words[w] = PackBf16(HalfOf(words[w], 0) * decode, HalfOf(words[w], 1) * decode);
      }
      magnitudes.Add(words[w]);
      numbers[2 * i + w / 2][w % 2] = words[w] ^ GatheredSigns::OfPair(signs, 4 * i + w);
    }
  }
  return magnitudes.Plan<kSize>();
}

// Puts outputs in the place of their chunks' numbers and applies the signs after the transform.
template <class Layout>
__device__ void StoreOutputs(const Job& job, Bf16* tile, unsigned place, Outputs& outputs,
                             LargestOutput* largest) {
#pragma unroll
  for (unsigned w = 0; w < kChunk / 8; ++w) {
    largest->Add(outputs[w]);
    if (job.signs_after) {
      const bool negates = (job.after.words[w / 4] >> (w % 4 * 8 + threadIdx.x % 32 / 4) & 1u) != 0;
      if (negates) outputs[w] ^= 0x80008000u;
    }
  }
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t words[4] = {outputs[4 * i], outputs[4 * i + 1], outputs[4 * i + 2],
                                    outputs[4 * i + 3]};
    Layout::Store(cuda::SharedAddress(tile + Layout::Next(place, i)), words);
  }
}

// Puts outputs of exact sums in the place of the numbers of some of the chunks 8 n to 8 n + 7 of a
// tile, a bit of `chunks` for each, before the signs after the transform.
template <int kSize, class Layout>
__device__ __noinline__ void TransformExactly(const HadamardSigns& before, Bf16* tile, unsigned n,
                                              std::uint32_t chunks, float decode) {
#pragma unroll 1
  for (; chunks != 0; chunks &= chunks - 1) {
    const unsigned chunk = 8 * n + static_cast<unsigned>(__ffs(static_cast<int>(chunks))) - 1;
    const auto number = [&](unsigned k) {
      const float x = __bfloat162float(tile[Layout::PlaceOfNumber(chunk, k)]);
      const std::uint32_t sign = before.Negates(static_cast<int>(k)) ? 0x80000000u : 0u;
      return __uint_as_float(__float_as_uint(RoundToBf16(x * decode)) ^ sign);
    };
    float y[4];
    ExactOutputs<kSize>(number, y);
    __syncwarp();  // all numbers have been read
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      tile[Layout::PlaceOfNumber(chunk, 4 * (threadIdx.x % 32) + j)] = __float2bfloat16_rn(y[j]);
    }
  }
  __syncwarp();
}

// Replaces the outputs of the chunks of TransformExactly by those of the tile.
template <class Layout>
__device__ void TakeOutputs(const Bf16* tile, unsigned place, std::uint32_t chunks,
                            Outputs& outputs) {
  const std::uint32_t own = chunks >> 2 * (threadIdx.x % 4);  // this lane's two
  const std::uint32_t taken =
      ((own & 1u) != 0 ? 0xFFFFu : 0u) | ((own & 2u) != 0 ? 0xFFFF0000u : 0u);
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    std::uint32_t words[4];
    Layout::LoadOutputs(cuda::SharedAddress(tile + Layout::Next(place, i)), words);
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
      outputs[4 * i + w] = (outputs[4 * i + w] & ~taken) | (words[w] & taken);
    }
  }
}

// A thread block transforms tile after tile; the next one arrives in shared memory meanwhile.
// Outputs leave through the tile's memory. kDecodes: the numbers are x times the factor of
// `decoding`, rounded to BF16.
template <int kSize, class Layout, bool kDecodes>
__global__ void __launch_bounds__(kThreads, kBlocksOfProcessor)
    HadamardKernel(const __grid_constant__ Job job, GatheredSigns before, TensorDecode decoding) {
  __shared__ alignas(128) Bf16 tiles[2][kTileSize];
  float decode = 1.0f;
  if (kDecodes) {
    const bool scaled = HasTensorScale(decoding.dialect);
    decode = OperandDecode(decoding.dialect, scaled ? __uint_as_float(*decoding.amax) : 0.0f);
  }
  // The lines of a tile that all threads copy at once, and this thread's line and piece of them.
  constexpr unsigned kCopied = kThreads / Layout::kPiecesOfLine;
  const unsigned line = threadIdx.x / Layout::kPiecesOfLine;
  const unsigned piece = threadIdx.x % Layout::kPiecesOfLine;
  const auto copy = [&](std::uint32_t number, Bf16* to) {
    const Layout layout(job, number);
    const Bf16* from = job.x + layout.PlaceOf(job, line, piece);
#pragma unroll
    for (unsigned i = 0; i < Layout::kLines; i += kCopied) {
      const bool has = layout.Has(job, line + i, piece);
      cuda::CopyChunk(to + PlaceOfPiece<Layout::kPiecesOfLine>(line + i, piece), has ? from : job.x,
                      has);
      from += Layout::Step(job, kCopied);
    }
  };
  const FragmentA matrix = SignsOfProducts();
  const std::uint32_t signs = before.words[threadIdx.x % 4];
  LargestOutput largest;
  copy(blockIdx.x, tiles[0]);
  cuda::CommitCopies();
  unsigned now = 0;
  for (std::uint32_t number = blockIdx.x; number < job.tiles; number += gridDim.x, now ^= 1) {
    cuda::WaitForCopies<0>();
    __syncthreads();  // the tile has arrived, and the memory of the last one is free
    if (number + gridDim.x < job.tiles) copy(number + gridDim.x, tiles[now ^ 1]);
    cuda::CommitCopies();
    const Layout layout(job, number);
    Bf16* const tile = tiles[now];
#pragma unroll 1
    for (unsigned n = threadIdx.x / 32; n < kTileSize / kChunk / 8; n += kThreads / 32) {
      const unsigned place = Layout::Place(n);
      Numbers numbers;
      const ChunkPlan plan =
          LoadNumbers<kSize, Layout, kDecodes>(tile, place, signs, decode, numbers);
      const auto way =
          static_cast<Way>(__reduce_max_sync(kAllLanes, static_cast<unsigned>(plan.way)));
      Outputs outputs;
      const std::uint32_t uncertain = OutputsOfTwo<kSize>(matrix, plan, way, numbers, outputs);
      if (uncertain != 0) {
        TransformExactly<kSize, Layout>(job.before, tile, n, uncertain, decode);
        TakeOutputs<Layout>(tile, place, uncertain, outputs);
      }
      StoreOutputs<Layout>(job, tile, place, outputs, &largest);
    }
    __syncthreads();  // all outputs are in the tile
    Bf16* to = job.out + layout.PlaceOf(job, line, piece);
#pragma unroll
    for (unsigned i = 0; i < Layout::kLines; i += kCopied) {
      if (layout.Has(job, line + i, piece)) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(
            tile + PlaceOfPiece<Layout::kPiecesOfLine>(line + i, piece));
      }
      to += Layout::Step(job, kCopied);
    }
  }
  if (job.amax != nullptr) largest.Raise(job.amax);
}

template <int kSize, class Layout>
void Launch(const Job& job, const std::optional<TensorDecode>& decode, cudaStream_t stream) {
  const auto most = static_cast<std::uint32_t>(cuda::Multiprocessors()) * kBlocksOfProcessor;
  const auto kernel =
      decode ? HadamardKernel<kSize, Layout, true> : HadamardKernel<kSize, Layout, false>;
  kernel<<<std::min(job.tiles, most), kThreads, 0, stream>>>(job, Gathered(job.before),
                                                             decode.value_or(TensorDecode{}));
  CheckLaunch("TransformGroups");
}

// The signs of a chunk, which consists of groups of `size`.
HadamardSigns SignsOfChunk(const HadamardTransform& transform) {
  auto words = transform.signs.words;
  if (transform.size == 16) words[0] = (words[0] & 0xFFFFu) * 0x10001u;
  if (transform.size <= 32) words[1] = words[0];
  if (transform.size <= 64) words[2] = words[0], words[3] = words[1];
  return {words};
}

}  // namespace

bool TransformGroupsOnTensorCores(const HadamardTransform& transform, HadamardWay way,
                                  std::size_t rows, std::size_t cols, bool down_columns,
                                  const Bf16* x, Bf16* out, std::uint32_t* amax,
                                  cudaStream_t stream, const std::optional<TensorDecode>& decode) {
  if (transform.size < 16 || !IsAligned(x, 16) || !IsAligned(out, 16)) return false;
  if (down_columns && cols % kPieceSize != 0) return false;
  if (rows >= 1u << 31 || cols >= 1u << 31 || rows * cols >= std::size_t{1} << 40) return false;
  const HadamardSigns signs = SignsOfChunk(transform), none;
  const bool forth = way == HadamardWay::kForth;
  if (amax != nullptr) Check(cudaMemsetAsync(amax, 0, sizeof *amax, stream), "memset");
  constexpr std::size_t kTileRows = DownColumns::kLines;
  const std::size_t across = DivideUp(cols, kTileSize / kTileRows);
  const std::size_t tiles = down_columns ? across * DivideUp(rows, kTileRows)
                                         : DivideUp(rows * cols, std::size_t{kTileSize});
  const Job job{static_cast<std::uint32_t>(rows),
                static_cast<std::uint32_t>(cols),
                x,
                out,
                forth ? signs : none,
                forth ? none : signs,
                !forth,
                amax,
                static_cast<std::uint32_t>(tiles),
                static_cast<std::uint32_t>(across)};
  const auto launch = [&]<int kSize>() {
    const auto of_layout = down_columns ? Launch<kSize, DownColumns> : Launch<kSize, AlongRows>;
    of_layout(job, decode, stream);
    return true;
  };
  switch (transform.size) {
    case 16:
      return launch.template operator()<16>();
    case 32:
      return launch.template operator()<32>();
    case 64:
      return launch.template operator()<64>();
    default:
      return launch.template operator()<128>();
  }
}

}  // namespace fp4lab::gpu
