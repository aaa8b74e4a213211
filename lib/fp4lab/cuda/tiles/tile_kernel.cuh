// Rowwise and columnwise quantization to E2M1 in one pass over BF16 elements: a thread block takes
// tiles of 128 x 64, each of its warps kRows x 64 of a tile, where kRows is the number of rows of a
// columnwise block (16 or 32).
#pragma once

#include <algorithm>

#include "fp4lab/cuda/device/amax.cuh"
#include "fp4lab/cuda/device/eight.cuh"
#include "fp4lab/cuda/quantize/scale.cuh"
#include "fp4lab/cuda/tiles/tile.cuh"
#include "fp4lab/cuda/tiles/tile_launch.cuh"

namespace fp4lab::cuda {

inline constexpr int kStageStride = kTileRows / 2 + 16;  // bytes from column to column of codes

// Stores the scale of block j of a row; `octet` is the number of the block's first eight elements
// in x. Linear scales of a square block are stored once, with its first row.
template <int kRows, TileMode kMode>
__device__ void StoreRowScale(const TileJob& job, std::size_t row, std::size_t j,
                              std::uint32_t octet, std::uint32_t byte) {
  std::size_t place = octet / (kRows / 8);
  if (job.row.scale_order == ScaleOrder::k128x4) {
    place = Offset128x4(row, j, job.cols / kRows);
  } else if constexpr (kMode == TileMode::kSquare) {
    if (row % kRows != 0) return;
    place = row / kRows * (job.cols / kRows) + j;
  }
  job.row.scales[place] = static_cast<std::uint8_t>(byte);
}

template <int kRows, TileMode kMode, RandomBits kBits>
class TileWarp {
 public:
  static constexpr Scaling kScaling = kRows == 16 ? Scaling::kNvfp4 : Scaling::kMicroscaling;
  static constexpr int kLoads = kRows / 4;          // loads of eight elements by each lane
  static constexpr int kBlockLanes = kRows / 8;     // lanes that hold a rowwise block
  static constexpr int kWarps = kTileRows / kRows;  // warps of a thread block
  using TileScaler = Scaler<kScaling, FormatId::kE2M1>;

  // tile: the warp's part of the tile in shared memory. codes, scales: shared memory for quantized
  // columns, before StoreColumnSide stores them.
  __device__ TileWarp(const TileJob& job, std::uint16_t* tile, std::uint8_t* codes,
                      std::uint8_t* scales)
      : job_(job),
        tile_(tile),
        codes_(codes + Lane() / 4 * kStageStride + kRows / 8 * (Lane() % 4)),
        scales_(scales + Lane() / 4 * kWarps),
        column_address_(ColumnAddress<kRows>(tile)) {}

  // Starts loading the part of x from row r0 and column c0 on, which Share makes the current part.
  __device__ void Load(std::size_t r0, std::size_t c0) {
    next_r0_ = r0;
    next_c0_ = c0;
    const std::size_t col = c0 + static_cast<std::size_t>(8 * (Lane() % 8));
    const auto* in = reinterpret_cast<const uint4*>(job_.x + (r0 + Row(0)) * job_.cols + col);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      loaded_[i] = *in;
      in += job_.cols / 2;  // moves down four rows
    }
  }

  // Copies the loaded part to shared memory, in the layout of LoadColumns.
  __device__ void Share() {
    r0_ = next_r0_;
    c0_ = next_c0_;
    first_octet_ = static_cast<std::uint32_t>(((r0_ + Row(0)) * job_.cols + Col()) / 8);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      *reinterpret_cast<uint4*>(tile_ + Row(i) * kTileStride + 8 * (Lane() % 8)) = loaded_[i];
    }
    exact_ = FindExactness();
    __syncwarp();
  }

  __device__ void QuantizeRows(const TileScaler& scaler) {
    if constexpr (kMode == TileMode::kSquare) FindSquareScale(scaler);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) QuantizeRow(scaler, i);
  }

  __device__ void QuantizeColumns(const TileScaler& scaler, const HadamardOperand<kRows>& h) {
#pragma unroll 1
    for (int b = 0; b < kTileCols / 16; ++b) {
      QuantizeColumn(scaler, TransformedColumns(h, b), b);
    }
    if (job_.column.values != nullptr) StoreTile();
  }

  // The largest magnitudes of the loaded and of the transformed elements, as BF16 bits.
  __device__ void Maxima(const HadamardOperand<kRows>& h, std::uint32_t* before,
                         std::uint32_t* after) const {
    *before = *after = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) *before = max(*before, LargestWithoutNan(loaded_[i]));
