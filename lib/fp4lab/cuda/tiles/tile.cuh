// A tile of kRows x 64 BF16 elements that a warp holds in shared memory and reads by columns, pairs
// of rows in a register. Matrix instructions transform the columns if all sums are exact.
//
// Lane l = 4 g + t holds rows kRows / 4 * t and following of columns g and g + 8 of 16 columns:
// Columns::of[0][q] (column g) and of[1][q] (column g + 8) are the pairs of rows kRows / 4 * t + 2
// q and the next one.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/device/hadamard.cuh"
#include "fp4lab/cuda/device/shared_memory.cuh"
#include "fp4lab/cuda/device/side.cuh"
#include "fp4lab/cuda/tiles/tile_launch.cuh"

namespace fp4lab::cuda {

inline constexpr int kTileStride = kTileCols + 8;  // BF16 elements: no bank conflicts by columns

template <int kRows>
struct Columns {
  std::uint32_t of[2][kRows / 8];
};

// The address of the lane's part of the first 16 columns, for LoadColumns; to be computed once.
template <int kRows>
__device__ std::uint32_t ColumnAddress(const std::uint16_t* tile) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int matrix = lane / 8, i = lane % 8;
  // Row i of an 8x8 matrix lands in lanes 4 g + i / 2; matrices 2 and 3 are the second pairs.
  const int row = kRows / 4 * (i / 2) + 2 * (matrix / 2) + i % 2;
  return Kept(SharedAddress(tile + row * kTileStride + 8 * (matrix % 2)));
}

// Loads the 16 columns from 16 * b on.
template <int kRows>
__device__ Columns<kRows> LoadColumns(std::uint32_t column_address, int b) {
  Columns<kRows> out;
#pragma unroll
  for (int half = 0; half < kRows / 16; ++half) {
    const std::uint32_t address =
        column_address + static_cast<std::uint32_t>(2 * (16 * b + 4 * half * kTileStride));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.of[0][2 * half]), "=r"(out.of[1][2 * half]),
                   "=r"(out.of[0][2 * half + 1]), "=r"(out.of[1][2 * half + 1])
                 : "r"(address)
                 : "memory");
  }
  return out;
}

// Stores the 16 columns from `col` on into the tile.
template <int kRows>
__device__ void StoreColumns(const Columns<kRows>& columns, std::uint16_t* tile, int col) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    std::uint16_t* const out =
        tile + kRows / 4 * (lane % 4) * kTileStride + col + lane / 4 + 8 * side;
#pragma unroll
    for (int q = 0; q < kRows / 8; ++q) {
      out[2 * q * kTileStride] = static_cast<std::uint16_t>(columns.of[side][q]);
      out[(2 * q + 1) * kTileStride] = static_cast<std::uint16_t>(columns.of[side][q] >> 16);
    }
  }
}

// ---- The Hadamard transform down the columns ----

// The matrix S H (signs times Hadamard) as the second operand of m16n8k16: the two registers of
// n-tile j, k-step k in b[j][k].
template <int kRows>
struct HadamardOperand {
  std::uint32_t b[kRows / 8][kRows / 16][2];
};

// Entries are +-1/4 for kRows = 16, which includes the whole scale of the transform, and +-1 for
// 32.
template <int kRows>
__device__ HadamardOperand<kRows> HadamardOperandOf(std::uint32_t sign_mask) {
  constexpr std::uint32_t kOne = kRows == 16 ? 0x3E80u : 0x3F80u;
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  HadamardOperand<kRows> out;
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    const int j = kRows / 4 * (g / 2) + 2 * n + g % 2;
#pragma unroll
    for (int q = 0; q < kRows / 8; ++q) {
      std::uint32_t word = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int k = kRows / 4 * t + 2 * q + i;
        const std::uint32_t odd = static_cast<std::uint32_t>(__popc(static_cast<unsigned>(j & k)));
        word |= (kOne | ((sign_mask >> k ^ odd) & 1u) << 15) << (16 * i);
      }
      out.b[n][q / 2][q % 2] = word;
    }
  }
  return out;
}

__device__ inline void MultiplyAdd(float (&d)[4], const std::uint32_t (&a)[4],
                                   const std::uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d = the sums of n-tile n: rows j and j + 1 of column g, then of column g + 8.
template <int kRows>
__device__ void Sums(const Columns<kRows>& x, const HadamardOperand<kRows>& h, int n,
                     float (&d)[4]) {
  d[0] = d[1] = d[2] = d[3] = 0.0f;
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    const std::uint32_t a[4] = {x.of[0][2 * k], x.of[1][2 * k], x.of[0][2 * k + 1],
                                x.of[1][2 * k + 1]};
    MultiplyAdd(d, a, h.b[n][k]);
  }
}

