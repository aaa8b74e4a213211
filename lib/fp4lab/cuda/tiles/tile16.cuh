// The work of a warp in tile16_kernel.cu, the kernel of tiles of blocks of 16.
#pragma once

#include "fp4lab/cuda/tiles/tile16_transform.cuh"
#include "fp4lab/cuda/tiles/tile_launch.cuh"

namespace fp4lab::cuda {

// Copies the slices of a warp to shared memory asynchronously, in the order in which the warp takes
// them; kSlices of them, as many as a group has, are always on their way.
template <std::uint32_t kBandRows>
class SliceReader {
 public:
  __device__ SliceReader(const std::uint16_t* x, const Tile16Cut& cut, std::uint16_t* slices)
      : x_(x), cut_(cut), to_(Kept(SharedAddress(slices + SlicePiece(Lane() / 8, Lane() % 8)))) {
    Locate();
    for (std::uint32_t s = 0; s < kSlices; ++s) Fetch(s);
  }
  // Waits until the oldest slice has arrived.
  __device__ static void Await() {
    WaitForCopies<kSlices - 1>();
    __syncwarp();
  }
  // Fetches slice s of the next group, if there is one, into the place of slice s of the last
  // group.
  __device__ void Fetch(std::uint32_t s) {
    if (part_ < cut_.parts) {
      if (row_ < cut_.rows) FetchRows(s);
      if (s == kSlices - 1) NextGroup();
    }
    CommitCopies();
  }

 private:
  // A lane copies the pieces of rows r, r + 4, r + 8 and r + 12: SlicePiece(r + 4 i, c).
  __device__ void FetchRows(std::uint32_t s) {
    const std::uint16_t* from = from_ + std::size_t{16 * s} * cut_.cols;
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((to_ ^ (32 * i)) + 512 * i +
                                                                     2 * kSliceSize * s),
                   "l"(from)
                   : "memory");
      from += std::size_t{4} * cut_.cols;
    }
  }
  __device__ void NextGroup() {
    from_ += kGroupCols;
    if (--groups_ != 0) return;
    part_ += gridDim.x;
    Locate();
  }
  // Moves to the first part, from part_ on, that has a group.
  __device__ void Locate() {
    for (; part_ < cut_.parts; part_ += gridDim.x) {
      const Tile16Part part = PartOf<kBandRows>(cut_, part_);
      if (part.groups == 0) continue;
      row_ = part.row + threadIdx.x / 32 * kWarpRows;
      groups_ = part.groups;
      from_ = x_ + std::size_t{row_ + Lane() / 8} * cut_.cols + part.col + 8 * (Lane() % 8);
      return;
    }
  }

  const std::uint16_t* x_;
  const Tile16Cut& cut_;
  std::uint32_t to_;  // shared address of the lane's first piece
  const std::uint16_t* from_ = nullptr;
  std::uint32_t part_ = blockIdx.x, row_ = 0, groups_ = 0;
};

template <bool kHadamard, bool kRows, RandomBits kBits, class Memory>
class Tile16Warp {
 public:
  __device__ Tile16Warp(const TileJob& job, const Tile16Cut& cut, Memory* shared)
      : job_(job),
        cut_(cut),
        shared_(*shared),
        reader_(job.x, cut, Element(First(), 0)),
        rows_(kRows ? job.row.amax : job.column.amax, &shared->rows),
        columns_(job.column.amax, &shared->columns),
        matrices_(Kept(ColumnsAddress(Element(First(), 0)))),
        row_pieces_(Kept(First() + SlicePiece(Lane() / 4, 2 * (Lane() % 4)))),
        columns_place_(Kept(First() + ColumnsPlace())),
        column_pieces_(Kept(First() + ColumnPiece(Lane(), 0))) {
    if constexpr (kHadamard) h_ = HadamardOperandOf<16>(job.column.sign_mask);
  }

  // Quantizes all parts of the thread block. Needs a barrier of the thread block before, so that
  // the tables are ready.
  __device__ void Run() {
    for (std::uint32_t n = blockIdx.x; n < cut_.parts; n += gridDim.x) {
      const Tile16Part part = PartOf<Memory::kBandRows>(cut_, n);
      const std::uint32_t row = part.row + Warp() * kWarpRows;
      for (std::uint32_t g = 0; g < part.groups; ++g) {
        const std::uint32_t col = part.col + g * kGroupCols;
        TakeGroup(row, col, g);
        if (count_ >= kLag) StoreGroup(count_ - kLag, older_);
        older_ = old_;
        old_ = {part.row, col};
        ++count_;
      }
      if (kRows && row < cut_.rows) StoreRowScales(row, part.col, part.groups);
    }
    if (count_ >= 2) StoreGroup(count_ - 2, older_);
    if (count_ >= 1) StoreGroup(count_ - 1, old_);
  }

 private:
  static constexpr std::uint32_t kBandRows = Memory::kBandRows;

