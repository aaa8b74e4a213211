// Block-scaled products of E2M1 by tcgen05.mma, 128 x 128 outputs a thread block of four warps; two
// stages of 128 k. Never run: compiled, its machine code inspected, its descriptors and layouts
// tested on the host.
//
// Each thread copies one row of a and b and of their scales into a stage; one thread then has the
// scales copied to tensor memory and issues the products, whose end an mbarrier tells. While they
// run the other stage is filled. A stage has columns of its own for its scales, as the order of a
// copy after a product is not promised. d stays in tensor memory until the end: thread i of warp w
// owns row 32 w + i of it. (What is marked maybe_unused is so on chips without tcgen05.)
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/cuda/block_scaled_job.cuh"
#include "fp4lab/cuda/block_scaled_launch.h"
#include "fp4lab/cuda/check.cuh"
#include "fp4lab/cuda/chip.cuh"
#include "fp4lab/cuda/tcgen05.cuh"

namespace fp4lab::cuda {
namespace {

constexpr unsigned kThreads = kGemmTile, kStages = 2;
constexpr unsigned kRowBytes = kGemmTileK / 2;
constexpr unsigned kColumnsD = kGemmTile, kColumns = 256;  // of tensor memory
static_assert(kGemmTile == kTileRows);

template <BlockScaling kScaling>
constexpr unsigned kScaleTiles = kGemmTileK / GroupOf(kScaling) / kScaleCols;  // of a stage

struct OperandStage {
  alignas(128) std::uint8_t codes[kGemmTile * kRowBytes];
  alignas(128) std::uint8_t scales[2 * kScaleTile];
};
struct Stage {
  OperandStage a, b;
};
struct SharedMemory {
  Stage stages[kStages];
  std::uint64_t done[kStages];
  std::uint32_t tensor;
};

// Where a stage's scales lie in tensor memory.
constexpr unsigned ScaleColumn(unsigned stage, unsigned operand, unsigned tile) {
  return kColumnsD + ((stage * 2 + operand) * 2 + tile) * kScaleTileColumns;
}
static_assert(ScaleColumn(kStages, 0, 0) <= kColumns);

// ---- Global to shared memory: thread i copies row i
// ------------------------------------------------------------------------------------------------

[[maybe_unused]] __device__ void LoadCodes(const GemmJob& job, const std::uint8_t* codes,
                                           std::size_t rows, std::size_t row0, std::size_t k0,
                                           std::uint8_t* to) {
  const std::size_t row = row0 + threadIdx.x, pitch = (job.k + 1) / 2;
  const std::uint8_t* const source = codes + (row < rows ? row * pitch : 0);
#pragma unroll
  for (unsigned byte = 0; byte < kRowBytes; byte += kChunk) {
    std::uint8_t* const place = to + TileOffset(threadIdx.x, byte);
    const std::size_t first = k0 / 2 + byte;
    const bool exists = row < rows && 2 * first < job.k;
    if (job.in_chunks) {
      *reinterpret_cast<uint4*>(place) =
          exists ? *reinterpret_cast<const uint4*>(source + first) : uint4{0, 0, 0, 0};
    } else {
      LoadBytes(source, first, exists ? job.k : 0, place);
    }
  }
}

template <BlockScaling kScaling>
__device__ void LoadScales(const GemmJob& job, const std::uint8_t* scales, std::size_t row0,
                           std::size_t k0, std::uint8_t* to) {
  const std::size_t group = GroupOf(kScaling), cols = (job.k + group - 1) / group;
#pragma unroll
  for (unsigned tile = 0; tile < kScaleTiles<kScaling>; ++tile) {
    const std::size_t col = k0 / group + tile * kScaleCols;
    const unsigned place = threadIdx.x * static_cast<unsigned>(sizeof(std::uint32_t));
    std::uint32_t word = 0;
    if (col < cols) {  // word i of a tile is row i % 4 * 32 + i / 4: all rows of a tile are there
      word = *reinterpret_cast<const std::uint32_t*>(scales + Offset128x4(row0, col, cols) + place);
      word = ExistingScales(word, cols - col);
    }
    *reinterpret_cast<std::uint32_t*>(to + tile * kScaleTile + place) = word;
  }
}

template <BlockScaling kScaling>
__device__ void LoadStage(const GemmJob& job, TileOrigin origin, std::size_t k0, Stage* stage) {
  LoadCodes(job, job.a.codes, job.m, origin.row, k0, stage->a.codes);
  LoadCodes(job, job.b.codes, job.n, origin.col, k0, stage->b.codes);
  LoadScales<kScaling>(job, job.a.scales, origin.row, k0, stage->a.scales);
  LoadScales<kScaling>(job, job.b.scales, origin.col, k0, stage->b.scales);
}

// ---- One thread's instructions for a stage
// ------------------------------------------------------------------------------------------------

template <BlockScaling kScaling>
__device__ void Issue(const SharedMemory& shared, unsigned stage, std::size_t k_left,
                      bool accumulate) {
  const Stage& s = shared.stages[stage];
#pragma unroll
  for (unsigned tile = 0; tile < kScaleTiles<kScaling>; ++tile) {
    CopyScales(TensorAddress(shared.tensor, 0, ScaleColumn(stage, 0, tile)),
               SharedScales(SharedAddress(s.a.scales + tile * kScaleTile)));
    CopyScales(TensorAddress(shared.tensor, 0, ScaleColumn(stage, 1, tile)),
               SharedScales(SharedAddress(s.b.scales + tile * kScaleTile)));
  }
#pragma unroll
  for (unsigned step = 0; step < kGemmTileK / kMmaK; ++step) {
    if (step * kMmaK >= k_left) break;
    const unsigned offset = TileOffset(0, step * (kMmaK / 2));
    const bool mx = kScaling == BlockScaling::kMxfp4;
    const unsigned tile = mx ? 0 : step, scale_id = mx ? 2 * step : 0;
    Multiply<kScaling>(
        shared.tensor, SharedMatrix(SharedAddress(s.a.codes + offset), kTileLeading, kTileStride),
        SharedMatrix(SharedAddress(s.b.codes + offset), kTileLeading, kTileStride),
        InstructionDescriptor(kScaling, kGemmTile, kGemmTile, scale_id),
        TensorAddress(shared.tensor, 0, ScaleColumn(stage, 0, tile)),
        TensorAddress(shared.tensor, 0, ScaleColumn(stage, 1, tile)), accumulate || step > 0);
  }
}

// ---- d
// ------------------------------------------------------------------------------------------------

// Thread i of warp w: row 32 w + i, in lane 32 w + i; its first eight columns from `column`.
__device__ std::uint32_t RowAddress(std::uint32_t tensor, unsigned column) {
  return TensorAddress(tensor, threadIdx.x / kWarp * kWarp, column);
}

[[maybe_unused]] __device__ void StartFrom(const GemmJob& job, TileOrigin origin,
                                           std::uint32_t tensor) {
  const std::size_t row = origin.row + threadIdx.x;
  for (unsigned column = 0; column < kColumnsD; column += 8) {
    std::uint32_t x[8];
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      const std::size_t col = origin.col + column + i;
      const bool exists = row < job.m && col < job.n;
      x[i] = exists ? __float_as_uint(job.d[row * job.n + col]) : 0;
    }
    StoreColumns(RowAddress(tensor, column), x);
  }
}

[[maybe_unused]] __device__ void Store(const GemmJob& job, TileOrigin origin,
                                       std::uint32_t tensor) {
  const std::size_t row = origin.row + threadIdx.x;
  const float alpha = AlphaOf(job);
  for (unsigned column = 0; column < kColumnsD; column += 8) {
    std::uint32_t x[8];
    LoadColumns(RowAddress(tensor, column), x);
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      const std::size_t col = origin.col + column + i;
      if (row < job.m && col < job.n) job.d[row * job.n + col] = Finished(x[i], alpha);
    }
  }
}