#pragma unroll 1
    for (int b = 0; b < kTileCols / 16; ++b) {
      const Columns<kRows> y = TransformedColumns(h, b);
#pragma unroll
      for (int q = 0; q < kRows / 8; ++q) {
        *after = max(*after, LargestWithoutNan({y.of[0][q], y.of[1][q], 0, 0}));
      }
    }
  }

 private:
  __device__ static int Lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int Row(int i) { return 4 * i + Lane() / 8; }
  __device__ std::size_t Col() const { return c0_ + static_cast<std::size_t>(8 * (Lane() % 8)); }

  // The largest magnitude as BF16 bits; NaN is ignored.
  __device__ static std::uint32_t LargestWithoutNan(uint4 w) {
    std::uint32_t largest = LargestBf16(w);
    if (largest <= kInfBf16) return largest;
    largest = 0;
    for (const std::uint32_t word : {w.x, w.y, w.z, w.w}) {
      for (const std::uint32_t m : {word & 0x7FFFu, word >> 16 & 0x7FFFu}) {
        if (m <= kInfBf16) largest = max(largest, m);
      }
    }
    return largest;
  }

  // ---- Rows ----

  // Computes the scale of kRows x kRows elements, in all lanes that hold some of them.
  __device__ void FindSquareScale(const TileScaler& scaler) {
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) largest = max(largest, LargestWithoutNan(loaded_[i]));
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      if (step < kBlockLanes || step >= 8) {
        largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
      }
    }
    square_byte_ = scaler.Byte(__uint_as_float(largest << 16));
  }

  __device__ void QuantizeRow(const TileScaler& scaler, int i) const {
    const QuantizedSide& side = job_.row;
    const Eight e = EightOf(loaded_[i]);
    std::uint32_t largest = LargestBf16(loaded_[i]);
    bool special = largest > kInfBf16;
    std::uint32_t byte = square_byte_;
    if constexpr (kMode != TileMode::kSquare) {
      if (special) largest = LargestWithoutNan(loaded_[i]);
#pragma unroll
      for (int step = 1; step < kBlockLanes; step *= 2) {
        largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
      }
      byte = scaler.Byte(__uint_as_float(largest << 16));
    }
    special = special || byte == 255;  // the NaN of E8M0
    const std::uint32_t octet = first_octet_ + i * static_cast<std::uint32_t>(job_.cols / 2);
    const RandomOctet<kBits> random(job_.row_random, octet);
    const std::uint32_t codes = E2m1Codes<kBits>(e, Both(scaler.Factor(byte)), special, random);
    if (side.codes != nullptr) reinterpret_cast<std::uint32_t*>(side.codes)[octet] = codes;
    if (side.values != nullptr) {
      reinterpret_cast<uint4*>(side.values)[octet] = E2m1Values(codes, Both(scaler.Value(byte)));
    }
    if (side.scales != nullptr && Lane() % kBlockLanes == 0)
      StoreRowScale<kRows, kMode>(job_, r0_ + Row(i), Col() / kRows, octet, byte);
  }

  // ---- Columns ----

  // The exactness of the columns of the warp. Bit 2 b of a word is for columns 16 b to 16 b + 15.
  struct Exact {
    std::uint32_t one_part = 0xFFFFFFFFu, two_parts = 0xFFFFFFFFu;
    std::uint32_t largest = 0;  // BF16 bits; lane 2 b has that of columns 16 b to 16 b + 15
    bool nan = false;           // whether any column may hold a NaN
  };

  __device__ Exact FindExactness() const {
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) largest = max(largest, LargestBf16(loaded_[i]));
    Exact out;
    if constexpr (kMode != TileMode::kHadamard) {
      out.nan = __any_sync(0xFFFFFFFFu, largest > kInfBf16) != 0;
      return out;
    }
    Smallest smallest;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint4 w = loaded_[i];
      smallest.Add(w.x);
      smallest.Add(w.y);
      smallest.Add(w.z);
      smallest.Add(w.w);
    }
    // The largest and 0x7FFF - smallest in the halves of a word, so that both are maxima.
    std::uint32_t both = largest << 16 | (0x7FFFu - smallest.Bits());
