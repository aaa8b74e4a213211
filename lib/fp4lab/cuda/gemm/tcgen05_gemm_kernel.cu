// Block-scaled products of E2M1 by tcgen05.mma: 128 x 128 outputs for each thread block of four
// warps, two stages of 128 k. `Tensor` is the tensor core (TensorCoreMemory: compiled, its machine
// code inspected, never run) or its software form (SoftwareTensorMemory), which runs the same
// kernel on other chips.
//
// Each thread copies one row of a, of b and of their scales into a stage. One thread then issues
// the copies of the scales to tensor memory and the products; an mbarrier signals their end.
// Meanwhile the threads fill the other stage. Each stage has its own columns of tensor memory for
// scales, because PTX does not promise that a copy waits for an earlier product. d stays in tensor
// memory until the end: thread i of warp w owns its row 32 w + i.
#include "fp4lab/base/divide_up.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/device/chip.cuh"
#include "fp4lab/cuda/gemm/block_scaled_job.cuh"
#include "fp4lab/cuda/gemm/block_scaled_launch.h"
#include "fp4lab/cuda/gemm/tcgen05.cuh"
#include "fp4lab/cuda/gemm/tcgen05_software.cuh"

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

// The column of tensor memory of tile `tile` of a stage's scales; operand 0 is a, 1 is b.
constexpr unsigned ScaleColumn(unsigned stage, unsigned operand, unsigned tile) {
  return kColumnsD + ((stage * 2 + operand) * 2 + tile) * kScaleTileColumns;
}
static_assert(ScaleColumn(kStages, 0, 0) <= kColumns);

// ---- Global to shared memory: thread i copies row i ----

