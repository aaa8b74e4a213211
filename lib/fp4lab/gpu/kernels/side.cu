#include <climits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/dialect/gemm_alpha.h"
#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"
#include "fp4lab/gpu/kernels/side.cuh"

namespace fp4lab::gpu {
namespace {

constexpr unsigned kThreads = 256;

template <class T>
__device__ inline void StoreRounded(bool bf16, T* to, float value) {
  Store(to, bf16 ? RoundToBf16(value) : value);
}

// ---- Folds of columns. The order of rows is part of the result. But additions that round nothing
// have one result in any order. So parts of a column are folded at once, each with what shows
// whether its additions round; only the rows of parts where they do are added one after another.

constexpr unsigned kColumns = 32, kLines = 8;
constexpr std::size_t kPartRows = 256;
constexpr int kNever = INT_MIN;  // of LowestBit: the sum's order counts

template <ColumnFold fold>
__device__ inline double Folded(double to, float x) {
  const double value = x;
  if constexpr (fold == ColumnFold::kSum) return to + value;
  const double known = isnan(value) ? 0.0 : value;
  if constexpr (fold == ColumnFold::kSquares) return to + known * known;
  return fmax(to, fabs(known));
}

// The exponent of the lowest bit of x that is set; INT_MAX of 0, kNever of infinity and NaN.
__device__ inline int LowestBit(float x) {
  const unsigned magnitude = __float_as_uint(x) & 0x7FFFFFFFu, exponent = magnitude >> 23;
  if (magnitude == 0) return INT_MAX;
  if (exponent == 255) return kNever;
  const unsigned significand = (magnitude & 0x7FFFFFu) | (exponent == 0 ? 0u : 0x800000u);
  return static_cast<int>(exponent == 0 ? 1u : exponent) - 150 +
         __ffs(static_cast<int>(significand)) - 1;
}

// Adds x to a part of a column.
template <ColumnFold fold>
__device__ inline void FoldInto(float x, ColumnPart* part) {
  part->fold = Folded<fold>(part->fold, x);
  if constexpr (fold == ColumnFold::kLargest) return;
  if (fold == ColumnFold::kSquares && isnan(x)) return;
  const int bit = LowestBit(x);
  const bool doubles = fold == ColumnFold::kSquares && bit != INT_MAX && bit != kNever;
  part->lowest = min(part->lowest, doubles ? 2 * bit : bit);
  if constexpr (fold == ColumnFold::kSum) part->size += fabsf(x);
}

template <ColumnFold fold>
__device__ inline void Join(const ColumnPart& from, ColumnPart* to) {
  to->fold = fold == ColumnFold::kLargest ? fmax(to->fold, from.fold) : to->fold + from.fold;
  to->size += from.size;
  to->lowest = min(to->lowest, from.lowest);
}

// Whether `sum` and a part's numbers can be added in any order without a rounding: all sums are
// multiples of the lowest bit, and `bound`, which none exceeds, has at most 53 bits above it. The
// size is itself rounded, by less than a hundredth.
template <ColumnFold fold>
__device__ inline bool IsExact(double sum, const ColumnPart& part) {
  if (part.lowest == INT_MAX) return true;
  const double size = fold == ColumnFold::kSquares ? part.fold : double{part.size};
  const double bound = fabs(sum) + 1.01 * size;
  if (part.lowest == kNever || !isfinite(bound)) return false;
  const int unit = ilogb(bound) - 52;
  const double units = scalbn(sum, -unit);
  return part.lowest >= unit && units == rint(units);
}

// Whether that holds for the column of every lane of a warp.
template <ColumnFold fold>
__device__ inline bool AllExact(double sum, const ColumnPart& part) {
  return fold == ColumnFold::kLargest || __all_sync(kAllLanes, IsExact<fold>(sum, part));
}

// Joins the parts of a thread block's lines; line 0 gets the result.
template <ColumnFold fold>
__device__ inline void JoinLines(ColumnPart* part) {
  __shared__ ColumnPart parts[kLines][kColumns];
  parts[threadIdx.y][threadIdx.x] = *part;
  __syncthreads();
  if (threadIdx.y > 0) return;
  for (unsigned line = 1; line < kLines; ++line) Join<fold>(parts[line][threadIdx.x], part);
}

// parts (parts of kPartRows rows, cols)
template <ColumnFold fold, class T>
__global__ void __launch_bounds__(kColumns* kLines)
    FoldPartsKernel(const T* x, std::size_t rows, std::size_t cols, ColumnPart* parts) {
  const std::size_t c = std::size_t{blockIdx.x} * kColumns + threadIdx.x;
  const std::size_t first = blockIdx.y * kPartRows + threadIdx.y;
  ColumnPart part;
  if (c < cols) {
#pragma unroll 8
    for (unsigned i = 0; i < kPartRows / kLines; ++i) {
      const std::size_t r = first + i * kLines;
      if (r < rows) FoldInto<fold>(Load(x + r * cols + c), &part);
    }
  }
  JoinLines<fold>(&part);
  if (threadIdx.y == 0 && c < cols) parts[blockIdx.y * cols + c] = part;
}

// A thread block's columns, a lane of its first warp for each. Parts that are exact in all columns
// are added whole. Of the others, all warps load the rows, which the first one adds in order.
template <ColumnFold fold, class T>
__device__ inline double FoldInOrder(const ColumnPart* parts, std::size_t count, const T* x,
                                     std::size_t rows, std::size_t cols, std::size_t c) {
  __shared__ float tile[kPartRows][kColumns];
  __shared__ bool in_order;
  float next[kPartRows / kLines];
  const auto load = [&](std::size_t first) {
#pragma unroll
    for (unsigned i = 0; i < kPartRows / kLines; ++i) {
      const std::size_t r = first + i * kLines + threadIdx.y;
      next[i] = r < rows && c < cols ? Load(x + r * cols + c) : 0.0f;
    }
  };
  bool is_loaded = false;  // rows of the next part, as one in order tends to follow another
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = i * kPartRows;
    if (threadIdx.y == 0) {
      const ColumnPart part = c < cols ? parts[i * cols + c] : ColumnPart{};
      const bool exact = AllExact<fold>(sum, part);
      if (exact) sum += part.fold;
      if (threadIdx.x == 0) in_order = !exact;
    }
    __syncthreads();
    const bool takes_rows = in_order;
    if (takes_rows) {
      if (!is_loaded) load(first);
#pragma unroll
      for (unsigned k = 0; k < kPartRows / kLines; ++k) {
        tile[k * kLines + threadIdx.y][threadIdx.x] = next[k];
      }
      load(first + kPartRows);
    }
    is_loaded = takes_rows;
    __syncthreads();  // in_order may change, and the tile is whole
    if (takes_rows && threadIdx.y == 0) {
      const auto here = static_cast<unsigned>(min(kPartRows, rows - first));
#pragma unroll 16
      for (unsigned r = 0; r < here; ++r) sum = Folded<fold>(sum, tile[r][threadIdx.x]);
    }
  }
  return sum;
}

template <ColumnFold fold, class T>
__global__ void __launch_bounds__(kColumns* kLines)
    FoldColumnsKernel(const ColumnPart* parts, std::size_t count, const T* x, std::size_t rows,
                      std::size_t cols, double* out) {
  __shared__ bool in_order;
  const std::size_t c = std::size_t{blockIdx.x} * kColumns + threadIdx.x;
  ColumnPart whole;
  for (std::size_t i = threadIdx.y; i < count && c < cols; i += kLines) {
    Join<fold>(parts[i * cols + c], &whole);
  }
  JoinLines<fold>(&whole);
  if (threadIdx.y == 0) {
    const bool exact = AllExact<fold>(0.0, whole);
    if (threadIdx.x == 0) in_order = !exact;
  }
  __syncthreads();
  double result = whole.fold;
  if (in_order) result = FoldInOrder<fold>(parts, count, x, rows, cols, c);
  if (threadIdx.y == 0 && c < cols) out[c] = result;
}

template <ColumnFold fold, class T>
void Fold(const T* x, std::size_t rows, std::size_t cols, DeviceArray<ColumnPart>* memory,
          double* out, cudaStream_t stream) {
  const std::size_t count = DivideUp(rows, kPartRows);
  ColumnPart* const parts = Reserve(memory, count * cols);
  const dim3 threads(kColumns, kLines);
  const unsigned blocks = Blocks(cols, kColumns);
  if (count > 0) {
    FoldPartsKernel<fold>
        <<<dim3(blocks, static_cast<unsigned>(count)), threads, 0, stream>>>(x, rows, cols, parts);
    CheckLaunch("FoldColumns");
  }
  FoldColumnsKernel<fold><<<blocks, threads, 0, stream>>>(parts, count, x, rows, cols, out);
  CheckLaunch("FoldColumns");
}

__global__ void RoundSumsKernel(const double* sums, std::size_t cols, float* z) {
  const std::size_t c = ThreadIndex();
  if (c < cols) z[c] = static_cast<float>(sums[c]);
}

template <class T>
__global__ void MeanKernel(const double* sums, bool bf16, double rows, std::size_t cols, T* mean) {
  const std::size_t c = ThreadIndex();
  if (c < cols) StoreRounded(bf16, mean + c, static_cast<float>(sums[c] / rows));
}

template <class T>
__global__ void RestKernel(bool bf16, const T* x, const T* mean, std::size_t size, std::size_t cols,
                           T* rest) {
  const std::size_t i = ThreadIndex();
  if (i < size) StoreRounded(bf16, rest + i, Load(x + i) - Load(mean + i % cols));
}

// ---- Hot channels

__global__ void FlagHotKernel(const double* statistics, std::size_t channels, std::size_t count,
                              std::uint32_t* is_hot) {
  const std::size_t c = ThreadIndex();
  if (c >= channels) return;
  const double own = statistics[c];
  std::size_t before = 0;
  for (std::size_t i = 0; i < channels; ++i) {
    const double other = statistics[i];
    before += other > own || (other == own && i < c);
  }
  is_hot[c] = before < count;
}

__global__ void ListHotKernel(const std::uint32_t* is_hot, std::size_t channels,
                              std::uint32_t* hot) {
  const std::size_t c = ThreadIndex();
  if (c >= channels || is_hot[c] == 0) return;
  std::size_t place = 0;
  for (std::size_t i = 0; i < c; ++i) place += is_hot[i];
  hot[place] = static_cast<std::uint32_t>(c);
}

template <class T>
__global__ void GatherColumnsKernel(HotList hot, const T* x, std::size_t size, std::size_t cols,
                                    T* to) {
  const std::size_t i = ThreadIndex(), row = i / hot.padded, h = i % hot.padded;
  if (i >= size) return;
  to[i] = h < hot.count ? x[row * cols + hot.channels[h]] : T(0.0f);
}

template <class T>
__global__ void GatherRowsKernel(HotList hot, const T* x, std::size_t cols, T* to) {
  const std::size_t i = ThreadIndex(), h = i / cols, c = i % cols;
  if (h >= hot.padded) return;
  to[i] = h < hot.count ? x[hot.channels[h] * cols + c] : T(0.0f);
}

template <class T>
__global__ void ClearColumnsKernel(const std::uint32_t* is_hot, const T* x, std::size_t size,
                                   std::size_t cols, T* rest) {
  const std::size_t i = ThreadIndex();
  if (i < size) rest[i] = is_hot[i % cols] != 0 ? T(0.0f) : x[i];
}

// How an operand's values are decoded: by one scale, or by scales of rows.
struct Decoding {
  Dialect dialect;
  bool decoded = false;  // they are
  const std::uint32_t* amax = nullptr;
  const float* row_decode = nullptr;
  bool turned = false;