  __device__ static std::uint32_t Warp() { return threadIdx.x / 32; }
  // The index of the warp's first element in the slices of the thread block.
  __device__ static std::uint32_t First() { return Warp() * (kSlices * kSliceSize); }
  __device__ std::uint16_t* Element(std::uint32_t place, std::uint32_t s) const {
    return shared_.slices[0][0] + place + s * kSliceSize;
  }

  // Quantizes group g of a part, the warp's rows from `row` on.
  __device__ void TakeGroup(std::uint32_t row, std::uint32_t col, std::uint32_t g) {
    const std::uint32_t place = count_ % kRing;
    std::uint32_t block = (row + Lane() / 4) * (cut_.cols / 16) + col / 16 + Lane() % 4;
    const std::uint32_t column_block = (col + Lane()) * (cut_.rows / 16) + row / 16;
    std::uint8_t* const scales =
        shared_.row_scales[Warp()] + Lane() / 4 * (4 * kRunGroups) + 4 * g + Lane() % 4;
    Await(&shared_.stored[place], (count_ / kRing + 1) % 2);
#pragma unroll
    for (std::uint32_t s = 0; s < kSlices; ++s) {
      if (row < cut_.rows) {
        reader_.Await();
        const Range range = TakeRows(s, block, scales + 16 * (4 * kRunGroups) * s);
        block += cut_.cols;
        ShareColumns(s, range);
        QuantizeColumns(s, column_block + s, &shared_.groups[place]);
      }
      reader_.Fetch(s);
    }
    Arrive(&shared_.written[place]);
  }

