// Values for GEMMs in dialects with large blocks, BF16 or binary32: the lanes of a warp share a
// block of 64 or 128 elements of one row, a thread block has 64 neighbouring blocks down columns of
// BF16, or a tile of 128 x 128. A thread holds its elements in registers.
#include "fp4lab/cuda/quantize/values/block_registers.cuh"
#include "fp4lab/cuda/quantize/values/dialect_values.cuh"

namespace fp4lab::cuda {
namespace {

template <class T>
struct LanesJob {
  const T* x = nullptr;
  T* out = nullptr;
  std::uint32_t rows = 0, cols = 0;
  const float* amax = nullptr;
  float* scales = nullptr;
};

__device__ float ValueOf(float x) { return x; }
__device__ float ValueOf(std::uint16_t x) { return __uint_as_float(std::uint32_t{x} << 16); }

// Loads 16 neighbours along the reduction axis, `stride` elements apart; stride 1: from memory that
// is aligned to 16 bytes.
template <bool kTransposed, class T>
__device__ void LoadSixteen(const T* from, std::uint64_t stride, float (&x)[16]) {
  if constexpr (kTransposed) {
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = ValueOf(from[stride * i]);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 four = reinterpret_cast<const float4*>(from)[i];
      x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
    }
  } else {
    std::uint32_t words[8];
    LoadWords<8>(from, words);
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = Element(words, i);
  }
}

template <bool kTransposed, class T>
__device__ void StoreSixteen(T* to, std::uint64_t stride, const float (&x)[16]) {
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < 16; ++i) to[stride * i] = x[i];
  } else if constexpr (kTransposed) {
#pragma unroll
    for (int i = 0; i < 16; ++i) to[stride * i] = Bf16Bits(x[i]);
  } else {
    std::uint32_t words[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = Bf16Pair(x[2 * i], x[2 * i + 1]);
    StoreWords<8>(to, words);
  }
}

// The amax of 16 elements as BlockAmax (dialect_block.cuh) has it, as bits: a NaN is above Inf.
__device__ std::uint32_t AmaxOfSixteen(const Dialect& d, const float (&x)[16]) {
  float amax = 0.0f;
  bool nan = false;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    amax = fmaxf(amax, fabsf(x[i]));  // passes over NaN
    nan = nan || x[i] != x[i];
  }
  return nan && d.nan != NanRule::kElement ? 0x7FC00000u : __float_as_uint(amax);
}

// The amax of a block from its lanes' elements. All lanes of the warp call it.
template <unsigned kLanes, bool kTransposed>
__device__ float AmaxOfLanes(const Dialect& d, const float (&x)[16]) {
  std::uint32_t bits = AmaxOfSixteen(d, x);
#pragma unroll
  for (unsigned width = 1; width < kLanes; width *= 2) {
    const int distance = static_cast<int>(width * kPartDistance<kLanes, kTransposed>);
    bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, distance));
  }
  return __uint_as_float(bits);
}

template <class T, FormatId kElement, unsigned kLanes, bool kTransposed>
__global__ void __launch_bounds__(kValuesThreads, 4) LaneValuesKernel(Dialect d, LanesJob<T> job) {
  d.element = kElement;  // compile-time constants
  d.rounding = ElementRounding::kNearestEven;
  d.block_rows = 1;
  d.block_cols = static_cast<int>(16 * kLanes);
  const LanePlace lane = LanePlaceOf<kLanes, kTransposed>(blockIdx.x * kValuesThreads + threadIdx.x,
                                                          job.rows, job.cols);
  if (!lane.exists) return;
  const std::uint64_t first = std::uint64_t{lane.segment} * 16u;
  const std::uint64_t place =
      kTransposed ? first * job.rows + lane.row : std::uint64_t{lane.row} * job.cols + first;
  const std::uint64_t stride = kTransposed ? job.rows : 1u;
  float x[16];
  LoadSixteen<kTransposed>(job.x + place, stride, x);
  const TensorScale tensor =
      HasTensorScale(d) ? TensorScaleOf(d, job.amax[d.row_scaled ? lane.row : 0]) : TensorScale{};
  const float b = AmaxOfLanes<kLanes, kTransposed>(d, x);
  const BlockNumbers numbers = NumbersFrom(d, b, ScaleBefore(d, b, tensor), tensor);
  const ElementValues<kElement, ElementRounding::kNearestEven, false> values(d, numbers);
  const float factor = job.scales != nullptr ? 1.0f : numbers.scale;
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = values.Of(x[i], 0, 0) * factor;
  if (job.scales != nullptr && lane.stores && lane.part == 0) {
    job.scales[std::uint64_t{lane.segment / kLanes} * job.rows + lane.row] = numbers.scale;
  }
  if (lane.stores) StoreSixteen<kTransposed>(job.out + place, stride, x);
}

