#include "fp4lab/dialect/gemm_alpha.h"
#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/kernels/pack.cuh"
#include "fp4lab/gpu/quantize/dialect_operand.cuh"

namespace fp4lab::gpu {
namespace {

constexpr unsigned kThreads = 256;

// ---- Amax of columns: a thread block covers kColumns neighbouring columns, kLines rows at a time

constexpr unsigned kColumns = 32, kLines = 8;
constexpr std::size_t kRowsOfBlock = 256;

template <class T>
__global__ void __launch_bounds__(kColumns* kLines)
    ColumnAmaxKernel(const T* x, std::size_t rows, std::size_t cols, bool keeps_nan,
                     std::uint32_t* amax) {
  const std::size_t c = std::size_t{blockIdx.x} * kColumns + threadIdx.x;
  const std::size_t first = blockIdx.y * kRowsOfBlock;
  const std::size_t last = min(first + kRowsOfBlock, rows);
  std::uint32_t largest = 0;
  for (std::size_t r = first + threadIdx.y; c < cols && r < last; r += kLines) {
    const std::uint32_t magnitude = __float_as_uint(Load(x + r * cols + c)) & 0x7FFFFFFFu;
    const bool nan = magnitude > 0x7F800000u;
    if (!nan) largest = max(largest, magnitude);
    if (nan && keeps_nan) largest = 0x7FC00000u;  // a NaN, above Inf as an integer
  }
  __shared__ std::uint32_t of_lines[kLines][kColumns];
  of_lines[threadIdx.y][threadIdx.x] = largest;
  __syncthreads();
  if (threadIdx.y != 0 || c >= cols) return;
  for (unsigned i = 1; i < kLines; ++i) largest = max(largest, of_lines[i][threadIdx.x]);
  if (largest != 0) atomicMax(amax + c, largest);
}

template <class T>
void MeasureColumns(const T* x, std::size_t rows, std::size_t cols, bool keeps_nan, float* amax,
                    cudaStream_t stream) {
  Check(cudaMemsetAsync(amax, 0, cols * sizeof(float), stream), "memset");
  if (rows == 0 || cols == 0) return;
  const dim3 blocks(Blocks(cols, kColumns), Blocks(rows, kRowsOfBlock));
  Expects(blocks.y <= 65535, "fewer than 2^24 rows");
  ColumnAmaxKernel<<<blocks, dim3(kColumns, kLines), 0, stream>>>(
      x, rows, cols, keeps_nan, reinterpret_cast<std::uint32_t*>(amax));
  CheckLaunch("MeasureTensorAmaxes");
}

__global__ void DecodeKernel(Dialect d, const float* amax, std::size_t count, float* decode) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) decode[i] = OperandDecode(d, amax[i]);
}

// A thread has kWidth neighbours of a row. `has_dialect`: d decodes, too.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    DecodeValuesKernel(Dialect d, bool has_dialect, bool bf16, const std::uint32_t* amax,
                       const float* row_decode, BlockScales scales, std::uint32_t pieces,
                       std::uint32_t in_row, const T* values, T* out) {
  const std::uint32_t piece = blockIdx.x * kThreads + threadIdx.x;
  if (piece >= pieces) return;
  const std::uint32_t row = piece / in_row, column = piece % in_row * kWidth;
  float factor = 1.0f;
  if (has_dialect) {
    const float of_tensor = HasTensorScale(d) && !d.row_scaled ? __uint_as_float(*amax) : 0.0f;
    factor = row_decode != nullptr ? row_decode[row] : OperandDecode(d, of_tensor);
  }
  float scale = 1.0f;  // blocks are multiples of kWidth
  if (scales.scales != nullptr) {
    const std::uint32_t group = row / static_cast<std::uint32_t>(scales.rows);
    const std::uint32_t block = column / static_cast<std::uint32_t>(scales.block);
    scale = scales.scales[group * scales.row_stride + block * scales.block_stride];
  }
  const std::size_t first = std::size_t{piece} * kWidth;
  const auto own = LoadPack<kWidth>(values + first);
  float decoded[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float value = Load(&own.x[i]) * scale * factor;
    decoded[i] = bf16 ? RoundToBf16(value) : value;
  }
  StorePack<kWidth>(out + first, decoded);
}

// One operand of the GEMM whose alpha is computed. `counts`: whether the operand contributes a
// factor to alpha (a tensor scale or a prescale).
struct AlphaSide {
  Dialect dialect;
  bool counts = false;
  const std::uint32_t* amax = nullptr;
};

__device__ float AmaxOf(const AlphaSide& side) {
  return HasTensorScale(side.dialect) ? __uint_as_float(*side.amax) : 0.0f;
}

__global__ void DialectAlphaKernel(AlphaSide a, AlphaSide b, float* to) {
  float alpha = 1.0f;
  if (a.counts && b.counts) {
    alpha = GemmAlpha(a.dialect, AmaxOf(a), b.dialect, AmaxOf(b));
  } else if (a.counts) {
    alpha = OperandDecode(a.dialect, AmaxOf(a));
  } else if (b.counts) {
    alpha = OperandDecode(b.dialect, AmaxOf(b));
  }
  *to = alpha;
}