#pragma unroll
    for (const int step : {1, 8, 16}) {
      both = __vmaxu2(both, __shfl_xor_sync(0xFFFFFFFFu, both, step));
    }
    const Exactness exactness = ExactnessOf<kRows>(both >> 16, 0x7FFFu - (both & 0xFFFFu));
    out.one_part = __ballot_sync(0xFFFFFFFFu, exactness == Exactness::kOnePart);
    out.two_parts = __ballot_sync(0xFFFFFFFFu, exactness == Exactness::kTwoParts);
    out.nan = (out.one_part | out.two_parts) != 0xFFFFFFFFu;
    out.largest = both >> 16;
    return out;
  }

  __device__ Columns<kRows> TransformedColumns(const HadamardOperand<kRows>& h, int b) const {
    if constexpr (kMode != TileMode::kHadamard) return LoadColumns<kRows>(column_address_, b);
    const std::uint32_t bit = 1u << (2 * b);
    if ((exact_.one_part & bit) != 0) {
      return TransformedInParts<kRows>(LoadColumns<kRows>(column_address_, b), h, false, 0);
    }
    if ((exact_.two_parts & bit) != 0) {
      const std::uint32_t largest = __shfl_sync(0xFFFFFFFFu, exact_.largest, 2 * b);
      return TransformedInParts<kRows>(LoadColumns<kRows>(column_address_, b), h, true, largest);
    }
    TransformExactly<kRows>(tile_, 16 * b, job_.column.sign_mask);
    return LoadColumns<kRows>(column_address_, b);
  }

  // The largest magnitudes of the lane's two columns, in the halves of a word (BF16 bits), in all
  // lanes that hold part of the columns. *nan: whether any column of the warp may hold a NaN.
  __device__ std::uint32_t LargestOfColumns(const Columns<kRows>& x, bool* nan) const {
    std::uint32_t of[2] = {0, 0};
#pragma unroll
    for (int side = 0; side < 2; ++side) {
#pragma unroll
      for (int q = 0; q < kRows / 8; ++q) {
        of[side] = __vmaxu2(of[side], x.of[side][q] & 0x7FFF7FFFu);
      }
    }
    std::uint32_t largest =
        __vmaxu2(__byte_perm(of[0], of[1], 0x5410), __byte_perm(of[0], of[1], 0x7632));
    *nan = exact_.nan;
    if (*nan) {
      largest = 0;
      for (int q = 0; q < kRows / 8; ++q) {
        largest = max(largest & 0xFFFFu, LargestWithoutNan({x.of[0][q], 0, 0, 0})) |
                  max(largest >> 16, LargestWithoutNan({x.of[1][q], 0, 0, 0})) << 16;
      }
    }
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      largest = __vmaxu2(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
    }
    return largest;
  }

  __device__ Halves<std::uint32_t> ColumnBytes(const TileScaler& scaler, std::uint32_t largest,
                                               int b) const {
    if constexpr (kMode == TileMode::kSquare) {
      return Both(__shfl_sync(0xFFFFFFFFu, square_byte_, 2 * b));
    }
    return {scaler.Byte(__uint_as_float(largest << 16)),
            scaler.Byte(__uint_as_float(largest & 0xFFFF0000u))};
  }

  __device__ void QuantizeColumn(const TileScaler& scaler, const Columns<kRows>& x, int b) {
    bool nan = false;
    const std::uint32_t largest = LargestOfColumns(x, &nan);
    const Halves<std::uint32_t> byte = ColumnBytes(scaler, largest, b);
    const Halves<float> factor{scaler.Factor(byte.low), scaler.Factor(byte.high)};
    const bool special = nan || byte.low == 255 || byte.high == 255;
    const std::size_t column = c0_ + static_cast<std::size_t>(16 * b + Lane() / 4);
    Columns<kRows> values;
    if constexpr (kRows == 16) {
      const Eight e = EightOf({x.of[0][0], x.of[0][1], x.of[1][0], x.of[1][1]});
      const std::uint32_t codes = E2m1Codes<kBits>(e, factor, special, RandomOfPair(column));
      StageCodes16(codes, b, 0);
      StageCodes16(codes >> 16, b, 8);
      if (job_.column.values != nullptr) {
        const uint4 v = E2m1Values(codes, {scaler.Value(byte.low), scaler.Value(byte.high)});
        values = {{{v.x, v.y}, {v.z, v.w}}};
      }
    } else {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const auto& pairs = x.of[side];
        const Eight e = EightOf({pairs[0], pairs[1], pairs[2], pairs[3]});
        const RandomOctet<kBits> random(job_.column_random, ColumnOctet(column + 8 * side));
        const std::uint32_t codes =
            E2m1Codes<kBits>(e, Both(side == 0 ? factor.low : factor.high), special, random);
        StageCodes32(codes, b, 8 * side);
        if (job_.column.values != nullptr) {
          const uint4 v = E2m1Values(codes, Both(scaler.Value(side == 0 ? byte.low : byte.high)));
          values.of[side][0] = v.x;
          values.of[side][1] = v.y;
          values.of[side][2] = v.z;
          values.of[side][3] = v.w;
        }
      }
    }
    if (Lane() % 4 == 0) {
      scales_[16 * b * kWarps] = static_cast<std::uint8_t>(byte.low);
      scales_[(16 * b + 8) * kWarps] = static_cast<std::uint8_t>(byte.high);
    }
    if (job_.column.values != nullptr) {
      __syncwarp();
      StoreColumns<kRows>(values, tile_, 16 * b);
    }
  }

  // The number of the lane's first element of a column, divided by eight.
  __device__ std::uint64_t ColumnOctet(std::size_t column) const {
    return (column * job_.rows + r0_ + static_cast<std::size_t>(kRows / 4 * (Lane() % 4))) / 8;
  }

  // The random bits of four elements of `column` and four of column + 8. Lanes 2 i and 2 i + 1 hold
  // the halves of the same octets, so each of them makes one octet's bits, and they exchange
  // halves.
  __device__ RandomOctet<kBits> RandomOfPair(std::size_t column) const {
    if constexpr (kBits == RandomBits::kNone) {
      return {};
    } else if constexpr (kBits == RandomBits::kCounter) {
      const bool odd = Lane() % 2 == 1;
      RandomOctet<kBits> made(job_.column_random, ColumnOctet(odd ? column + 8 : column));
      RandomOctet<kBits> out = made;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        // An even lane keeps the first fields of `column` and sends the last ones; an odd lane
        // keeps the last fields of column + 8 and sends the first ones.
        const std::uint32_t given = odd ? made.fields[i] : made.fields[2 + i];
        const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, given, 1);
        out.fields[i] = odd ? got : made.fields[i];
        out.fields[2 + i] = odd ? made.fields[2 + i] : got;
      }
      return out;
    } else {
      RandomOctet<kBits> out(job_.column_random, ColumnOctet(column));
      const RandomOctet<kBits> other(job_.column_random, ColumnOctet(column + 8));
      const int half = Lane() % 2;
      out.words[0] = half == 0 ? out.words[0] : out.words[1];
      out.words[1] = half == 0 ? other.words[0] : other.words[1];
      return out;
    }
  }

  __device__ std::uint8_t* Staged(int b, int side) const {
    return codes_ + (16 * b + side) * kStageStride;
  }
  __device__ void StageCodes16(std::uint32_t codes, int b, int side) const {
    *reinterpret_cast<std::uint16_t*>(Staged(b, side)) = static_cast<std::uint16_t>(codes);
  }
  __device__ void StageCodes32(std::uint32_t codes, int b, int side) const {
    *reinterpret_cast<std::uint32_t*>(Staged(b, side)) = codes;
  }

  // Stores the values of the columns, which QuantizeColumn has left in the tile.
  __device__ void StoreTile() const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      *reinterpret_cast<uint4*>(job_.column.values + (r0_ + Row(i)) * job_.cols + Col()) =
          *reinterpret_cast<const uint4*>(tile_ + Row(i) * kTileStride + 8 * (Lane() % 8));
    }
  }

  const TileJob& job_;
  std::size_t r0_ = 0, c0_ = 0, next_r0_ = 0, next_c0_ = 0;
  std::uint32_t first_octet_ = 0;  // number of the lane's first eight elements in x
  std::uint16_t* tile_;
  std::uint8_t* codes_;  // places of the lane's first code and scale in shared memory
  std::uint8_t* scales_;
  std::uint32_t column_address_;
  uint4 loaded_[kLoads];
  std::uint32_t square_byte_ = 0;
  Exact exact_;
};

