// A warp's part of the kernel of tiles of blocks of 16 (tile16_kernel.cu).
#pragma once

#include "fp4lab/cuda/block16.cuh"
#include "fp4lab/cuda/tile.cuh"
#include "fp4lab/cuda/tile_launch.cuh"

namespace fp4lab::cuda {

inline constexpr std::uint32_t kTile16Threads = 256;
inline constexpr int kTile16Blocks = 3;                          // of a multiprocessor
inline constexpr std::uint32_t kPartRows = 512, kPartCols = 64;  // of a thread block
inline constexpr std::uint32_t kWarpRows = 64, kSlices = kWarpRows / 16;
inline constexpr std::uint32_t kRunParts = 8;  // whose scales of a row are stored together

// Strides in bytes, of columns of codes and of scales, and of a run's scales of a row.
inline constexpr std::uint32_t kCodeStride = kPartRows / 2 + 16;
inline constexpr std::uint32_t kScaleStride = kPartRows / 16 + 4;
inline constexpr std::uint32_t kRunStride = kRunParts * 4 + 4;

struct Tile16Memory {
  struct Warp {
    // A slice of x, then its columns: 16 x 64 elements in pieces of eight, in an order that spares
    // the banks (SlicePiece, ColumnPiece).
    alignas(128) std::uint16_t slice[16 * kPartCols];
    std::uint8_t row_scales[kWarpRows * kRunStride];
  } warps[kTile16Threads / 32];
  alignas(16) std::uint8_t codes[kPartCols * kCodeStride];
  std::uint8_t scales[kPartCols * kScaleStride];
  BlockTables rows, columns;
};

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

// How the sums of a slice's 16 x 16 parts come out exact: bit b of each word is for the columns
// 16 b to 16 b + 15.
struct Exact {
  std::uint32_t one_part = 15, two_parts = 0;
  std::uint32_t largest = 0;  // of the part Lane() % 4
};

// x: the lane's elements; largest, smallest: 2 |x| of all of them in the halves of a word, where
// the lowest bits count for nothing.
__device__ inline Exact ExactOf(const std::uint32_t (&x)[2][8], std::uint32_t largest,
                                std::uint32_t smallest) {
  largest = max(largest & 0xFFFFu, largest >> 16);
  smallest = min(smallest & 0xFFFFu, smallest >> 16);
  if (__any_sync(0xFFFFFFFFu, smallest < 2)) {  // the smallest that is not 0: less 1, 0 is largest
    smallest = 0xFFFFFFFFu;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      smallest = __viaddmin_u16x2(x[k / 8][k % 8] & 0x7FFF7FFFu, 0xFFFFFFFFu, smallest);
    }
    smallest = min(2 * min(smallest & 0xFFFFu, smallest >> 16) + 2, 0xFFFFu);
  }
  std::uint32_t both = largest << 16 | (0xFFFFu - smallest);
#pragma unroll
  for (const int step : {4, 8, 16}) {
    both = __vmaxu2(both, __shfl_xor_sync(0xFFFFFFFFu, both, step));
  }
  const std::uint32_t least = 0xFFFFu - (both & 0xFFFFu);
  const Exactness exactness = ExactnessOf<16>(both >> 17, least == 0xFFFFu ? 0x7FFFu : least >> 1);
  return {__ballot_sync(0xFFFFFFFFu, exactness == Exactness::kOnePart) & 15u,
          __ballot_sync(0xFFFFFFFFu, exactness == Exactness::kTwoParts) & 15u, both >> 17};
}

// The 16 columns b of a slice transformed by the definition, in the slice itself.
__device__ __noinline__ inline void TransformSliceExactly(std::uint16_t* slice, std::uint32_t b,
                                                          std::uint32_t sign_mask) {
  if (Lane() < 16) {
    const std::uint32_t piece = 2 * b + Lane() / 8, place = Lane() % 8;
    std::uint16_t group[16];
#pragma unroll 1
    for (std::uint32_t r = 0; r < 16; ++r) group[r] = slice[SlicePiece(r, piece) + place];
#pragma unroll 1
    for (std::uint32_t r = 0; r < 16; ++r) {
      slice[SlicePiece(r, piece) + place] =
          Bf16Bits(SlowHadamardOutput(group, 1, 16, sign_mask, static_cast<int>(r)));
    }
  }
  __syncwarp();
}