  __device__ float Of(std::size_t row, std::size_t channel) const {
    if (decoded) return 1.0f;
    if (row_decode != nullptr) return row_decode[turned ? channel : row];
    return OperandDecode(dialect, HasTensorScale(dialect) ? __uint_as_float(*amax) : 0.0f);
  }
};

template <class T>
__global__ void GatherResidualKernel(HotList hot, bool bf16, const T* x, const T* values,
                                     Decoding decoding, std::size_t size, std::size_t cols,
                                     T* side) {
  const std::size_t i = ThreadIndex(), row = i / hot.padded, h = i % hot.padded;
  if (i >= size) return;
  float residual = 0.0f;
  if (h < hot.count) {
    const std::size_t channel = hot.channels[h], place = row * cols + channel;
    residual = Load(x + place) - Load(values + place) * decoding.Of(row, channel);
  }
  StoreRounded(bf16, side + i, residual);
}

// ---- What is added to products

__global__ void AddRowKernel(const float* row, std::size_t size, std::size_t cols, float* c) {
  const std::size_t i = ThreadIndex();
  if (i < size) c[i] += row[i % cols];
}

template <class L, class R>
__global__ void AddOuterKernel(const L* left, const R* right, std::size_t size, std::size_t cols,
                               float* c) {
  const std::size_t i = ThreadIndex();
  if (i < size) c[i] += Load(left + i / cols) * Load(right + i % cols);
}

__global__ void AddToHotKernel(HotList hot, const float* product, std::size_t n, bool to_columns,
                               std::size_t channels, float* c) {
  const std::size_t i = ThreadIndex(), h = i / n, j = i % n;
  if (h >= hot.count) return;
  const std::size_t channel = hot.channels[h];
  c[to_columns ? j * channels + channel : channel * n + j] += product[i];
}

// Launches a kernel with a thread for each of `size` elements.
template <class... Parameters, class... Arguments>
void Launch(void (*kernel)(Parameters...), std::size_t size, cudaStream_t stream,
            const Arguments&... arguments) {
  if (size == 0) return;
  kernel<<<Blocks(size, kThreads), kThreads, 0, stream>>>(arguments...);
  CheckLaunch("side terms");
}

}  // namespace