  // Quantizes the rows of slice s: a lane takes block Lane() % 4 of rows r and r + 8, where r is
  // Lane() / 4; the block of row r has the number `block`. Returns the largest and the smallest u
  // of the warp, 0 included, for SumsOfColumns.
  __device__ Range TakeRows(std::uint32_t s, std::uint32_t block, std::uint8_t* scales) {
    std::uint32_t smallest = 0xFFFFFFFFu, largest[2];
    std::uint32_t x[2][8], u[2][8];
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
#pragma unroll
      for (std::uint32_t k = 0; k < 2; ++k) {
        // SlicePiece(Lane() / 4 + 8 * i, 2 * (Lane() % 4) + k)
        LoadWords<4>(Element((row_pieces_ ^ (32 * i + 8 * k)) + 512 * i, s), x[i] + 4 * k);
      }
#pragma unroll
      for (int k = 0; k < 8; ++k) u[i][k] = kRows ? rows_.Magnitudes(x[i][k]) : 2 * x[i][k];
#pragma unroll
      for (int k = 0; k < 8; k += 2) smallest = __vimin3_u16x2(smallest, u[i][k], u[i][k + 1]);
      largest[i] = LargestOf(u[i]);
    }
    Range range{};
    if constexpr (kHadamard) {
      range = {__reduce_max_sync(0xFFFFFFFFu, HigherHalf(__vmaxu2(largest[0], largest[1]))),
               __reduce_min_sync(0xFFFFFFFFu, LowerHalf(smallest))};
    }
    if constexpr (kRows) {
      Quantized16 q[2];
#pragma unroll
      for (std::uint32_t i = 0; i < 2; ++i) {
        q[i] =
            Quantize16(x[i], u[i], largest[i], rows_, job_.row_random, block + i * (cut_.cols / 2));
      }
      Finish(x, rows_, &q);
#pragma unroll
      for (std::uint32_t i = 0; i < 2; ++i) {
        reinterpret_cast<uint2*>(job_.row.codes)[block + i * (cut_.cols / 2)] = q[i].codes;
        scales[8 * (4 * kRunGroups) * i] = static_cast<std::uint8_t>(q[i].byte);
      }
    }
    return range;
  }

  // The SliceSums of the slice with the columns x and this range of u.
  __device__ SliceSums SumsOfColumns(const Columns<16> (&x)[4], const Range& range) const {
    const std::uint32_t shrunken = kRows ? static_cast<std::uint32_t>(rows_.shrink) << 8 : 0;
    const std::uint32_t largest = range.largest < 0x100 ? 0 : range.largest + shrunken;
    if (range.smallest < 0x100) return SumsOfSlice(x, largest);  // a zero or perhaps an underflow
    return SumsOf(largest, range.smallest + shrunken);
  }

  // Replaces a slice in its place by its columns, transformed if kHadamard.
  __device__ void ShareColumns(std::uint32_t s, const Range& range) {
    Columns<16> y[4];
#pragma unroll
    for (std::uint32_t b = 0; b < 4; ++b) {
      y[b] = LoadColumnsAt((matrices_ ^ (32 * b)) + 2 * kSliceSize * s);
    }
    if constexpr (kHadamard) {
      const SliceSums sums = SumsOfColumns(y, range);
      if (sums == SliceSums::kByPiece) {
        return ShareByPiece(Element(First(), s), h_, job_.column.sign_mask);
      }
      if (sums == SliceSums::kOne) {
#pragma unroll
        for (std::uint32_t b = 0; b < 4; ++b) y[b] = TransformedInParts<16>(y[b], h_, false, 0);
      } else {
#pragma unroll
        for (std::uint32_t b = 0; b < 4; ++b) y[b] = TransformedInHalves(y[b], h_);
      }
    }
    __syncwarp();
    StoreColumns(Element(columns_place_, s), y);
    __syncwarp();
  }

  // Quantizes the columns Lane(), whose block has the number `block`, and Lane() + 32 of slice s.
  __device__ void QuantizeColumns(std::uint32_t s, std::uint32_t block,
                                  typename Memory::Group* group) {
    std::uint32_t w[2][8];
    Quantized16 q[2];
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
#pragma unroll
      for (std::uint32_t k = 0; k < 2; ++k) {
        LoadWords<4>(Element((column_pieces_ ^ (8 * k)) + 512 * i, s), w[i] + 4 * k);
      }
    }
    QuantizePair(w, columns_, job_.column_random, block, 2 * cut_.rows, &q);
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint32_t c = Lane() + 32 * i;
      *reinterpret_cast<uint2*>(group->codes + c * Memory::kCodeStride + Warp() * (kWarpRows / 2) +
                                8 * s) = q[i].codes;
      group->scales[c * Memory::kScaleStride + Warp() * kSlices + s] =
          static_cast<std::uint8_t>(q[i].byte);
    }
    __syncwarp();
  }

  // Stores the warp's share of group n, whose first row and column are `at`, once all warps have
  // written the group to shared memory.
  __device__ void StoreGroup(std::uint32_t n, uint2 at) {
    constexpr std::uint32_t kCols = kGroupCols / Memory::kWarps;
    constexpr std::uint32_t kPieces = kBandRows / 32, kWords = kBandRows / 64;  // of a column
    const std::uint32_t place = n % kRing, first = Warp() * kCols, here = cut_.rows - at.x;
    const typename Memory::Group& group = shared_.groups[place];
    Await(&shared_.written[place], n / kRing % 2);
#pragma unroll
    for (std::uint32_t i = 0; i < kCols * kPieces / 32; ++i) {  // 16 bytes of codes
      const std::uint32_t c = first + (32 * i + Lane()) / kPieces, piece = Lane() % kPieces;
      if (32 * piece < here) {
        *reinterpret_cast<uint4*>(job_.column.codes +
                                  (std::size_t{at.y + c} * cut_.rows + at.x) / 2 + 16 * piece) =
            *reinterpret_cast<const uint4*>(group.codes + c * Memory::kCodeStride + 16 * piece);
      }
    }
    const std::uint32_t c = first + Lane() / kWords, word = Lane() % kWords;
    if (64 * word < here) {  // four scales
      StoreScales(job_.column, at.y + c, at.x / 16 + 4 * word, cut_.rows / 16,
                  group.scales + c * Memory::kScaleStride + 4 * word);
    }
    Arrive(&shared_.stored[place]);
  }

  // Stores the scales of the warp's rows for `groups` groups from column col on.
  __device__ void StoreRowScales(std::uint32_t row, std::uint32_t col, std::uint32_t groups) const {
    const std::uint32_t word = Lane() % kRunGroups;
    __syncwarp();
    if (word < groups) {
#pragma unroll
      for (std::uint32_t r = Lane() / kRunGroups; r < kWarpRows; r += 32 / kRunGroups) {
        StoreScales(job_.row, row + r, col / 16 + 4 * word, cut_.cols / 16,
                    shared_.row_scales[Warp()] + 4 * (kRunGroups * r + word));
      }
    }
    __syncwarp();
  }

  // Stores four scales of row r of a side, from block b of `blocks` on.
  __device__ static void StoreScales(const QuantizedSide& side, std::uint32_t r, std::uint32_t b,
                                     std::uint32_t blocks, const std::uint8_t* from) {
    const std::size_t place = side.scale_order == ScaleOrder::k128x4 ? Offset128x4(r, b, blocks)
                                                                     : std::size_t{r} * blocks + b;
    *reinterpret_cast<std::uint32_t*>(side.scales + place) =
        *reinterpret_cast<const std::uint32_t*>(from);
  }

  const TileJob& job_;
  const Tile16Cut& cut_;
  Memory& shared_;
  SliceReader<kBandRows> reader_;
  const Block16Scaler<kBits> rows_, columns_;
  // For the warp's first slice: matrices_ is its ColumnsAddress; the others are indices of elements
  // in the thread block's slices, namely of the lane's first piece of a row, of its columns
  // (ColumnsPlace), and of its first piece of a column.
  const std::uint32_t matrices_, row_pieces_, columns_place_, column_pieces_;
  HadamardOperand<16> h_{};
  std::uint32_t count_ = 0;  // number of groups taken
  uint2 old_{}, older_{};    // first rows and columns of the last two groups
};

}  // namespace fp4lab::cuda
