// NVFP4 codes of BF16 elements in one pass, down columns and, if wanted, along rows, rounded to
// nearest. A thread block takes 512 x 64 elements at a time and goes along a row of such parts; its
// warps take 64 x 64 of them in slices of 16 rows, a lane whole blocks of 16: two of a slice's
// rows, then two of its columns. What leaves in pieces shorter than 32 bytes a row or a column is
// collected in shared memory first.
#include <algorithm>

#include "fp4lab/cuda/tile16.cuh"

namespace fp4lab::cuda {
namespace {

template <bool kHadamard, bool kRows>
__global__ void __launch_bounds__(kTile16Threads, kTile16Blocks) Tile16Kernel(TileJob job) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<Tile16Memory*>(memory);
  const Block16Scaler rows(kRows ? job.row.amax : job.column.amax, &shared.rows);
  const Block16Scaler columns(job.column.amax, &shared.columns);
  __syncthreads();  // the tables
  const std::uint32_t across = static_cast<std::uint32_t>(job.cols / kPartCols);
  // A thread block's parts follow each other.
  const auto first = static_cast<std::uint32_t>(std::uint64_t{job.tiles} * blockIdx.x / gridDim.x);
  const auto end =
      static_cast<std::uint32_t>(std::uint64_t{job.tiles} * (blockIdx.x + 1) / gridDim.x);
  std::uint32_t row = first / across, col = first % across;
  Tile16Warp<kHadamard, kRows> warp(job, &shared, rows, columns, row, col);
  for (std::uint32_t part = first; part < end; ++part) {
    const std::uint32_t row0 = row * kPartRows, col0 = col * kPartCols;
    if (++col == across) {
      col = 0;
      ++row;
    }
    warp.Take(row0, col0, part + 1 < end, row * kPartRows, col * kPartCols);
    __syncthreads();
    StoreColumnSide(job, shared, row0, col0);
    __syncthreads();  // the staged columns may be written again
  }
}

template <bool kHadamard, bool kRows>
void Launch(TileJob job, cudaStream_t stream) {
  const auto kernel = Tile16Kernel<kHadamard, kRows>;
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             sizeof(Tile16Memory)),
        "shared memory of the kernel of tiles");
  job.tiles =
      static_cast<std::uint32_t>((job.rows + kPartRows - 1) / kPartRows * (job.cols / kPartCols));
  const std::uint32_t blocks =
      std::min(job.tiles, static_cast<std::uint32_t>(Multiprocessors() * kTile16Blocks));
  kernel<<<blocks, kTile16Threads, sizeof(Tile16Memory), stream>>>(job);
  CheckLaunch("the kernel of tiles of blocks of 16");
}

}  // namespace

void LaunchNvfp4Codes(const TileJob& job, TileMode mode, cudaStream_t stream) {
  const bool hadamard = mode == TileMode::kHadamard;
  if (job.quantizes_rows) {
    hadamard ? Launch<true, true>(job, stream) : Launch<false, true>(job, stream);
  } else {
    hadamard ? Launch<true, false>(job, stream) : Launch<false, false>(job, stream);
  }
}

}  // namespace fp4lab::cuda