template <class T>
void FoldColumns(ColumnFold fold, const T* x, std::size_t rows, std::size_t cols,
                 DeviceArray<ColumnPart>* memory, double* out, cudaStream_t stream) {
  if (cols == 0) return;
  switch (fold) {
    case ColumnFold::kSum:
      return Fold<ColumnFold::kSum>(x, rows, cols, memory, out, stream);
    case ColumnFold::kSquares:
      return Fold<ColumnFold::kSquares>(x, rows, cols, memory, out, stream);
    case ColumnFold::kLargest:
      return Fold<ColumnFold::kLargest>(x, rows, cols, memory, out, stream);
  }
}

void RoundSums(const double* sums, std::size_t cols, float* z, cudaStream_t stream) {
  Launch(RoundSumsKernel, cols, stream, sums, cols, z);
}

template <class T>
void TakeMean(const double* sums, bool bf16, const T* x, std::size_t rows, std::size_t cols,
              T* mean, T* rest, cudaStream_t stream) {
  Launch(MeanKernel<T>, cols, stream, sums, bf16, static_cast<double>(rows), cols, mean);
  Launch(RestKernel<T>, rows * cols, stream, bf16, x, mean, rows * cols, cols, rest);
}

void ChooseHot(const double* statistics, std::size_t channels, std::size_t count,
               std::uint32_t* is_hot, std::uint32_t* hot, cudaStream_t stream) {
  Expects(count <= channels, "ChooseHot: no more hot channels than channels");
  Launch(FlagHotKernel, channels, stream, statistics, channels, count, is_hot);
  Launch(ListHotKernel, channels, stream, is_hot, channels, hot);
}

