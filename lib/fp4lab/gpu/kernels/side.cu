#include "fp4lab/dialect/gemm_alpha.h"
#include "fp4lab/gpu/kernels/pack.cuh"
#include "fp4lab/gpu/kernels/side.cuh"

namespace fp4lab::gpu {
namespace {

constexpr unsigned kThreads = 256;

template <class T>
__device__ inline void StoreRounded(bool bf16, T* to, float value) {
  Store(to, bf16 ? RoundToBf16(value) : value);
}

// ---- Folds of columns. The order of rows is part of the result, so one lane takes a column. The
// other warps of its thread block load the next rows meanwhile.

constexpr unsigned kColumns = 32, kLines = 8, kRows = 64;

__device__ inline double Folded(ColumnFold fold, double to, float x) {
  const double value = x;
  if (fold == ColumnFold::kSum) return to + value;
  const double known = isnan(value) ? 0.0 : value;
  return fold == ColumnFold::kSquares ? to + known * known : fmax(to, fabs(known));
}

template <class T>
__global__ void __launch_bounds__(kColumns* kLines)
    FoldColumnsKernel(ColumnFold fold, const T* x, std::size_t rows, std::size_t cols,
                      double* out) {
  __shared__ float tile[kRows][kColumns];
  const std::size_t c = std::size_t{blockIdx.x} * kColumns + threadIdx.x;
  float next[kRows / kLines];
  const auto load = [&](std::size_t first) {
#pragma unroll
    for (unsigned i = 0; i < kRows / kLines; ++i) {
      const std::size_t r = first + i * kLines + threadIdx.y;
      next[i] = r < rows && c < cols ? Load(x + r * cols + c) : 0.0f;
    }
  };
  double result = 0.0;
  load(0);
  for (std::size_t first = 0; first < rows; first += kRows) {
#pragma unroll
    for (unsigned i = 0; i < kRows / kLines; ++i) {
      tile[i * kLines + threadIdx.y][threadIdx.x] = next[i];
    }
    __syncthreads();
    load(first + kRows);
    if (threadIdx.y == 0) {
      const auto count = static_cast<unsigned>(min(std::size_t{kRows}, rows - first));
      for (unsigned r = 0; r < count; ++r) result = Folded(fold, result, tile[r][threadIdx.x]);
    }
    __syncthreads();
  }
  if (threadIdx.y == 0 && c < cols) out[c] = result;
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
void FoldColumns(ColumnFold fold, const T* x, std::size_t rows, std::size_t cols, double* out,
                 cudaStream_t stream) {
  if (cols == 0) return;
  FoldColumnsKernel<<<Blocks(cols, kColumns), dim3(kColumns, kLines), 0, stream>>>(fold, x, rows,
                                                                                   cols, out);
  CheckLaunch("FoldColumns");
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

template void FoldColumns(ColumnFold, const float*, std::size_t, std::size_t, double*,
                          cudaStream_t);
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
template void FoldColumns(ColumnFold, const Bf16*, std::size_t, std::size_t, double*, cudaStream_t);
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
