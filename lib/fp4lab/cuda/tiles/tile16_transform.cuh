// The exact transform down the columns of a warp's slice of 16 x 64 elements in shared memory
// (tile16_layout.cuh), for any data.
#pragma once

#include "fp4lab/cuda/tiles/tile.cuh"
#include "fp4lab/cuda/tiles/tile16_layout.cuh"

namespace fp4lab::cuda {

// The way in which the sums of a slice come out exact: as one sum; as two sums, of the upper and of
// the lower four significant bits of the terms; or separately for each 16 columns.
enum class SliceSums : int { kOne, kTwo, kByPiece };

// largest, smallest: of the nonzero magnitudes of the whole slice, so that the answer is the same
// for the warp, as twice their BF16 bits (or that + 1); 0 and 0xFFFF if all are 0.
__device__ inline SliceSums SumsOf(std::uint32_t largest, std::uint32_t smallest) {
  // Sums of 16 terms of four bits, which span 16 binades, have 4 + 4 + 16 bits.
  constexpr int kTwoSpan = 16;
  const int high = static_cast<int>(largest >> 8), low = static_cast<int>(smallest >> 8);
  if (high >= 255 - 6 || low <= 16) return SliceSums::kByPiece;
  return high - low <= ExactSpan(16) ? SliceSums::kOne
         : high - low <= kTwoSpan    ? SliceSums::kTwo
                                     : SliceSums::kByPiece;
}

__device__ inline std::uint32_t HigherHalf(std::uint32_t pair) {
  return max(pair & 0xFFFFu, pair >> 16);
}
__device__ inline std::uint32_t LowerHalf(std::uint32_t pair) {
  return min(pair & 0xFFFFu, pair >> 16);
}

// The largest and the smallest magnitude of the warp. RangeOf returns BF16 bits of the nonzero
// magnitudes, 0 and 0x7FFF if all are 0; Tile16Warp::TakeRows returns u of all magnitudes, 0
// included.
struct Range {
  std::uint32_t largest, smallest;
};
template <int kWords>
__device__ Range RangeOf(const std::uint32_t (&x)[kWords]) {
  std::uint32_t largest = 0, less = 0xFFFFFFFFu;
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const std::uint32_t m = x[k] & 0x7FFF7FFFu;
    largest = __vmaxu2(largest, m);
    less = __viaddmin_u16x2(m, 0xFFFFFFFFu, less);  // minus 1, so that 0 becomes the largest
  }
  const std::uint32_t high = __reduce_max_sync(0xFFFFFFFFu, HigherHalf(largest));
  const std::uint32_t low = __reduce_min_sync(0xFFFFFFFFu, LowerHalf(less));
  return {high, min(low + 1, 0x7FFFu)};
}

// Loads 16 columns whose rows lie at the lanes' addresses: a lane gets rows 4 t to 4 t + 3 of the
// columns g and g + 8 (t = Lane() % 4, g = Lane() / 4).
__device__ inline Columns<16> LoadColumnsAt(std::uint32_t address) {
  Columns<16> out;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.of[0][0]), "=r"(out.of[1][0]), "=r"(out.of[0][1]), "=r"(out.of[1][1])
               : "r"(address)
               : "memory");
  return out;
}
__device__ inline void StoreColumnsAt(std::uint32_t address, const Columns<16>& x) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(x.of[0][0]), "r"(x.of[1][0]), "r"(x.of[0][1]), "r"(x.of[1][1])
      : "memory");
}
// The lane's address for LoadColumnsAt of the first 16 columns of the slice; XOR with 32 * b gives
// that of columns 16 b to 16 b + 15.
__device__ inline std::uint32_t ColumnsAddress(const std::uint16_t* slice) {
  // Row i of an 8 x 8 matrix goes to lanes 4 g + i / 2; matrices 2 and 3 are the second pairs.
  const std::uint32_t matrix = Lane() / 8, i = Lane() % 8;
  const std::uint32_t r = 4 * (i / 2) + 2 * (matrix / 2) + i % 2;
  return SharedAddress(slice + SlicePiece(r, matrix % 2));
}