template <class T>
void GatherColumns(const HotList& hot, const T* x, std::size_t rows, std::size_t cols, T* to,
                   cudaStream_t stream) {
  Launch(GatherColumnsKernel<T>, rows * hot.padded, stream, hot, x, rows * hot.padded, cols, to);
}

template <class T>
void GatherRows(const HotList& hot, const T* x, std::size_t cols, T* to, cudaStream_t stream) {
  Launch(GatherRowsKernel<T>, hot.padded * cols, stream, hot, x, cols, to);
}

template <class T>
void ClearColumns(const std::uint32_t* is_hot, const T* x, std::size_t rows, std::size_t cols,
                  T* rest, cudaStream_t stream) {
  Launch(ClearColumnsKernel<T>, rows * cols, stream, is_hot, x, rows * cols, cols, rest);
}

template <class T>
void GatherResidual(const HotList& hot, bool bf16, const T* x, const MadeOperand<T>& made,
                    std::size_t rows, std::size_t cols, T* side, cudaStream_t stream) {
  const bool decoded = made.dialect == nullptr;
  const Decoding decoding{decoded ? Dialect{} : *made.dialect, decoded, made.amax, made.row_decode,
                          made.turned};
  Launch(GatherResidualKernel<T>, rows * hot.padded, stream, hot, bf16, x, made.values, decoding,
         rows * hot.padded, cols, side);
}

