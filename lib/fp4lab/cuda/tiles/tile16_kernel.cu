// NVFP4 codes and scales of BF16 elements in one pass, down columns and, if asked for, along rows.
// tile16_layout.cuh describes how a matrix is cut. A lane takes whole blocks of 16: two of a
// slice's rows, then two of its columns. Output that would leave in pieces shorter than 32 bytes of
// a row or a column is collected in shared memory first. Warps wait for each other only at
// mbarriers of earlier groups of columns.
#include <algorithm>

#include "fp4lab/cuda/tiles/tile16.cuh"

namespace fp4lab::cuda {
namespace {

template <bool kHadamard, bool kRows, RandomBits kBits, class Memory>
__global__ void __launch_bounds__(Memory::kThreads, 1) Tile16Kernel(TileJob job, Tile16Cut cut) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<Memory*>(memory);
  if (threadIdx.x == 0) {  // not a loop over lanes: racecheck does not see its predicate
    for (std::uint32_t i = 0; i < kRing; ++i) {
      InitBarrier(&shared.written[i], Memory::kThreads);
      InitBarrier(&shared.stored[i], Memory::kThreads);
    }
  }
  Tile16Warp<kHadamard, kRows, kBits, Memory> warp(job, cut, &shared);
  __syncthreads();  // the tables and the mbarriers are ready
  warp.Run();
}

template <bool kHadamard, bool kRows, RandomBits kBits, class Memory>
void Launch(const TileJob& job, cudaStream_t stream) {
  const auto kernel = Tile16Kernel<kHadamard, kRows, kBits, Memory>;
  AllowShared(kernel, sizeof(Memory));
  const auto most = static_cast<std::uint32_t>(Multiprocessors());
  const Tile16Cut cut = CutOf<Memory::kBandRows>(job.rows, job.cols, most);
  kernel<<<std::min(cut.parts, most), Memory::kThreads, sizeof(Memory), stream>>>(job, cut);
  CheckLaunch("the kernel of tiles of blocks of 16");
}

template <RandomBits kBits, class Memory>
void Launch(const TileJob& job, TileMode mode, cudaStream_t stream) {
  const bool hadamard = mode == TileMode::kHadamard;
  if (job.quantizes_rows) {
    hadamard ? Launch<true, true, kBits, Memory>(job, stream)
             : Launch<false, true, kBits, Memory>(job, stream);
  } else {
    hadamard ? Launch<true, false, kBits, Memory>(job, stream)
             : Launch<false, false, kBits, Memory>(job, stream);
  }
}

template <class Memory>
void Launch(const TileJob& job, TileMode mode, RandomBits bits, cudaStream_t stream) {
  if (bits == RandomBits::kNone) return Launch<RandomBits::kNone, Memory>(job, mode, stream);
  bits == RandomBits::kCounter ? Launch<RandomBits::kCounter, Memory>(job, mode, stream)
                               : Launch<RandomBits::kInstruction, Memory>(job, mode, stream);
}

}  // namespace

void LaunchNvfp4Codes(const TileJob& job, TileMode mode, RandomBits bits, cudaStream_t stream) {
  using Large = Tile16Memory<16>;
  using Small = Tile16Memory<8>;  // sm_120: 99 KiB for a thread block
  static_assert(sizeof(Large) <= 227 * 1024 && sizeof(Small) <= 99 * 1024);
  const bool large = sizeof(Large) <= MostSharedMemory();
  large ? Launch<Large>(job, mode, bits, stream) : Launch<Small>(job, mode, bits, stream);
}

}  // namespace fp4lab::cuda