__device__ void LoadCodes(const GemmJob& job, const std::uint8_t* codes, std::size_t rows,
                          std::size_t row0, std::size_t k0, std::uint8_t* to) {
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
  const std::size_t group = GroupOf(kScaling), cols = DivideUp(job.k, group);
#pragma unroll
  for (unsigned tile = 0; tile < kScaleTiles<kScaling>; ++tile) {
    const std::size_t col = k0 / group + tile * kScaleCols;
    const unsigned place = threadIdx.x * static_cast<unsigned>(sizeof(std::uint32_t));
    std::uint32_t word = 0;
    if (col < cols) {  // word i of a tile: row i % 4 * 32 + i / 4; tiles have all rows
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

// ---- The instructions of a stage, which one thread issues ----

template <BlockScaling kScaling, class Tensor>
__device__ void Issue(const Tensor& tensor, const SharedMemory& shared, unsigned stage,
                      std::size_t k_left, bool accumulate) {
  const Stage& s = shared.stages[stage];
#pragma unroll
  for (unsigned tile = 0; tile < kScaleTiles<kScaling>; ++tile) {
    tensor.CopyScales(TensorAddress(shared.tensor, 0, ScaleColumn(stage, 0, tile)),
                      SharedScales(SharedAddress(s.a.scales + tile * kScaleTile)));
    tensor.CopyScales(TensorAddress(shared.tensor, 0, ScaleColumn(stage, 1, tile)),
                      SharedScales(SharedAddress(s.b.scales + tile * kScaleTile)));
  }
#pragma unroll
  for (unsigned step = 0; step < kGemmTileK / kMmaK; ++step) {
    if (step * kMmaK >= k_left) break;
    const unsigned offset = TileOffset(0, step * (kMmaK / 2));
    const bool mx = kScaling == BlockScaling::kMxfp4;
    const unsigned tile = mx ? 0 : step, scale_id = mx ? 2 * step : 0;
    tensor.template Multiply<kScaling>(
        shared.tensor, SharedMatrix(SharedAddress(s.a.codes + offset), kTileLeading, kTileStride),
        SharedMatrix(SharedAddress(s.b.codes + offset), kTileLeading, kTileStride),
        InstructionDescriptor(kScaling, kGemmTile, kGemmTile, scale_id),
        TensorAddress(shared.tensor, 0, ScaleColumn(stage, 0, tile)),
        TensorAddress(shared.tensor, 0, ScaleColumn(stage, 1, tile)), accumulate || step > 0);
  }
}

// ---- d in tensor memory ----

// The address for Load and Store of the warp's 32 rows of d, from column `column` on: thread i of
// warp w has row 32 w + i, in lane 32 w + i.
__device__ std::uint32_t RowAddress(std::uint32_t base, unsigned column) {
  return TensorAddress(base, threadIdx.x / kWarp * kWarp, column);
}

template <class Tensor>
__device__ void StartFrom(const Tensor& tensor, const GemmJob& job, TileOrigin origin,
                          std::uint32_t base) {
  const std::size_t row = origin.row + threadIdx.x;
  for (unsigned column = 0; column < kColumnsD; column += 8) {
    std::uint32_t x[8];
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      const std::size_t col = origin.col + column + i;
      const bool exists = row < job.m && col < job.n;
      x[i] = exists ? __float_as_uint(job.d[row * job.n + col]) : 0;
    }
    tensor.Store(RowAddress(base, column), x);
  }
}

template <class Tensor>
__device__ void Store(const Tensor& tensor, const GemmJob& job, TileOrigin origin,
                      std::uint32_t base) {
  const std::size_t row = origin.row + threadIdx.x;
  const float alpha = AlphaOf(job);
  for (unsigned column = 0; column < kColumnsD; column += 8) {
    std::uint32_t x[8];
    tensor.Load(RowAddress(base, column), x);
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      const std::size_t col = origin.col + column + i;
      if (row < job.m && col < job.n) job.d[row * job.n + col] = Finished(x[i], alpha);
    }
  }
}

// ---- The kernel ----

template <class Tensor>
__device__ void Begin(const Tensor& tensor, SharedMemory* shared) {
  tensor.Allocate(&shared->tensor);
  if (threadIdx.x == 0) {
    for (std::uint64_t& barrier : shared->done) InitBarrier(&barrier);
    FenceBarriers();
  }
  tensor.FenceBeforeBarrier();
  __syncthreads();
  tensor.FenceAfterBarrier();
}

template <BlockScaling kScaling, class Tensor>
__device__ void Gemm(const Tensor& tensor, const GemmJob& job, SharedMemory* shared) {
  Begin(tensor, shared);
  const TileOrigin origin = OriginOf(job, kGemmTile);
  if (job.accumulate) StartFrom(tensor, job, origin, shared->tensor);
  unsigned use = 0;  // counts the uses of stages, which take turns
  for (std::size_t k = 0; k < job.k; k += kGemmTileK, ++use) {
    const unsigned stage = use % kStages;
    if (use >= kStages) WaitFor(&shared->done[stage], (use / kStages - 1) % 2);
    LoadStage<kScaling>(job, origin, k, &shared->stages[stage]);
    FenceStores();
    tensor.FenceBeforeBarrier();
    __syncthreads();
    if (!Tensor::kOneThread || threadIdx.x == 0) {
      tensor.FenceAfterBarrier();
      Issue<kScaling>(tensor, *shared, stage, job.k - k, job.accumulate || k > 0);
      tensor.CommitTo(&shared->done[stage]);
    }
  }
  WaitFor(&shared->done[(use - 1) % kStages], (use - 1) / kStages % 2);
  tensor.FenceAfterBarrier();
  Store(tensor, job, origin, shared->tensor);
  tensor.FenceBeforeBarrier();
  __syncthreads();
  tensor.FenceAfterBarrier();
  tensor.Free(shared->tensor);
}

// On chips without tcgen05 the kernel is compiled empty and takes no shared memory, by which
// HasTensorGemm recognizes it.
template <BlockScaling kScaling>
__global__ void __launch_bounds__(kThreads) TensorGemmKernel(GemmJob job) {
  if constexpr (kHasTcgen05) {
    __shared__ SharedMemory shared;
    Gemm<kScaling>(TensorCoreMemory<kColumns>{}, job, &shared);
  }
}

using SoftwareTensor = SoftwareTensorMemory<ScaleColumn(kStages, 0, 0)>;
constexpr unsigned kSoftwareBytes = sizeof(SharedMemory) + SoftwareTensor::kBytes;

template <BlockScaling kScaling>
__global__ void __launch_bounds__(kThreads) SoftwareTensorGemmKernel(GemmJob job) {
  extern __shared__ __align__(128) std::uint8_t bytes[];
  Gemm<kScaling>(SoftwareTensor(reinterpret_cast<std::uint32_t*>(bytes + sizeof(SharedMemory))),
                 job, reinterpret_cast<SharedMemory*>(bytes));
}

template <BlockScaling kScaling>
void Launch(const BlockScaledProblem& p, MmaForm form, cudaStream_t stream) {
  const std::size_t blocks = DivideUp(p.m, kGemmTile) * DivideUp(p.n, kGemmTile);
  const auto grid = static_cast<unsigned>(blocks);
  if (form == MmaForm::kTcgen05) {
    TensorGemmKernel<kScaling><<<grid, kThreads, 0, stream>>>(JobOf(p));
  } else {
    AllowShared(SoftwareTensorGemmKernel<kScaling>, kSoftwareBytes);
    SoftwareTensorGemmKernel<kScaling><<<grid, kThreads, kSoftwareBytes, stream>>>(JobOf(p));
  }
  CheckLaunch("the kernel of products by tcgen05");
}

}  // namespace

bool HasTensorGemm(MmaForm form) {
  if (form == MmaForm::kTcgen05) {
    cudaFuncAttributes attributes{};
    Check(cudaFuncGetAttributes(&attributes, TensorGemmKernel<BlockScaling::kNvfp4>),
          "asking for a kernel's attributes");
    return attributes.sharedSizeBytes > 0;
  }
  return MostSharedMemory() >= kSoftwareBytes;
}

void LaunchTensorGemm(const BlockScaledProblem& p, MmaForm form, StreamHandle stream) {
  p.scaling == BlockScaling::kNvfp4 ? Launch<BlockScaling::kNvfp4>(p, form, NativeStream(stream))
                                    : Launch<BlockScaling::kMxfp4>(p, form, NativeStream(stream));
}

}  // namespace fp4lab::cuda