// Rounds a and b to BF16, RNE, a in the low half; NaN gives 0x7FFF.
__device__ inline std::uint32_t Bf16Pair(float a, float b) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
  return pair;
}

// Finds the smallest nonzero magnitude of BF16 values.
struct Smallest {
  std::uint32_t pair = 0x7FFF7FFFu;
  __device__ void Add(std::uint32_t words) {
    // In each half, 0 becomes 0x7FFF and v becomes 0x8000 + v - 1, ordered as signed numbers.
    pair = __vmins2(pair, (words | 0x80008000u) - 0x00010001u);
  }
  // The BF16 bits of the smallest; 0x7FFF if all values are 0.
  __device__ std::uint32_t Bits() const {
    const std::uint32_t least = __vmins2(pair, pair >> 16) & 0xFFFFu;
    return (least & 0x8000u) != 0 ? (least & 0x7FFFu) + 1u : 0x7FFFu;
  }
};

// The way in which binary32 sums over a range come out exact: as one sum; as two sums, one of the
// large terms and one of the small terms; or not at all.
enum class Exactness : std::uint8_t { kOnePart, kTwoParts, kNeither };

// largest, smallest: BF16 bits of the largest and the smallest nonzero magnitude; smallest = 0x7FFF
// if all values are 0.
template <int kRows>
__device__ Exactness ExactnessOf(std::uint32_t largest, std::uint32_t smallest) {
  const int high = static_cast<int>(largest >> 7), low = static_cast<int>(smallest >> 7);
  if (high >= 255 - 6 || low <= 16) return Exactness::kNeither;
  const int span = high - low;
  if (span <= ExactSpan(kRows)) return Exactness::kOnePart;
  return span <= 2 * ExactSpan(kRows) + 1 ? Exactness::kTwoParts : Exactness::kNeither;
}

// Keeps the halves of a pair whose magnitudes are at least `least` (in both halves of its word);
// the other halves become 0.
__device__ inline std::uint32_t HighTerms(std::uint32_t pair, std::uint32_t least) {
  return pair & __vcmpgeu2(pair & 0x7FFF7FFFu, least);
}

template <int kRows>
__device__ Columns<kRows> TransformedInParts(const Columns<kRows>& x,
                                             const HadamardOperand<kRows>& h, bool two_parts,
                                             std::uint32_t largest) {
  Columns<kRows> high = x, low;
  if (two_parts) {
    const std::uint32_t exponent = (largest & 0x7F80u) - (ExactSpan(kRows) << 7);
    const std::uint32_t least = exponent | exponent << 16;
#pragma unroll
    for (int q = 0; q < kRows / 8; ++q) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        high.of[side][q] = HighTerms(x.of[side][q], least);
        low.of[side][q] = x.of[side][q] ^ high.of[side][q];
      }
    }
  }
  Columns<kRows> y;
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    float d[4];
    Sums<kRows>(high, h, n, d);
    if (two_parts) {  // the sum of two exact sums is rounded once
      float rest[4];
      Sums<kRows>(low, h, n, rest);
#pragma unroll
      for (int i = 0; i < 4; ++i) d[i] += rest[i];
    }
    if constexpr (kRows == 32) {
#pragma unroll
      for (float& sum : d) sum *= kInverseSqrt32;
    }
    y.of[0][n] = Bf16Pair(d[0], d[1]);
    y.of[1][n] = Bf16Pair(d[2], d[3]);
  }
  return y;
}

// Transforms 16 columns of the tile in place by the definition, one lane for each column.
template <int kRows>
__device__ __noinline__ void TransformExactly(std::uint16_t* tile, int col,
                                              std::uint32_t sign_mask) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (lane < 16) {
    std::uint16_t* const column = tile + col + lane;
    std::uint16_t group[kRows];
#pragma unroll 1
    for (int k = 0; k < kRows; ++k) group[k] = column[k * kTileStride];
#pragma unroll 1
    for (int j = 0; j < kRows; ++j) {
      column[j * kTileStride] = Bf16Bits(SlowHadamardOutput(group, 1, kRows, sign_mask, j));
    }
  }
  __syncwarp();
}

}  // namespace fp4lab::cuda