// ---- The kernel
// ------------------------------------------------------------------------------------------------

[[maybe_unused]] __device__ void Begin(SharedMemory* shared) {
  if (threadIdx.x < kWarp) AllocateTensorMemory<kColumns>(&shared->tensor);
  if (threadIdx.x == 0) {
    for (std::uint64_t& barrier : shared->done) InitBarrier(&barrier);
    FenceBarriers();
  }
  FenceBeforeBarrier();
  __syncthreads();
  FenceAfterBarrier();
}

template <BlockScaling kScaling>
__device__ void Gemm(const GemmJob& job, SharedMemory* shared) {
  Begin(shared);
  const TileOrigin origin = OriginOf(job, kGemmTile);
  if (job.accumulate) StartFrom(job, origin, shared->tensor);
  unsigned use = 0;  // of stages, in turn
  for (std::size_t k = 0; k < job.k; k += kGemmTileK, ++use) {
    const unsigned stage = use % kStages;
    if (use >= kStages) WaitFor(&shared->done[stage], (use / kStages - 1) % 2);
    LoadStage<kScaling>(job, origin, k, &shared->stages[stage]);
    FenceStores();
    FenceBeforeBarrier();
    __syncthreads();
    if (threadIdx.x == 0) {
      FenceAfterBarrier();
      Issue<kScaling>(*shared, stage, job.k - k, job.accumulate || k > 0);
      CommitTo(&shared->done[stage]);
    }
  }
  WaitFor(&shared->done[(use - 1) % kStages], (use - 1) / kStages % 2);
  FenceAfterBarrier();
  Store(job, origin, shared->tensor);
  FenceBeforeBarrier();
  __syncthreads();
  FenceAfterBarrier();
  if (threadIdx.x < kWarp) FreeTensorMemory<kColumns>(shared->tensor);
}

// Empty, without shared memory, where the chip has no such instructions: HasTensorGemm reads that.
template <BlockScaling kScaling>
__global__ void __launch_bounds__(kThreads) TensorGemmKernel(GemmJob job) {
  if constexpr (kHasTcgen05) {
    __shared__ SharedMemory shared;
    Gemm<kScaling>(job, &shared);
  }
}

}  // namespace

bool HasTensorGemm() {
  cudaFuncAttributes attributes{};
  Check(cudaFuncGetAttributes(&attributes, TensorGemmKernel<BlockScaling::kNvfp4>),
        "asking for a kernel's attributes");
  return attributes.sharedSizeBytes > 0;
}

void LaunchTensorGemm(const BlockScaledProblem& p, StreamHandle stream) {
  const std::size_t blocks =
      ((p.m + kGemmTile - 1) / kGemmTile) * ((p.n + kGemmTile - 1) / kGemmTile);
  const auto grid = static_cast<unsigned>(blocks);
  if (p.scaling == BlockScaling::kNvfp4) {
    TensorGemmKernel<BlockScaling::kNvfp4><<<grid, kThreads, 0, NativeStream(stream)>>>(JobOf(p));
  } else {
    TensorGemmKernel<BlockScaling::kMxfp4><<<grid, kThreads, 0, NativeStream(stream)>>>(JobOf(p));
  }
  CheckLaunch("the kernel of products by tcgen05");
}

}  // namespace fp4lab::cuda
