// The cut of a matrix in tile16_kernel.cu, the kernel of tiles of blocks of 16, and its shared
// memory.
#pragma once

#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/cuda/device/shared_memory.cuh"
#include "fp4lab/cuda/quantize/block16.cuh"

namespace fp4lab::cuda {

// A thread block takes bands of rows, a warp 32 rows of a band, in groups of 64 columns. A slice is
// 16 rows of a warp's group. One thread block takes all groups of a run, so that a row's scales are
// stored in pieces of 16 bytes.
inline constexpr std::uint32_t kWarpRows = 32, kSlices = kWarpRows / 16;
inline constexpr std::uint32_t kGroupCols = 64, kRunGroups = 4;
inline constexpr std::uint32_t kSliceSize = 16 * kGroupCols;  // elements

// kRing groups of quantized columns wait in shared memory. A group is stored kLag groups later,
// when all warps should have written it.
inline constexpr std::uint32_t kRing = 4, kLag = 2;

template <std::uint32_t kNumWarps>
struct Tile16Memory {
  static constexpr std::uint32_t kWarps = kNumWarps, kThreads = 32 * kWarps;
  static constexpr std::uint32_t kBandRows = kWarps * kWarpRows;
  // Strides in bytes between the columns of a group, of codes and of scales.
  static constexpr std::uint32_t kCodeStride = kBandRows / 2 + 16;
  static constexpr std::uint32_t kScaleStride = kBandRows / 16 + 4;

  // Each warp's slices of a group, in use or on their way. Later a slice is replaced by its
  // columns. Either form is 16 x 64 elements in pieces of eight, in an order without bank conflicts
  // (SlicePiece, ColumnPiece).
  alignas(128) std::uint16_t slices[kWarps][kSlices][kSliceSize];
  struct Group {
    alignas(16) std::uint8_t codes[kGroupCols * kCodeStride];
    alignas(16) std::uint8_t scales[kGroupCols * kScaleStride];
  } groups[kRing];
  alignas(16) std::uint8_t row_scales[kWarps][kWarpRows * kRunGroups * 4];
  BlockTables rows, columns;
  alignas(8) std::uint64_t written[kRing], stored[kRing];  // mbarriers of the groups
};

// The parts into which a matrix is cut. Thread block i takes the parts i, i + blocks and so on, so
// that neighbours read and write adjacent memory. The first `whole` parts are runs of groups along
// a band; each group of the other runs is a part of its own, so that all thread blocks end at about
// the same time.
struct Tile16Cut {
  std::uint32_t rows, cols;
  std::uint32_t across, runs;  // groups and runs in a band
  std::uint32_t whole, parts;
};
struct Tile16Part {
  std::uint32_t row, col, groups;
};

template <std::uint32_t kBandRows>
Tile16Cut CutOf(std::size_t rows, std::size_t cols, std::uint32_t blocks) {
  Tile16Cut cut{static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(cols)};
  cut.across = cut.cols / kGroupCols;
  cut.runs = DivideUp(cut.across, kRunGroups);
  const std::uint32_t all = DivideUp(cut.rows, kBandRows) * cut.runs;
  cut.whole = all / blocks * blocks;
  cut.parts = cut.whole + (all - cut.whole) * kRunGroups;
  return cut;
}
template <std::uint32_t kBandRows>
__device__ Tile16Part PartOf(const Tile16Cut& cut, std::uint32_t part) {
  const bool whole = part < cut.whole;
  const std::uint32_t rest = whole ? 0 : part - cut.whole;
  const std::uint32_t run = whole ? part : cut.whole + rest / kRunGroups;
  const std::uint32_t band = run / cut.runs;
  const std::uint32_t group = (run - band * cut.runs) * kRunGroups + rest % kRunGroups;
  const std::uint32_t left = max(cut.across, group) - group;
  return {band * kBandRows, group * kGroupCols, min(left, whole ? kRunGroups : 1u)};
}

__device__ inline std::uint32_t Lane() { return threadIdx.x % 32; }

// The index, in elements, of columns 8 c to 8 c + 7 of row r in a slice. The 8 x 8 matrices of
// ldmatrix take rows 0 1 4 5 8 9 12 13 or the other eight; this order puts them in different banks.
__device__ inline std::uint32_t SlicePiece(std::uint32_t r, std::uint32_t c) {
  return 64 * r + 8 * (c ^ (r % 2 + r / 4 * 2));
}
// The index, in elements, of half h of column c.
__device__ inline std::uint32_t ColumnPiece(std::uint32_t c, std::uint32_t h) {
  return 16 * c + 8 * (h ^ (c / 4 % 2));
}

// ---- Barriers in shared memory ----

__device__ inline void InitBarrier(std::uint64_t* barrier, std::uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(count)
               : "memory");
}
__device__ inline void Arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
// Waits for the end of the phase of this parity.
__device__ inline void Await(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
}

}  // namespace fp4lab::cuda