// A tile is square, so that it does not matter which of its sides lies along memory. Tile (i, j) of
// memory, whose tiles are (rows, cols), has its scale at scales[i * row_stride + j * col_stride].
constexpr unsigned kTileSide = 128, kTileThreads = 256;
template <class T>
struct TileJob {
  const T* x = nullptr;
  T* out = nullptr;
  std::uint32_t cols = 0;  // elements of a row in memory
  const float* amax = nullptr;
  float* scales = nullptr;
  std::uint32_t row_stride = 0, col_stride = 0;
};

template <class T, FormatId kElement, bool kDivides>
__global__ void __launch_bounds__(kTileThreads) TileValuesKernel(Dialect d, TileJob<T> job) {
  d.element = kElement;  // compile-time constants
  d.rounding = ElementRounding::kNearestEven;
  constexpr unsigned kInRow = kTileSide / 16, kLines = kTileThreads / kInRow;
  constexpr unsigned kPieces = kTileSide / kLines;
  const std::uint64_t row = blockIdx.y * kTileSide + threadIdx.x / kInRow;
  const std::uint64_t place = row * job.cols + blockIdx.x * kTileSide + threadIdx.x % kInRow * 16;
  float x[kPieces][16];
  std::uint32_t amax = 0;
#pragma unroll
  for (unsigned i = 0; i < kPieces; ++i) {
    LoadSixteen<false>(job.x + place + std::uint64_t{i * kLines} * job.cols, 1, x[i]);
    amax = max(amax, AmaxOfSixteen(d, x[i]));
  }
  __shared__ std::uint32_t of_warps[kTileThreads / 32];
  amax = __reduce_max_sync(0xFFFFFFFFu, amax);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = amax;
  __syncthreads();
#pragma unroll
  for (const std::uint32_t of_warp : of_warps) amax = max(amax, of_warp);
  const float b = __uint_as_float(amax);
  const TensorScale tensor = HasTensorScale(d) ? TensorScaleOf(d, *job.amax) : TensorScale{};
  const BlockNumbers numbers = NumbersFrom(d, b, ScaleBefore(d, b, tensor), tensor);
  if (job.scales != nullptr && threadIdx.x == 0) {
    job.scales[blockIdx.y * job.row_stride + blockIdx.x * job.col_stride] = numbers.scale;
  }
  const float factor = job.scales != nullptr ? 1.0f : numbers.scale;
  const ElementValues<kElement, ElementRounding::kNearestEven, kDivides> values(d, numbers);
#pragma unroll
  for (unsigned i = 0; i < kPieces; ++i) {
#pragma unroll
    for (int k = 0; k < 16; ++k) x[i][k] = values.Of(x[i][k], 0, 0) * factor;
    StoreSixteen<false>(job.out + place + std::uint64_t{i * kLines} * job.cols, 1, x[i]);
  }
}

template <class T>
void LaunchTiles(const Dialect& d, const SideJob& job, const ValuesJob& values,
                 cudaStream_t stream) {
  const std::size_t rows = job.transposed ? job.cols : job.rows;  // in memory
  const std::size_t cols = job.transposed ? job.rows : job.cols;
  const auto down = static_cast<std::uint32_t>(rows / kTileSide);
  const auto across = static_cast<std::uint32_t>(cols / kTileSide);
  TileJob<T> own{static_cast<const T*>(job.x), static_cast<T*>(values.values),
                 static_cast<std::uint32_t>(cols), job.side.amax, values.scales};
  // Scales of a transposed matrix lie as the tiles in memory do, others transposed.
  own.row_stride = job.transposed ? across : 1;
  own.col_stride = job.transposed ? 1 : down;
  const auto kernel = Divides(d.factor) ? TileValuesKernel<T, FormatId::kE4M3, true>
                                        : TileValuesKernel<T, FormatId::kE4M3, false>;
  kernel<<<dim3(across, down), kTileThreads, 0, stream>>>(d, own);
  CheckLaunch("the kernel of dialects' values in tiles of 128");
}