// Stores the codes and scales of the thread block's 64 columns from shared memory.
template <int kRows, TileMode kMode>
__device__ void StoreColumnSide(const TileJob& job, std::size_t r0, std::size_t c0,
                                const std::uint8_t* codes, const std::uint8_t* scales) {
  constexpr int kThreads = 32 * kTileRows / kRows;
  constexpr int kBytes = kTileRows / kRows;  // bytes of a column's scales
  const QuantizedSide& side = job.column;
  if (side.codes != nullptr) {
#pragma unroll
    for (int i = threadIdx.x; i < kTileCols * 4; i += kThreads) {
      *reinterpret_cast<uint4*>(side.codes + (c0 + i / 4) * (job.rows / 2) + r0 / 2 +
                                16 * (i % 4)) =
          *reinterpret_cast<const uint4*>(codes + i / 4 * kStageStride + 16 * (i % 4));
    }
  }
  if (side.scales == nullptr || threadIdx.x >= kTileCols) return;
  const std::size_t scale_cols = job.rows / kRows;
  const std::size_t column = c0 + threadIdx.x;
  if (side.scale_order == ScaleOrder::kLinear && kMode == TileMode::kSquare &&
      column % kRows != 0) {
    return;
  }
  const std::size_t line = kMode == TileMode::kSquare ? column / kRows : column;
#pragma unroll
  for (int j = 0; j < kBytes; j += 4) {
    const std::size_t place = side.scale_order == ScaleOrder::kLinear
                                  ? line * scale_cols + r0 / kRows + j
                                  : Offset128x4(column, r0 / kRows + j, scale_cols);
    *reinterpret_cast<std::uint32_t*>(side.scales + place) =
        *reinterpret_cast<const std::uint32_t*>(scales + threadIdx.x * kBytes + j);
  }
}