// One thread block per row.
template <class D>
__global__ void __launch_bounds__(kThreads)
    ScaleRowsKernel(const float* product, std::size_t cols, const float* row_decode,
                    const float* column_decode, const float* c, D* d) {
  const std::size_t row = blockIdx.x;
  const float of_row = row_decode != nullptr ? row_decode[row] : 1.0f;
  for (std::size_t j = threadIdx.x; j < cols; j += kThreads) {
    const std::size_t i = row * cols + j;
    float y = product[i];
    if (row_decode != nullptr) y *= of_row;
    if (column_decode != nullptr) y *= column_decode[j];
    if (c != nullptr) y = c[i] + y;
    Store(d + i, y);
  }
}

}  // namespace

template <class T>
void MeasureTensorAmaxes(const Dialect& dialect, const T* x, std::size_t rows, std::size_t cols,
                         bool along_rows, float* amax, cudaStream_t stream) {
  const bool keeps_nan = dialect.nan == NanRule::kTensor;
  if (!dialect.row_scaled) {
    cuda::Amax(MatrixOf(x, rows, cols), amax, keeps_nan, stream);
  } else if (!along_rows) {
    cuda::RowAmax(MatrixOf(x, rows, cols), amax, keeps_nan, stream);
  } else {
    MeasureColumns(x, rows, cols, keeps_nan, amax, stream);
  }
}

void DecodeRows(const Dialect& dialect, const float* amax, std::size_t count, float* decode,
                cudaStream_t stream) {
  if (count == 0) return;
  DecodeKernel<<<Blocks(count, kThreads), kThreads, 0, stream>>>(dialect, amax, count, decode);
  CheckLaunch("DecodeRows");
}

template <class T>
void DecodeValues(const std::optional<Dialect>& dialect, bool bf16, const std::uint32_t* amax,
                  const float* row_decode, const BlockScales& scales, std::size_t rows,
                  std::size_t cols, const T* values, T* out, cudaStream_t stream) {
  if (rows == 0 || cols == 0) return;
  if (!dialect && scales.scales == nullptr && values == out) return;
  const auto launch = [&]<int kWidth>() {
    const std::size_t pieces = rows * cols / kWidth;
    Expects(pieces < std::size_t{1} << 32, "DecodeValues: fewer than 2^32 values");
    DecodeValuesKernel<kWidth><<<Blocks(pieces, kThreads), kThreads, 0, stream>>>(
        dialect.value_or(Dialect{}), dialect.has_value(), bf16, amax, row_decode, scales,
        static_cast<std::uint32_t>(pieces), static_cast<std::uint32_t>(cols / kWidth), values, out);
  };
  constexpr int kWide = 8;
  cols % kWide == 0 && scales.block % kWide == 0 ? launch.template operator()<kWide>()
                                                 : launch.template operator()<1>();
  CheckLaunch("DecodeValues");
}

void WriteAlpha(const DialectAlphaJob& job, cudaStream_t stream) {
  const auto side = [](const std::optional<Dialect>& dialect, const std::uint32_t* amax) {
    return AlphaSide{dialect.value_or(Dialect{}), dialect.has_value(), amax};
  };
  DialectAlphaKernel<<<1, 1, 0, stream>>>(side(job.a, job.amax_a), side(job.b, job.amax_b), job.to);
  CheckLaunch("WriteAlpha");
}

template <class D>
void ScaleRows(const float* product, std::size_t rows, std::size_t cols, const float* row_decode,
               const float* column_decode, const float* c, D* d, cudaStream_t stream) {
  if (rows == 0 || cols == 0) return;
  ScaleRowsKernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(product, cols, row_decode,
                                                                        column_decode, c, d);
  CheckLaunch("ScaleRows");
}

template void MeasureTensorAmaxes(const Dialect&, const float*, std::size_t, std::size_t, bool,
                                  float*, cudaStream_t);
template void MeasureTensorAmaxes(const Dialect&, const Bf16*, std::size_t, std::size_t, bool,
                                  float*, cudaStream_t);
template void DecodeValues(const std::optional<Dialect>&, bool, const std::uint32_t*, const float*,
                           const BlockScales&, std::size_t, std::size_t, const float*, float*,
                           cudaStream_t);
template void DecodeValues(const std::optional<Dialect>&, bool, const std::uint32_t*, const float*,
                           const BlockScales&, std::size_t, std::size_t, const Bf16*, Bf16*,
                           cudaStream_t);
template void ScaleRows(const float*, std::size_t, std::size_t, const float*, const float*,
                        const float*, float*, cudaStream_t);
template void ScaleRows(const float*, std::size_t, std::size_t, const float*, const float*,
                        const float*, Bf16*, cudaStream_t);

}  // namespace fp4lab::gpu