// Whether the dialect is that of a kernel here but for its element and block.
bool IsPlain(const Dialect& d) {
  return d.rounding == ElementRounding::kNearestEven && d.adaptive == Adaptive::kNo &&
         d.statistic == BlockStatistic::kAmax;
}

// Blocks down columns: kBlock lines of kAcross neighbours for a thread block, eight neighbours in
// every 32nd line for a thread.
constexpr unsigned kAcross = 64, kColumnThreads = 256;

// The magnitude of a BF16 number, as AmaxOfSixteen takes it.
__device__ std::uint32_t MagnitudeBits(const Dialect& d, std::uint32_t bf16) {
  const std::uint32_t bits = (bf16 & 0x7FFFu) << 16;
  if (bits <= 0x7F800000u) return bits;
  return d.nan == NanRule::kElement ? 0u : 0x7FC00000u;
}

template <FormatId kElement, unsigned kBlock>
__global__ void __launch_bounds__(kColumnThreads)
    ColumnValuesKernel(Dialect d, LanesJob<std::uint16_t> job) {
  d.element = kElement;  // compile-time constants
  d.rounding = ElementRounding::kNearestEven;
  d.block_rows = 1;
  d.block_cols = static_cast<int>(kBlock);
  constexpr unsigned kInLine = kAcross / 8, kLines = kColumnThreads / kInLine;
  constexpr unsigned kPieces = kBlock / kLines, kWarps = kColumnThreads / 32;
  const unsigned place_in_line = threadIdx.x % kInLine * 8, line = threadIdx.x / kInLine;
  const std::uint32_t row = blockIdx.x * kAcross + place_in_line;
  const bool exists = row < job.rows;
  const std::uint64_t place = (std::uint64_t{blockIdx.y} * kBlock + line) * job.rows + row;
  std::uint32_t words[kPieces][4] = {};
  std::uint32_t amax[8] = {};
#pragma unroll
  for (unsigned i = 0; i < kPieces; ++i) {
    if (exists) LoadWords<4>(job.x + place + std::uint64_t{i * kLines} * job.rows, words[i]);
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {
      amax[k] = max(amax[k], MagnitudeBits(d, words[i][k / 2] >> (16 * (k % 2))));
    }
  }
  __shared__ std::uint32_t of_warps[kWarps][kAcross];
  __shared__ float scales[kAcross], factors[kAcross];
#pragma unroll
  for (unsigned k = 0; k < 8; ++k) {
    for (int distance = kInLine; distance < 32; distance *= 2) {
      amax[k] = max(amax[k], __shfl_xor_sync(0xFFFFFFFFu, amax[k], distance));
    }
    if (threadIdx.x % 32 < kInLine) of_warps[threadIdx.x / 32][place_in_line + k] = amax[k];
  }
  __syncthreads();
  const std::uint32_t own = blockIdx.x * kAcross + threadIdx.x;  // of the first kAcross threads
  if (threadIdx.x < kAcross && own < job.rows) {
    std::uint32_t bits = 0;
    for (const auto& of_warp : of_warps) bits = max(bits, of_warp[threadIdx.x]);
    const float b = __uint_as_float(bits);
    const TensorScale tensor =
        HasTensorScale(d) ? TensorScaleOf(d, job.amax[d.row_scaled ? own : 0]) : TensorScale{};
    const BlockNumbers numbers = NumbersFrom(d, b, ScaleBefore(d, b, tensor), tensor);
    scales[threadIdx.x] = numbers.scale;
    factors[threadIdx.x] = numbers.factor;
    if (job.scales != nullptr) {
      job.scales[std::uint64_t{blockIdx.y} * job.rows + own] = numbers.scale;
    }
  }
  __syncthreads();
  if (!exists) return;
#pragma unroll
  for (unsigned k = 0; k < 8; k += 2) {
    const BlockNumbers even{.scale = scales[place_in_line + k],
                            .factor = factors[place_in_line + k]};
    const BlockNumbers odd{.scale = scales[place_in_line + k + 1],
                           .factor = factors[place_in_line + k + 1]};
    const ElementValues<kElement, ElementRounding::kNearestEven, false> of_even(d, even),
        of_odd(d, odd);
    const bool apart = job.scales != nullptr;
    const float left = apart ? 1.0f : even.scale, right = apart ? 1.0f : odd.scale;
#pragma unroll
    for (unsigned i = 0; i < kPieces; ++i) {
      std::uint32_t& pair = words[i][k / 2];
      pair = Bf16Pair(of_even.Of(HalfOf(pair, 0), 0, 0) * left,
                      of_odd.Of(HalfOf(pair, 1), 0, 0) * right);
    }
  }
#pragma unroll
  for (unsigned i = 0; i < kPieces; ++i) {
    StoreWords<4>(job.out + place + std::uint64_t{i * kLines} * job.rows, words[i]);
  }
}