// Thread blocks for each multiprocessor.
template <int kRows>
inline constexpr int kTileBlocks = kRows == 16 ? 3 : 4;

template <int kRows>
struct TileMemory {
  alignas(16) std::uint16_t tile[kTileRows * kTileStride];
  alignas(16) std::uint8_t codes[kTileCols * kStageStride];
  alignas(16) std::uint8_t scales[kTileCols * (kTileRows / kRows)];
  float row_factors[kScaleBytes], column_factors[kScaleBytes];
};

// The first row and column of a tile of x.
struct TilePlace {
  std::size_t r0, c0;
};
template <int kRows>
__device__ TilePlace PlaceOf(const TileJob& job, std::uint32_t tile) {
  const auto across = static_cast<std::uint32_t>(job.cols / kTileCols);
  return {std::size_t{tile / across} * kTileRows, std::size_t{tile % across} * kTileCols};
}

// Thread blocks are persistent: each takes tile after tile, so that its tables and the operand of
// the transform serve many tiles. The next tile is loaded while the columns of the current tile are
// quantized.
template <int kRows, TileMode kMode, RandomBits kBits>
__global__ void __launch_bounds__(32 * kTileRows / kRows, kTileBlocks<kRows>)
    TileKernel(TileJob job) {
  using Warp = TileWarp<kRows, kMode, kBits>;
  __shared__ TileMemory<kRows> shared;
  const int warp = static_cast<int>(threadIdx.x / 32);
  Warp part(job, shared.tile + warp * kRows * kTileStride, shared.codes + warp * kRows / 2,
            shared.scales + warp);
  std::uint32_t tile = blockIdx.x;
  TilePlace place = PlaceOf<kRows>(job, tile);
  part.Load(place.r0 + warp * kRows, place.c0);
  const typename Warp::TileScaler rows(job.rule, job.row.amax, shared.row_factors);
  const typename Warp::TileScaler columns(job.rule, job.column.amax, shared.column_factors);
  HadamardOperand<kRows> operand{};
  if constexpr (kMode == TileMode::kHadamard) {
    operand = HadamardOperandOf<kRows>(job.column.sign_mask);
  }
  __syncthreads();  // the tables are ready
  while (tile < job.tiles) {
    const TilePlace current = place;
    part.Share();
    if (job.quantizes_rows) part.QuantizeRows(rows);
    tile += gridDim.x;
    if (tile < job.tiles) {
      place = PlaceOf<kRows>(job, tile);
      part.Load(place.r0 + warp * kRows, place.c0);
    }
    part.QuantizeColumns(columns, operand);
    __syncthreads();
    StoreColumnSide<kRows, kMode>(job, current.r0, current.c0, shared.codes, shared.scales);
    __syncthreads();  // the columns in shared memory may be overwritten
  }
}