template <bool kHadamard, bool kRows>
class Tile16Warp {
 public:
  // row, col: of the first part of the thread block, in parts.
  __device__ Tile16Warp(const TileJob& job, Tile16Memory* shared, const Block16Scaler& rows,
                        const Block16Scaler& columns, std::uint32_t row, std::uint32_t col)
      : job_(job),
        shared_(*shared),
        own_(shared->warps[threadIdx.x / 32]),
        rows_(rows),
        columns_(columns),
        start_(col) {
    // Row i of an 8 x 8 matrix goes to lanes 4 g + i / 2: rows 4 t to 4 t + 3 of a column.
    const std::uint32_t matrix = Lane() / 8, i = Lane() % 8;
    const std::uint32_t r = 4 * (i / 2) + 2 * (matrix / 2) + i % 2;
    address_ = static_cast<std::uint32_t>(
        __cvta_generic_to_shared(own_.slice + SlicePiece(r, matrix % 2)));
    if constexpr (kHadamard) h_ = HadamardOperandOf<16>(job.column.sign_mask);
    Load(row * kPartRows + FirstRow(), col * kPartCols);
  }

  // The part at row0, col0; the one after it, if there is one, lies at next_row and next_col.
  __device__ void Take(std::uint32_t row0, std::uint32_t col0, bool more, std::uint32_t next_row,
                       std::uint32_t next_col) {
    const std::uint32_t first = row0 + FirstRow();
    std::uint32_t scales[2] = {0, 0};  // of the lane's columns
    if (first < job_.rows) {
#pragma unroll 1
      for (std::uint32_t s = 0; s < kSlices; ++s) {
        const Exact exact = TakeRows(first + 16 * s, col0, s);
        if (s + 1 < kSlices) {
          Load(first + 16 * (s + 1), col0);
        } else if (more) {
          Load(next_row + FirstRow(), next_col);
        }
        ShareColumns(exact);
        QuantizeColumns(s, &scales);
      }
      if (kRows && (col0 / kPartCols % kRunParts == kRunParts - 1 || !more || next_col == 0)) {
        StoreRowScales(first, col0);
        start_ = next_col / kPartCols;
      }
    } else if (more) {
      Load(next_row + FirstRow(), next_col);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      *reinterpret_cast<std::uint32_t*>(shared_.scales + (Lane() + 32 * i) * kScaleStride +
                                        threadIdx.x / 32 * 4) = scales[i];
    }
  }

 private:
  __device__ static std::uint32_t FirstRow() { return threadIdx.x / 32 * kWarpRows; }