// Whether ColumnValuesKernel takes the matrix, which FitsRegisters.
bool FitsColumns(const Dialect& d, const LanesJob<std::uint16_t>& job) {
  return job.rows % 8 == 0 && IsAligned(job.x) && IsAligned(job.out) &&
         job.cols / static_cast<std::uint32_t>(d.block_cols) <= 65535;
}

template <class T, FormatId kElement, unsigned kLanes>
void Launch(const Dialect& d, const SideJob& job, const ValuesJob& values, cudaStream_t stream) {
  const LanesJob<T> own{static_cast<const T*>(job.x),
                        static_cast<T*>(values.values),
                        static_cast<std::uint32_t>(job.rows),
                        static_cast<std::uint32_t>(job.cols),
                        job.side.amax,
                        values.scales};
  if constexpr (std::is_same_v<T, std::uint16_t>) {
    if (job.transposed && FitsColumns(d, own)) {
      constexpr unsigned kBlock = 16 * kLanes;
      const dim3 blocks(Blocks(own.rows, kAcross), own.cols / kBlock);
      ColumnValuesKernel<kElement, kBlock><<<blocks, kColumnThreads, 0, stream>>>(d, own);
      return CheckLaunch("the kernel of dialects' values down columns");
    }
  }
  const auto kernel = job.transposed ? LaneValuesKernel<T, kElement, kLanes, true>
                                     : LaneValuesKernel<T, kElement, kLanes, false>;
  const std::size_t threads = ThreadsOfLanes<kLanes>(job.transposed, job.rows, job.cols);
  kernel<<<Blocks(threads, kValuesThreads), kValuesThreads, 0, stream>>>(d, own);
  CheckLaunch("the kernel of dialects' values in lanes");
}

template <class T>
bool LaunchIn(const Dialect& d, const SideJob& job, const ValuesJob& values, cudaStream_t stream) {
  if (d.element == FormatId::kE4M3 && d.block_cols == 128) {
    Launch<T, FormatId::kE4M3, 8>(d, job, values, stream);
  } else if (d.element == FormatId::kE0M3 && d.block_cols == 64) {
    Launch<T, FormatId::kE0M3, 4>(d, job, values, stream);
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool LaunchLaneValues(const Dialect& d, const SideJob& job, const ValuesJob& values,
                      cudaStream_t stream) {
  if (!IsPlain(d) || Divides(d.factor) || !FitsRegisters(d, job, values)) return false;
  return job.bf16 ? LaunchIn<std::uint16_t>(d, job, values, stream)
                  : LaunchIn<float>(d, job, values, stream);
}

bool LaunchWholeTiles(const Dialect& d, const SideJob& job, const ValuesJob& values,
                      cudaStream_t stream) {
  const bool is_tile = d.block_rows == static_cast<int>(kTileSide) && d.block_cols == d.block_rows;
  if (!is_tile || d.element != FormatId::kE4M3 || d.row_scaled || !IsPlain(d)) return false;
  if (!FitsRegisters(d, job, values) || !IsAligned(job.x) || !IsAligned(values.values)) {
    return false;
  }
  if (job.rows / kTileSide > 65535 || job.cols / kTileSide > 65535) return false;
  job.bf16 ? LaunchTiles<std::uint16_t>(d, job, values, stream)
           : LaunchTiles<float>(d, job, values, stream);
  return true;
}

}  // namespace fp4lab::cuda