// job.amax and job.transformed: the amax of x and of its columnwise transform.
template <int kRows>
__global__ void __launch_bounds__(32 * kTileRows / kRows, kRows == 16 ? 3 : 6)
    TileAmaxKernel(TileJob job) {
  __shared__ alignas(16) std::uint16_t tile[kTileRows * kTileStride];
  const auto across = static_cast<unsigned>(job.cols / kTileCols);
  const std::size_t r0 = std::size_t{blockIdx.x / across} * kTileRows;
  const std::size_t c0 = std::size_t{blockIdx.x % across} * kTileCols;
  const int warp = static_cast<int>(threadIdx.x / 32);
  TileWarp<kRows, TileMode::kHadamard, RandomBits::kNone> part(
      job, tile + warp * kRows * kTileStride, nullptr, nullptr);
  part.Load(r0 + warp * kRows, c0);
  part.Share();
  std::uint32_t before = 0, after = 0;
  part.Maxima(HadamardOperandOf<kRows>(job.column.sign_mask), &before, &after);
  constexpr int kThreads = 32 * kTileRows / kRows;
  if (job.amax != nullptr) StoreBlockAmax<kThreads>(__uint_as_float(before << 16), job.amax);
  if (job.transformed != nullptr) {
    StoreBlockAmax<kThreads>(__uint_as_float(after << 16), job.transformed);
  }
}

template <int kRows, TileMode kMode, RandomBits kBits>
void LaunchTile(TileJob job, cudaStream_t stream) {
  job.tiles = static_cast<std::uint32_t>(job.rows / kTileRows * (job.cols / kTileCols));
  const std::uint32_t blocks =
      std::min(job.tiles, static_cast<std::uint32_t>(Multiprocessors() * kTileBlocks<kRows>));
  TileKernel<kRows, kMode, kBits><<<blocks, 32 * kTileRows / kRows, 0, stream>>>(job);
  CheckLaunch("the kernel of tiles");
}

template <int kRows, TileMode kMode>
void LaunchTile(const TileJob& job, RandomBits bits, cudaStream_t stream) {
  if (bits == RandomBits::kCounter)
    return LaunchTile<kRows, kMode, RandomBits::kCounter>(job, stream);
  if (bits == RandomBits::kInstruction) {
    return LaunchTile<kRows, kMode, RandomBits::kInstruction>(job, stream);
  }
  LaunchTile<kRows, kMode, RandomBits::kNone>(job, stream);
}

template <int kRows>
void LaunchTileAmax(const TileJob& job, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(job.rows / kTileRows * (job.cols / kTileCols));
  TileAmaxKernel<kRows><<<blocks, 32 * kTileRows / kRows, 0, stream>>>(job);
  CheckLaunch("the kernel of amaxes");
}

}  // namespace fp4lab::cuda