// The index, in elements, at which StoreColumns stores the lane's part of the first 16 columns in
// the slice; that of the next 16 columns is 256 larger.
__device__ inline std::uint32_t ColumnsPlace() {
  const std::uint32_t t = Lane() % 4, g = Lane() / 4;
  return ColumnPiece(g, t / 2) + 4 * (t % 2);
}
__device__ inline void StoreColumns(std::uint16_t* out, const Columns<16> (&y)[4]) {
#pragma unroll
  for (std::uint32_t b = 0; b < 4; ++b) {
    *reinterpret_cast<uint2*>(out + 256 * b) = {y[b].of[0][0], y[b].of[0][1]};
    *reinterpret_cast<uint2*>(out + 256 * b + 128) = {y[b].of[1][0], y[b].of[1][1]};
  }
}

// Transforms columns whose terms span at most 16 binades: the sums of their upper four significant
// bits and of the lower four are exact.
__device__ inline Columns<16> TransformedInHalves(const Columns<16>& x,
                                                  const HadamardOperand<16>& h) {
  Columns<16> high, low, y;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t all = x.of[i / 2][i % 2], upper = all & 0xFFF0FFF0u;
    high.of[i / 2][i % 2] = upper;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(low.of[i / 2][i % 2]) : "r"(all), "r"(upper));
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    float d[4], rest[4];
    Sums<16>(high, h, n, d);
    Sums<16>(low, h, n, rest);
    y.of[0][n] = Bf16Pair(d[0] + rest[0], d[1] + rest[1]);
    y.of[1][n] = Bf16Pair(d[2] + rest[2], d[3] + rest[3]);
  }
  return y;
}

// Transforms the columns 16 b to 16 b + 15 of a slice by the definition, in the slice itself; a
// lane computes half of a column's outputs.
__device__ __noinline__ inline void TransformSliceExactly(std::uint16_t* slice, std::uint32_t b,
                                                          std::uint32_t sign_mask) {
  const std::uint32_t column = 16 * b + Lane() % 16, first = Lane() / 16 * 8;
  const auto at = [=](std::uint32_t r) { return slice + SlicePiece(r, column / 8) + column % 8; };
  std::uint16_t group[16];
#pragma unroll 1
  for (std::uint32_t r = 0; r < 16; ++r) group[r] = *at(r);
  __syncwarp();
#pragma unroll 1
  for (std::uint32_t r = first; r < first + 8; ++r) {
    *at(r) = Bf16Bits(SlowHadamardOutput(group, 1, 16, sign_mask, static_cast<int>(r)));
  }
  __syncwarp();
}

// Replaces a slice in its place by its transformed columns, with the Exactness of each 16 columns
// found separately.
__device__ __noinline__ inline void ShareByPiece(std::uint16_t* slice, HadamardOperand<16> h,
                                                 std::uint32_t sign_mask) {
  const std::uint32_t address = ColumnsAddress(slice);
#pragma unroll 1
  for (std::uint32_t b = 0; b < 4; ++b) {
    const Columns<16> x = LoadColumnsAt(address ^ (32 * b));
    const Range range = RangeOf<4>({x.of[0][0], x.of[0][1], x.of[1][0], x.of[1][1]});
    const Exactness exactness = ExactnessOf<16>(range.largest, range.smallest);
    __syncwarp();
    if (exactness == Exactness::kNeither) {
      TransformSliceExactly(slice, b, sign_mask);
    } else {
      const bool two = exactness == Exactness::kTwoParts;
      StoreColumnsAt(address ^ (32 * b), TransformedInParts<16>(x, h, two, range.largest));
    }
  }
  __syncwarp();
  Columns<16> y[4];
#pragma unroll
  for (std::uint32_t b = 0; b < 4; ++b) y[b] = LoadColumnsAt(address ^ (32 * b));
  __syncwarp();
  StoreColumns(slice + ColumnsPlace(), y);
  __syncwarp();
}

// SumsOf the slice x if it has zeros, or numbers that may have underflowed when they were shrunken.
// largest: u of the slice's largest magnitude, 0 if that is below 2^-126 after shrinking.
__device__ inline SliceSums SumsOfSlice(const Columns<16> (&x)[4], std::uint32_t largest) {
  std::uint32_t smallest = 0xFFFFFFFFu;
#pragma unroll
  for (int k = 0; k < 16; ++k) {  // minus 2, so that zeros become the largest
    smallest = __viaddmin_u16x2(2 * x[k / 4].of[k / 2 % 2][k % 2], 0xFFFEFFFEu, smallest);
  }
  const std::uint32_t low = __reduce_min_sync(0xFFFFFFFFu, LowerHalf(smallest));
  if (low >= 0xFFFEu) return SliceSums::kOne;  // all are 0
  return largest == 0 ? SliceSums::kByPiece : SumsOf(largest, low + 2);
}

}  // namespace fp4lab::cuda