  // A lane's elements of the slice at (row, col): the blocks Lane() % 4 of the rows Lane() / 4 and
  // that + 8.
  __device__ void Load(std::uint32_t row, std::uint32_t col) {
    if (row >= job_.rows) return;
    const auto* from = reinterpret_cast<const uint4*>(job_.x + (row + Lane() / 4) * job_.cols +
                                                      col + 16 * (Lane() % 4));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint4 v = __ldg(from + k);
        x_[i][4 * k] = v.x;
        x_[i][4 * k + 1] = v.y;
        x_[i][4 * k + 2] = v.z;
        x_[i][4 * k + 3] = v.w;
      }
      from += job_.cols;  // eight rows
    }
  }

  // The slice's rows into shared memory, and quantized.
  __device__ Exact TakeRows(std::uint32_t row, std::uint32_t col, std::uint32_t s) {
    const std::uint32_t r = Lane() / 4, b = Lane() % 4;
    std::uint32_t largest = 0, smallest = 0xFFFFFFFFu;
    Quantized16 q[2];
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
#pragma unroll
      for (std::uint32_t k = 0; k < 2; ++k) {
        *reinterpret_cast<uint4*>(own_.slice + SlicePiece(r + 8 * i, 2 * b + k)) = {
            x_[i][4 * k], x_[i][4 * k + 1], x_[i][4 * k + 2], x_[i][4 * k + 3]};
      }
      std::uint32_t u[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) u[k] = 2 * x_[i][k];
      if constexpr (kHadamard) {
#pragma unroll
        for (int k = 0; k < 8; k += 2) {
          smallest = __vimin3_u16x2(smallest, u[k], u[k + 1]);
        }
      }
      const std::uint32_t both = LargestOf(u);
      largest = __vmaxu2(largest, both);
      if constexpr (kRows) q[i] = Quantize16(x_[i], u, both, rows_);
    }
    if constexpr (kRows) {
      Finish(x_, rows_, &q);
      const auto blocks = static_cast<std::uint32_t>(job_.cols / 16);
      const std::uint32_t block = (row + r) * blocks + col / 16 + b;
      std::uint8_t* const scale =
          own_.row_scales + (16 * s + r) * kRunStride + col / 16 % (4 * kRunParts) + b;
#pragma unroll
      for (std::uint32_t i = 0; i < 2; ++i) {
        reinterpret_cast<uint2*>(job_.row.codes)[block + 8 * i * blocks] = q[i].codes;
        scale[8 * i * kRunStride] = static_cast<std::uint8_t>(q[i].byte);
      }
    }
    Exact exact;
    if constexpr (kHadamard) exact = ExactOf(x_, largest, smallest);
    __syncwarp();
    return exact;
  }

  // The 16 columns b.
  __device__ Columns<16> LoadSliceColumns(std::uint32_t b) const {
    Columns<16> out;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.of[0][0]), "=r"(out.of[1][0]), "=r"(out.of[0][1]), "=r"(out.of[1][1])
                 : "r"(address_ ^ (32 * b))
                 : "memory");
    return out;
  }
  __device__ Columns<16> Transformed(const Exact& exact, std::uint32_t b) const {
    if ((exact.one_part >> b & 1u) != 0) {
      return TransformedInParts<16>(LoadSliceColumns(b), h_, false, 0);
    }
    if ((exact.two_parts >> b & 1u) != 0) {
      const std::uint32_t largest = __shfl_sync(0xFFFFFFFFu, exact.largest, static_cast<int>(b));
      return TransformedInParts<16>(LoadSliceColumns(b), h_, true, largest);
    }
    TransformSliceExactly(own_.slice, b, job_.column.sign_mask);
    return LoadSliceColumns(b);
  }

  // The slice's columns in its place. Of 16 columns a lane holds rows 4 t to 4 t + 3 of the columns
  // g and g + 8 (t = Lane() % 4, g = Lane() / 4).
  __device__ void ShareColumns(const Exact& exact) {
    Columns<16> y[4];
    if (exact.one_part == 15) {
#pragma unroll
      for (std::uint32_t b = 0; b < 4; ++b) y[b] = LoadSliceColumns(b);
      if constexpr (kHadamard) {
#pragma unroll
        for (std::uint32_t b = 0; b < 4; ++b) y[b] = TransformedInParts<16>(y[b], h_, false, 0);
      }
    } else {
#pragma unroll
      for (std::uint32_t b = 0; b < 4; ++b) y[b] = Transformed(exact, b);
    }
    __syncwarp();
    const std::uint32_t t = Lane() % 4, g = Lane() / 4;
    std::uint16_t* const out = own_.slice + ColumnPiece(g, t / 2) + 4 * (t % 2);
#pragma unroll
    for (std::uint32_t b = 0; b < 4; ++b) {
      *reinterpret_cast<uint2*>(out + 256 * b) = {y[b].of[0][0], y[b].of[0][1]};
      *reinterpret_cast<uint2*>(out + 256 * b + 128) = {y[b].of[1][0], y[b].of[1][1]};
    }
    __syncwarp();
  }

  // Columns Lane() and Lane() + 32 of slice s.
  __device__ void QuantizeColumns(std::uint32_t s, std::uint32_t (*scales)[2]) {
    std::uint32_t w[2][8];
    Quantized16 q[2];
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
#pragma unroll
      for (std::uint32_t k = 0; k < 2; ++k) {
        const uint4 v =
            *reinterpret_cast<const uint4*>(own_.slice + ColumnPiece(Lane(), k) + 512 * i);
        w[i][4 * k] = v.x;
        w[i][4 * k + 1] = v.y;
        w[i][4 * k + 2] = v.z;
        w[i][4 * k + 3] = v.w;
      }
    }
    QuantizePair(w, columns_, &q);
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      *reinterpret_cast<uint2*>(shared_.codes + (Lane() + 32 * i) * kCodeStride +
                                threadIdx.x / 32 * (kWarpRows / 2) + 8 * s) = q[i].codes;
      (*scales)[i] |= q[i].byte << (8 * s);
    }
    __syncwarp();
  }

  // The scales of the warp's rows from start_ to the part at col0, all of one run.
  __device__ void StoreRowScales(std::uint32_t row, std::uint32_t col0) {
    __syncwarp();
    const std::uint32_t word = Lane() % kRunParts, last = col0 / kPartCols;
    const std::uint32_t part = last / kRunParts * kRunParts + word;
    const auto blocks = static_cast<std::uint32_t>(job_.cols / 16);
    if (part >= start_ && part <= last) {
#pragma unroll 1
      for (std::uint32_t r = Lane() / kRunParts; r < kWarpRows; r += 32 / kRunParts) {
        const std::size_t place = job_.row.scale_order == ScaleOrder::k128x4
                                      ? Offset128x4(row + r, 4 * part, blocks)
                                      : std::size_t{row + r} * blocks + 4 * part;
        *reinterpret_cast<std::uint32_t*>(job_.row.scales + place) =
            *reinterpret_cast<const std::uint32_t*>(own_.row_scales + r * kRunStride + 4 * word);
      }
    }
    __syncwarp();
  }

  const TileJob& job_;
  Tile16Memory& shared_;
  Tile16Memory::Warp& own_;
  const Block16Scaler &rows_, &columns_;
  std::uint32_t address_;
  std::uint32_t start_;  // the first part of a row whose scales wait to be stored
  std::uint32_t x_[2][8];
  HadamardOperand<16> h_{};
};

