// How the kernel of tiles of blocks of 16 (tile16_kernel.cu) cuts a matrix, and its shared memory.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/block16.cuh"
#include "fp4lab/cuda/shared_memory.cuh"

namespace fp4lab::cuda {

// A thread block takes bands of rows, a warp 32 of them, in groups of 64 columns; a warp's slice is
// 16 rows of a group. The groups of a run are one thread block's, so that a row's scales leave in
// pieces of 16 bytes.
inline constexpr std::uint32_t kWarpRows = 32, kSlices = kWarpRows / 16;
inline constexpr std::uint32_t kGroupCols = 64, kRunGroups = 4;
inline constexpr std::uint32_t kSliceSize = 16 * kGroupCols;  // elements

// Groups whose columns wait in shared memory: kLag groups later all warps should have written them,
// and they are stored.
inline constexpr std::uint32_t kRing = 4, kLag = 2;

template <std::uint32_t kNumWarps>
struct Tile16Memory {
  static constexpr std::uint32_t kWarps = kNumWarps, kThreads = 32 * kWarps;
  static constexpr std::uint32_t kBandRows = kWarps * kWarpRows;
  // Strides in bytes, of a group's columns of codes and of scales.
  static constexpr std::uint32_t kCodeStride = kBandRows / 2 + 16;
  static constexpr std::uint32_t kScaleStride = kBandRows / 16 + 4;

  // The slices of a group for each warp, worked on or on their way. Then, in a slice's place, its
  // columns: 16 x 64 elements in pieces of eight, in an order that spares the banks (SlicePiece,
  // ColumnPiece).
  alignas(128) std::uint16_t slices[kWarps][kSlices][kSliceSize];
  struct Group {
    alignas(16) std::uint8_t codes[kGroupCols * kCodeStride];
    alignas(16) std::uint8_t scales[kGroupCols * kScaleStride];
  } groups[kRing];
  alignas(16) std::uint8_t row_scales[kWarps][kWarpRows * kRunGroups * 4];
  BlockTables rows, columns;
  alignas(8) std::uint64_t written[kRing], stored[kRing];  // barriers of the groups
};

// The parts of a matrix, thread block i's are i, i + blocks and so on: neighbours read and write
// beside each other. The first `whole` parts are runs of groups along a band; so that all end at
// the same time, the groups of the other runs are parts of their own.
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
  cut.runs = (cut.across + kRunGroups - 1) / kRunGroups;
  const std::uint32_t all = (cut.rows + kBandRows - 1) / kBandRows * cut.runs;
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

// Where columns 8 c to 8 c + 7 of row r of a slice lie, in elements: 8 x 8 matrices are read by the
// rows 0 1 4 5 8 9 12 13 or the others, which lie in different banks.
__device__ inline std::uint32_t SlicePiece(std::uint32_t r, std::uint32_t c) {
  return 64 * r + 8 * (c ^ (r % 2 + r / 4 * 2));
}
// Where half h of column c lies.
__device__ inline std::uint32_t ColumnPiece(std::uint32_t c, std::uint32_t h) {
  return 16 * c + 8 * (h ^ (c / 4 % 2));
}

// ---- Barriers in shared memory

__device__ inline void InitBarrier(std::uint64_t* barrier, std::uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(count)
               : "memory");
}
__device__ inline void Arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
// For the end of the phase of this parity.
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