void AddRow(const float* row, std::size_t rows, std::size_t cols, float* c, cudaStream_t stream) {
  Launch(AddRowKernel, rows * cols, stream, row, rows * cols, cols, c);
}

template <class L, class R>
void AddOuter(const L* left, const R* right, std::size_t rows, std::size_t cols, float* c,
              cudaStream_t stream) {
  Launch(AddOuterKernel<L, R>, rows * cols, stream, left, right, rows * cols, cols, c);
}

void AddToHot(const HotList& hot, const float* product, std::size_t n, bool to_columns,
              std::size_t channels, float* c, cudaStream_t stream) {
  Launch(AddToHotKernel, hot.count * n, stream, hot, product, n, to_columns, channels, c);
}

template void FoldColumns(ColumnFold, const float*, std::size_t, std::size_t,
                          DeviceArray<ColumnPart>*, double*, cudaStream_t);
template void TakeMean(const double*, bool, const float*, std::size_t, std::size_t, float*, float*,
                       cudaStream_t);
template void GatherColumns(const HotList&, const float*, std::size_t, std::size_t, float*,
                            cudaStream_t);
template void GatherRows(const HotList&, const float*, std::size_t, float*, cudaStream_t);
template void ClearColumns(const std::uint32_t*, const float*, std::size_t, std::size_t, float*,
                           cudaStream_t);
template void GatherResidual(const HotList&, bool, const float*, const MadeOperand<float>&,
                             std::size_t, std::size_t, float*, cudaStream_t);
template void AddOuter(const float*, const float*, std::size_t, std::size_t, float*, cudaStream_t);
template void FoldColumns(ColumnFold, const Bf16*, std::size_t, std::size_t,
                          DeviceArray<ColumnPart>*, double*, cudaStream_t);
template void TakeMean(const double*, bool, const Bf16*, std::size_t, std::size_t, Bf16*, Bf16*,
                       cudaStream_t);
template void GatherColumns(const HotList&, const Bf16*, std::size_t, std::size_t, Bf16*,
                            cudaStream_t);
template void GatherRows(const HotList&, const Bf16*, std::size_t, Bf16*, cudaStream_t);
template void ClearColumns(const std::uint32_t*, const Bf16*, std::size_t, std::size_t, Bf16*,
                           cudaStream_t);
template void GatherResidual(const HotList&, bool, const Bf16*, const MadeOperand<Bf16>&,
                             std::size_t, std::size_t, Bf16*, cudaStream_t);
template void AddOuter(const Bf16*, const float*, std::size_t, std::size_t, float*, cudaStream_t);
template void AddOuter(const float*, const Bf16*, std::size_t, std::size_t, float*, cudaStream_t);

}  // namespace fp4lab::gpu