// The staged codes and scales of the thread block's 64 columns, to memory. Every thread calls it.
__device__ inline void StoreColumnSide(const TileJob& job, const Tile16Memory& shared,
                                       std::uint32_t row0, std::uint32_t col0) {
  const std::uint32_t thread = threadIdx.x;
  const std::size_t stride = job.rows / 2;
  if (row0 + 32 * (thread % 16) < job.rows) {  // 16 bytes of codes
    std::uint8_t* out =
        job.column.codes + (col0 + thread / 16) * stride + row0 / 2 + 16 * (thread % 16);
    const std::uint8_t* from = shared.codes + thread / 16 * kCodeStride + 16 * (thread % 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(from);
      out += 16 * stride;
      from += 16 * kCodeStride;
    }
  }
  const auto blocks = static_cast<std::uint32_t>(job.rows / 16);
#pragma unroll
  for (std::uint32_t i = 0; i < 2; ++i) {  // four scales
    const std::uint32_t c = thread / 8 + 32 * i, word = thread % 8;
    if (row0 + 64 * word >= job.rows) continue;
    const std::size_t place = job.column.scale_order == ScaleOrder::k128x4
                                  ? Offset128x4(col0 + c, row0 / 16 + 4 * word, blocks)
                                  : std::size_t{col0 + c} * blocks + row0 / 16 + 4 * word;
    *reinterpret_cast<std::uint32_t*>(job.column.scales + place) =
        *reinterpret_cast<const std::uint32_t*>(shared.scales + c * kScaleStride + 4 * word);
  }
}

}  // namespace fp4lab::cuda
