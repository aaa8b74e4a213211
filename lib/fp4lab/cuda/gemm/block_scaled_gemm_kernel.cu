// Block-scaled products of E2M1 by the warp instruction m16n8k64: 128 x 128 outputs for each thread
// block, by eight warps of 32 x 64; two stages of 128 k in shared memory.
//
// A row of a stage is 64 bytes, four chunks of 16. Chunk c of row r lies at c ^ (r / 2 % 4), so
// that ldmatrix reads the eight rows of a matrix from different banks. Scales lie as in global
// memory: a tile of 128x4 holds the stage's 128 rows and four groups of k.
#include <type_traits>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/gemm/block_scaled_job.cuh"
#include "fp4lab/cuda/gemm/block_scaled_launch.h"
#include "fp4lab/cuda/gemm/block_scaled_mma.cuh"

namespace fp4lab::cuda {
namespace {

constexpr unsigned kThreads = 256, kStages = 2;
constexpr unsigned kWarpM = 32, kWarpN = 64, kWarpsN = kGemmTile / kWarpN;
constexpr unsigned kTilesM = kWarpM / kMmaM, kTilesN = kWarpN / kMmaN;
constexpr unsigned kSteps = kGemmTileK / kMmaK;  // instructions along k in a stage
constexpr unsigned kRowBytes = kGemmTileK / 2, kChunks = kRowBytes / kChunk;
static_assert(kThreads / kWarp == kGemmTile / kWarpM * kWarpsN);

template <BlockScaling kScaling>
struct Scales {
  static constexpr unsigned kTiles = kGemmTileK / GroupOf(kScaling) / kScaleCols;  // of a stage
};

struct OperandStage {
  alignas(16) std::uint8_t codes[kGemmTile * kRowBytes];
  alignas(16) std::uint8_t scales[2 * kScaleTile];
};
struct Stage {
  OperandStage a, b;
};

__device__ unsigned ChunkOffset(unsigned row, unsigned chunk) {
  return row * kRowBytes + (chunk ^ row / 2 % kChunks) * kChunk;
}

// ---- Global to shared memory ----

__device__ void LoadCodes(const GemmJob& job, const std::uint8_t* codes, std::size_t rows,
                          std::size_t row0, std::size_t k0, std::uint8_t* to) {
  const std::size_t pitch = (job.k + 1) / 2;
#pragma unroll
  for (unsigned i = threadIdx.x; i < kGemmTile * kChunks; i += kThreads) {
    const unsigned r = i / kChunks, c = i % kChunks;
    const std::size_t row = row0 + r, first = k0 / 2 + c * kChunk;
    const bool exists = row < rows && 2 * first < job.k;
    std::uint8_t* const place = to + ChunkOffset(r, c);
    const std::uint8_t* const source = codes + (exists ? row * pitch : 0);
    if (job.in_chunks) {
      CopyChunk(place, source + (exists ? first : 0), exists);
    } else {
      LoadBytes(source, first, exists ? job.k : 0, place);
    }
  }
}

template <BlockScaling kScaling>
__device__ void LoadScales(const GemmJob& job, const std::uint8_t* scales, std::size_t row0,
                           std::size_t k0, std::uint8_t* to) {
  constexpr unsigned kTiles = Scales<kScaling>::kTiles;
  const std::size_t group = GroupOf(kScaling), cols = DivideUp(job.k, group);
  const std::size_t col0 = k0 / group;
  for (unsigned i = threadIdx.x; i < kTiles * kScaleTile / kChunk; i += kThreads) {
    const unsigned tile = i * kChunk / kScaleTile, byte = i * kChunk % kScaleTile;
    const std::size_t col = col0 + tile * kScaleCols;
    const bool exists = col < cols;
    CopyChunk(to + i * kChunk, scales + (exists ? Offset128x4(row0, col, cols) + byte : 0), exists);
  }
}

template <BlockScaling kScaling>
__device__ void LoadStage(const GemmJob& job, std::size_t row0, std::size_t col0, std::size_t k0,
                          Stage* stage) {
  LoadCodes(job, job.a.codes, job.m, row0, k0, stage->a.codes);
  LoadCodes(job, job.b.codes, job.n, col0, k0, stage->b.codes);
  LoadScales<kScaling>(job, job.a.scales, row0, k0, stage->a.scales);
  LoadScales<kScaling>(job, job.b.scales, col0, k0, stage->b.scales);
  CommitCopies();
}

// ---- Shared memory to registers ----

struct Fragments {
  std::uint32_t a[kTilesM][kRegistersA], b[kTilesN][kRegistersB];
  std::uint32_t a_scales, b_scales[kTilesN / 4];
};

// The register with the four scales of a row of the thread block's tile, read from a tile of
// scales. Scales past the end of k are 0: `groups` groups are left.
__device__ std::uint32_t ScaleRegister(const std::uint8_t* tile, unsigned row, std::size_t groups) {
  const std::uint32_t word =
      *reinterpret_cast<const std::uint32_t*>(tile + Offset128x4(row, 0u, kScaleCols));
  return ExistingScales(word, groups);
}

// Loads the fragments of step `step` of a stage. For a, matrix i of a load is register i of a
// 16-row tile; for b, the four matrices are registers 0 and 1 of two tiles.
template <BlockScaling kScaling>
__device__ void LoadFragments(const Stage& stage, unsigned step, std::size_t k_left,
                              unsigned warp_m, unsigned warp_n, unsigned lane, Fragments* f) {
  const unsigned matrix = lane / 8, row = lane % 8;
  constexpr unsigned kStepChunks = kMmaK / 2 / kChunk;
  const FragmentElement in_a = ElementOfA({0, matrix, 0}), in_b = ElementOfB({0, matrix % 2, 0});
#pragma unroll
  for (unsigned i = 0; i < kTilesM; ++i) {
    const unsigned offset = ChunkOffset(warp_m * kWarpM + i * kMmaM + in_a.row + row,
                                        step * kStepChunks + in_a.col / 2 / kChunk);
    LoadMatrices(stage.a.codes + offset, &f->a[i][0], &f->a[i][1], &f->a[i][2], &f->a[i][3]);
  }
#pragma unroll
  for (unsigned i = 0; i < kTilesN; i += 2) {
    const unsigned offset = ChunkOffset(warp_n * kWarpN + (i + matrix / 2) * kMmaN + in_b.row + row,
                                        step * kStepChunks + in_b.col / 2 / kChunk);
    LoadMatrices(stage.b.codes + offset, &f->b[i][0], &f->b[i][1], &f->b[i + 1][0],
                 &f->b[i + 1][1]);
  }
  constexpr unsigned kGroup = GroupOf(kScaling);
  const unsigned first = step * kMmaK / kGroup / kScaleCols * kScaleCols;  // group of the register
  const std::size_t left = DivideUp(k_left, kGroup) - first;
  const unsigned tile = first / kScaleCols * kScaleTile;
  f->a_scales = ScaleRegister(stage.a.scales + tile, warp_m * kWarpM + ScaleRowA(lane), left);
#pragma unroll
  for (unsigned i = 0; i < kTilesN / 4; ++i) {
    f->b_scales[i] = ScaleRegister(stage.b.scales + tile,
                                   warp_n * kWarpN + i * 4 * kMmaN + ScaleRowB(lane), left);
  }
}

// ---- The instructions of a step ----

using Accumulators = std::uint32_t[kTilesM * kTilesN * kRegistersD];  // tile by tile

template <BlockScaling kScaling, unsigned kByte, std::size_t... kTile>
__device__ void MultiplyByInstructions(const Fragments& f, Accumulators& d,
                                       std::index_sequence<kTile...>) {
  (MmaByInstruction<kScaling, kByte, kTile / kTilesN, kTile % 4>(
       f.a[kTile / kTilesN], f.b[kTile % kTilesN], f.a_scales, f.b_scales[kTile % kTilesN / 4],
       d + kTile * kRegistersD),
   ...);
}

// Moves all items down by one; the first item becomes the last.
template <unsigned kItems>
__device__ void Rotate(std::uint32_t (&items)[kItems]) {
  const std::uint32_t first = items[0];
#pragma unroll
  for (unsigned i = 0; i + 1 < kItems; ++i) items[i] = items[i + 1];
  items[kItems - 1] = first;
}
template <unsigned kItems, unsigned kRegisters>
__device__ void Rotate(std::uint32_t (&items)[kItems][kRegisters]) {
#pragma unroll
  for (unsigned r = 0; r < kRegisters; ++r) {
    const std::uint32_t first = items[0][r];
#pragma unroll
    for (unsigned i = 0; i + 1 < kItems; ++i) items[i][r] = items[i + 1][r];
    items[kItems - 1][r] = first;
  }
}

// One loop computes all outputs of a lane and rotates each to index 0 in its turn: 64 copies of the
// arithmetic would fill the instruction cache, and an index into registers must be a constant.
template <BlockScaling kScaling>
__device__ void MultiplyInSoftware(Fragments& f, unsigned byte_id, unsigned lane, Accumulators& d) {
#pragma unroll 1
  for (unsigned i = 0; i < kTilesM * kTilesN * kRegistersD; ++i) {
    const unsigned tile = i / kRegistersD, reg = i % kRegistersD;
    const ShuffledWarp warp{f.a[0], f.b[0], f.a_scales,
                            tile % kTilesN < 4 ? f.b_scales[0] : f.b_scales[1]};
    d[0] = MmaInSoftware<kScaling>(warp, lane, reg, {byte_id, tile / kTilesN}, {byte_id, tile % 4},
                                   d[0]);
    Rotate(d);
    if (reg == kRegistersD - 1) Rotate(f.b);
    if (i % (kTilesN * kRegistersD) == kTilesN * kRegistersD - 1) Rotate(f.a);
  }
}

template <BlockScaling kScaling, MmaForm kForm>
__device__ void Multiply(Fragments& f, unsigned step, unsigned lane, Accumulators& d) {
  // With one scale for 32 elements a register holds the scales of two steps.
  const unsigned byte_id = kScaling == BlockScaling::kMxfp4 ? step * 2 : 0;
  if constexpr (kForm == MmaForm::kMmaSyncSoftware) {
    MultiplyInSoftware<kScaling>(f, byte_id, lane, d);
  } else {
    constexpr auto kTiles = std::make_index_sequence<kTilesM * kTilesN>{};
    if (byte_id == 0) {
      MultiplyByInstructions<kScaling, 0>(f, d, kTiles);
    } else if constexpr (kScaling == BlockScaling::kMxfp4) {
      MultiplyByInstructions<kScaling, 2>(f, d, kTiles);
    }
  }
}

// ---- Outputs ----

// Calls use(accumulator, place in d) for all outputs that lie within d; row0 and col0 are the
// warp's.
template <class Use>
__device__ void ForEachOutput(const GemmJob& job, std::size_t row0, std::size_t col0, unsigned lane,
                              Accumulators& d, const Use& use) {
#pragma unroll
  for (unsigned tile = 0; tile < kTilesM * kTilesN; ++tile) {
#pragma unroll
    for (unsigned reg = 0; reg < kRegistersD; ++reg) {
      const FragmentElement e = ElementOfD(lane, reg);
      const std::size_t row = row0 + tile / kTilesN * kMmaM + e.row;
      const std::size_t col = col0 + tile % kTilesN * kMmaN + e.col;
      if (row < job.m && col < job.n) use(d[tile * kRegistersD + reg], job.d + row * job.n + col);
    }
  }
}

template <BlockScaling kScaling, MmaForm kForm>
__device__ void Gemm(const GemmJob& job, Stage* stages) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const unsigned warp_m = warp / kWarpsN, warp_n = warp % kWarpsN;
  const auto [row0, col0] = OriginOf(job, kGemmTile);
  const std::size_t warp_row = row0 + warp_m * kWarpM, warp_col = col0 + warp_n * kWarpN;
  Accumulators d = {};
  if (job.accumulate) {
    ForEachOutput(job, warp_row, warp_col, lane, d,
                  [](std::uint32_t& x, const float* place) { x = __float_as_uint(*place); });
  }
  if (job.k > 0) LoadStage<kScaling>(job, row0, col0, 0, &stages[0]);
  unsigned now = 0;
  for (std::size_t k = 0; k < job.k; k += kGemmTileK, now ^= 1) {
    const bool more = k + kGemmTileK < job.k;
    if (more) LoadStage<kScaling>(job, row0, col0, k + kGemmTileK, &stages[now ^ 1]);
    more ? WaitForCopies<1>() : WaitForCopies<0>();
    __syncthreads();
#pragma unroll kForm == MmaForm::kMmaSyncSoftware ? 1 : kSteps
    for (unsigned step = 0; step < kSteps; ++step) {
      if (k + step * kMmaK >= job.k) break;
      Fragments f;
      LoadFragments<kScaling>(stages[now], step, job.k - k, warp_m, warp_n, lane, &f);
      Multiply<kScaling, kForm>(f, step, lane, d);
    }
    __syncthreads();
  }
  const float alpha = AlphaOf(job);
  ForEachOutput(job, warp_row, warp_col, lane, d,
                [alpha](std::uint32_t x, float* place) { *place = Finished(x, alpha); });
}

// Without the chip's instruction the kernel is compiled empty and takes no shared memory, by which
// HasWarpGemm recognizes it.
template <BlockScaling kScaling, MmaForm kForm>
__global__ void __launch_bounds__(kThreads) WarpGemmKernel(GemmJob job) {
  if constexpr (kForm == MmaForm::kMmaSyncSoftware || kHasBlockScaledMmaSync) {
    __shared__ Stage stages[kStages];
    Gemm<kScaling, kForm>(job, stages);
  }
}

template <BlockScaling kScaling, MmaForm kForm>
void Launch(const BlockScaledProblem& p, cudaStream_t stream) {
  const GemmJob job = JobOf(p);
  const std::size_t blocks = DivideUp(p.m, kGemmTile) * DivideUp(p.n, kGemmTile);
  WarpGemmKernel<kScaling, kForm><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(job);
  CheckLaunch("the kernel of block-scaled products");
}

}  // namespace

bool HasWarpGemm(MmaForm form) {
  if (form == MmaForm::kMmaSyncSoftware) return true;
  cudaFuncAttributes attributes{};
  Check(cudaFuncGetAttributes(&attributes, WarpGemmKernel<BlockScaling::kNvfp4, MmaForm::kMmaSync>),
        "asking for a kernel's attributes");
  return attributes.sharedSizeBytes > 0;
}

void LaunchWarpGemm(const BlockScaledProblem& p, MmaForm form, StreamHandle stream) {
  const bool nvfp4 = p.scaling == BlockScaling::kNvfp4;
  if (form == MmaForm::kMmaSyncSoftware) {
    nvfp4 ? Launch<BlockScaling::kNvfp4, MmaForm::kMmaSyncSoftware>(p, NativeStream(stream))
          : Launch<BlockScaling::kMxfp4, MmaForm::kMmaSyncSoftware>(p, NativeStream(stream));
  } else {
    nvfp4 ? Launch<BlockScaling::kNvfp4, MmaForm::kMmaSync>(p, NativeStream(stream))
          : Launch<BlockScaling::kMxfp4, MmaForm::kMmaSync>(p, NativeStream(stream));
  }
}

}  // namespace fp4lab::cuda
