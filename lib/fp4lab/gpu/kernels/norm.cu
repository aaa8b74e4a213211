// RMSNorm, forward and backward, in the order of nn/rmsnorm.cc: a half-warp is the 16 virtual
// lanes.
#include <algorithm>
#include <type_traits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/cuda/device/shared_memory.cuh"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/kernels/math.cuh"
#include "fp4lab/gpu/quantize/hadamard_device.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / kHalfWarp;
// Elements of a lane, at most, for two thread blocks per multiprocessor in the backward pass.
constexpr int kMostOfTwoBlocks = 32;

// Half-warps beyond the last row repeat that row, so that no lane is missing from a shuffle.
__device__ inline std::size_t Row(std::size_t rows) {
  const std::size_t row = std::size_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kHalfWarp;
  return row < rows ? row : rows - 1;
}

// A lane's elements of a row: lane, lane + 16, ... kPer > 0: the lane has kPer elements and keeps
// them in registers; kPer = 0: the lane has any number of elements and reads them from memory.
template <int kPer>
struct LaneOfRow {
  float held[kPer > 0 ? kPer : 1];
  const float* row;

  __device__ LaneOfRow(const float* from, unsigned lane) : row(from) {
    if constexpr (kPer > 0) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) held[i] = from[lane + i * kHalfWarp];
    }
  }
  __device__ float At(int i, std::size_t column) const { return kPer > 0 ? held[i] : row[column]; }
};

// Calls use(i, column) for a lane's columns from `first` to `end`; for all its columns if kPer > 0.
template <int kPer, class Use>
__device__ inline void ForLane(unsigned lane, std::size_t first, std::size_t end, Use&& use) {
  if constexpr (kPer > 0) {
#pragma unroll
    for (int i = 0; i < kPer; ++i) use(i, std::size_t{lane} + i * kHalfWarp);
  } else {
#pragma unroll 8
    for (std::size_t c = first + lane; c < end; c += kHalfWarp) use(0, c);
  }
}

// The amaxes that a norm's kernel measures: none, AmaxPlaces::plain, or both places.
enum class Measured { kNothing, kPlain, kBoth };

// Measures the 16 rows that a thread block has written, read again from the cache: a thread two
// columns at a time.
template <Measured kMeasured>
__device__ inline void MeasureRows(const Bf16* rows, std::size_t cols, const AmaxPlaces& places) {
  float before = 0.0f, after = 0.0f;
  for (std::size_t c = 2 * threadIdx.x; c < cols; c += 2 * kThreads) {
    std::uint32_t pairs[kAmaxRows];
    LoadPairs<kAmaxRows>(rows + c, cols, pairs);
    MeasurePairs<kMeasured == Measured::kBoth>(pairs, &before, &after);
  }
  cuda::StoreBlockAmax<kThreads>(before, places.plain);
  if (kMeasured == Measured::kBoth) cuda::StoreBlockAmax<kThreads>(after, places.transformed);
}

template <class T>
Measured MeasuredOf(const AmaxPlaces& amax, std::size_t rows, std::size_t cols) {
  if (amax.plain == nullptr) return Measured::kNothing;
  Expects((std::is_same_v<T, Bf16> && rows % kAmaxRows == 0 && cols % 2 == 0),
          "AmaxPlaces: BF16, whole groups of 16 rows, pairs of columns");
  return amax.transformed == nullptr ? Measured::kPlain : Measured::kBoth;
}

// launch(std::integral_constant<Measured, ...>())
template <class T, class Launch>
void WithMeasured(Measured measured, Launch&& launch) {
  if constexpr (std::is_same_v<T, Bf16>) {
    if (measured == Measured::kPlain) {
      return launch(std::integral_constant<Measured, Measured::kPlain>());
    }
    if (measured == Measured::kBoth) {
      return launch(std::integral_constant<Measured, Measured::kBoth>());
    }
  }
  launch(std::integral_constant<Measured, Measured::kNothing>());
}

// One half-warp per row.
template <class T, int kPer, Measured kMeasured>
__global__ void __launch_bounds__(kThreads)
    RmsNormKernel(const float* __restrict__ x, const float* __restrict__ gain, float epsilon,
                  std::size_t rows, std::size_t cols, T* __restrict__ y,
                  float* __restrict__ inverse_rms, AmaxPlaces places) {
  const std::size_t row = Row(rows);
  const unsigned lane = threadIdx.x % kHalfWarp;
  const LaneOfRow<kPer> in(x + row * cols, lane);
  float squares = 0.0f;
  ForLane<kPer>(lane, 0, cols,
                [&](int i, std::size_t c) { squares = squares + in.At(i, c) * in.At(i, c); });
  squares = SumOfLanes(squares);
  const float r = 1.0f / sqrtf(squares / static_cast<float>(cols) + epsilon);
  if (lane == 0) inverse_rms[row] = r;
  ForLane<kPer>(lane, 0, cols, [&](int i, std::size_t c) {
    Store(y + row * cols + c, (in.At(i, c) * r) * gain[c]);
  });
  if constexpr (kMeasured != Measured::kNothing) {
    __syncthreads();
    MeasureRows<kMeasured>(y + std::size_t{blockIdx.x} * kRowsPerBlock * cols, cols, places);
  }
}

// A load that the compiler does not move.
__device__ inline float LoadNow(const float* from) {
  float x;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
  return x;
}

// Calls use(i, column, row[column]) for a lane's columns as ForLane does, with 0 for row[column]
// unless kReads. The loads are issued 16 at a time, since no load can pass a store.
template <int kPer, bool kReads, class Use>
__device__ inline void ForLaneWith(const float* row, unsigned lane, std::size_t first,
                                   std::size_t end, Use&& use) {
  if constexpr (kPer > 0) {
    constexpr int kBatch = kPer < 16 ? kPer : 16;
#pragma unroll
    for (int batch = 0; batch < kPer; batch += kBatch) {
      float there[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        there[i] = kReads ? LoadNow(row + lane + (batch + i) * kHalfWarp) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        use(batch + i, std::size_t{lane} + (batch + i) * kHalfWarp, there[i]);
      }
    }
  } else {
    for (std::size_t c = first + lane; c < end; c += kHalfWarp) {
      use(0, c, kReads ? row[c] : 0.0f);
    }
  }
}

// The sum and then 16 products of a column, `stride` apart.
__device__ inline float WithProducts(float sum, const float* products, std::size_t stride) {
#pragma unroll
  for (int i = 0; i < kRowsPerBlock; ++i) sum = sum + products[i * stride];
  return sum;
}

// An element's dx, and its part of the gradient of its column's gain.
struct NormGradient {
  float dx, of_gain;
};
__device__ inline NormGradient GradientOfNorm(float x, float g, float gain, float r, float mean) {
  const float n = x * r;
  return {r * (g * gain - n * mean), g * n};
}

constexpr std::size_t kWindow = 768;  // columns whose products are in shared memory at a time

// One half-warp per row, 16 rows at a time, kGainChunk rows per thread block. The products of the
// gain's gradient go through shared memory, where each thread owns columns and adds a column over
// the chunk's rows in ascending order.
template <class T, int kPer, bool kAccumulate, Measured kMeasured>
__global__ void __launch_bounds__(kThreads, kPer > kMostOfTwoBlocks ? 1 : 2)
    RmsNormBackwardKernel(const float* __restrict__ x, const float* __restrict__ gain,
                          const float* __restrict__ inverse_rms, const float* __restrict__ dy,
                          std::size_t rows, std::size_t cols, float* __restrict__ dx,
                          T* __restrict__ dx_rounded, float* __restrict__ gain_partials,
                          AmaxPlaces places) {
  extern __shared__ float products[];  // (16, at most kWindow)
  const unsigned lane = threadIdx.x % kHalfWarp, own = threadIdx.x / kHalfWarp;
  const std::size_t begin = std::size_t{blockIdx.x} * kGainChunk;
  for (std::size_t first = begin; first < begin + kGainChunk && first < rows;
       first += kRowsPerBlock) {
    const bool inside = first + own < rows;
    const std::size_t row = inside ? first + own : rows - 1;
    float* const to = dx + row * cols;
    const LaneOfRow<kPer> in(x + row * cols, lane), grad(dy + row * cols, lane);
    const float r = inverse_rms[row];
    float dot = 0.0f;
    ForLane<kPer>(lane, 0, cols, [&](int i, std::size_t c) {
      dot = dot + (grad.At(i, c) * gain[c]) * (in.At(i, c) * r);
    });
    const float mean = SumOfLanes(dot) / static_cast<float>(cols);
    for (std::size_t window = 0; window < cols; window += kWindow) {
      const std::size_t end = window + kWindow < cols ? window + kWindow : cols;
      float* const products_of_row = products + own * (end - window);
      if (inside) {
        ForLaneWith<kPer, kAccumulate>(
            to, lane, window, end, [&](int i, std::size_t c, float before) {
              const NormGradient d = GradientOfNorm(in.At(i, c), grad.At(i, c), gain[c], r, mean);
              products_of_row[c - window] = d.of_gain;
              const float sum = kAccumulate ? before + d.dx : d.dx;
              to[c] = sum;
              if (std::is_same_v<T, Bf16> || dx_rounded != nullptr)
                Store(dx_rounded + row * cols + c, sum);
            });
      } else {
        ForLane<kPer>(lane, window, end,
                      [&](int, std::size_t c) { products_of_row[c - window] = 0.0f; });
      }
      __syncthreads();
      for (std::size_t c = window + threadIdx.x; c < end; c += kThreads) {
        float* const partial = gain_partials + blockIdx.x * cols + c;
        *partial =
            WithProducts(first == begin ? 0.0f : *partial, products + (c - window), end - window);
      }
      __syncthreads();
    }
    if constexpr (kMeasured != Measured::kNothing) {
      MeasureRows<kMeasured>(dx_rounded + first * cols, cols, places);
    }
  }
}

// The same for lanes whose registers leave a multiprocessor one thread block, so that no other one
// loads meanwhile: a half-warp copies its next row to shared memory while it works on this one. A
// thread block takes chunks of rows in turn.
template <int kPer>
constexpr std::size_t StagedRow() {  // floats from row to row: a warp's two lie in other banks
  return (kPer + 1) * kHalfWarp;
}
template <int kPer>
constexpr std::size_t StagedBytes(bool accumulate) {
  const std::size_t rows = (accumulate ? 3 : 2) * kRowsPerBlock;
  return (rows * StagedRow<kPer>() + kRowsPerBlock * kPer * kHalfWarp) * sizeof(float);
}

// Begins to copy a row, by a half-warp.
template <int kPer>
__device__ inline void StageRow(const float* from, unsigned lane, float* to) {
#pragma unroll
  for (unsigned c = 0; c < kPer * kHalfWarp; c += 4 * kHalfWarp) {
    cuda::CopyChunk(to + c + 4 * lane, from + c + 4 * lane, true);
  }
}

template <class T, int kPer, bool kAccumulate, Measured kMeasured>
__global__ void __launch_bounds__(kThreads, 1)
    StagedRmsNormBackwardKernel(const float* __restrict__ x, const float* __restrict__ gain,
                                const float* __restrict__ inverse_rms, const float* __restrict__ dy,
                                std::size_t rows, float* dx, T* __restrict__ dx_rounded,
                                float* __restrict__ gain_partials, AmaxPlaces places) {
  constexpr std::size_t kCols = kPer * kHalfWarp;
  extern __shared__ float4 memory[];
  const unsigned lane = threadIdx.x % kHalfWarp, own = threadIdx.x / kHalfWarp;
  float* const products = reinterpret_cast<float*>(memory);  // (16, kCols)
  float* const staged_x = products + kRowsPerBlock * kCols + own * StagedRow<kPer>();
  float* const staged_dy = staged_x + kRowsPerBlock * StagedRow<kPer>();
  float* const staged_dx = staged_dy + kRowsPerBlock * StagedRow<kPer>();
  // Of the block's groups of 16 rows, in the order of its chunks.
  const auto next_of = [](std::size_t first) {
    const std::size_t next = first + kRowsPerBlock;
    return next % kGainChunk != 0 ? next : next + (gridDim.x - 1) * kGainChunk;
  };
  const auto row_of = [&](std::size_t first) {  // beyond the last row, that row
    return first + own < rows ? first + own : rows - 1;
  };
  constexpr int kColumns = static_cast<int>(DivideUp(kCols, std::size_t{kThreads}));
  float of_gain[kColumns], r = 0.0f;
  std::size_t first = blockIdx.x * kGainChunk;
  if (first < rows) {
    r = inverse_rms[row_of(first)];
    StageRow<kPer>(x + row_of(first) * kCols, lane, staged_x);
    StageRow<kPer>(dy + row_of(first) * kCols, lane, staged_dy);
    if (kAccumulate) StageRow<kPer>(dx + row_of(first) * kCols, lane, staged_dx);
    cuda::CommitCopies();
  }
  for (; first < rows; first = next_of(first)) {
    const bool inside = first + own < rows;
    const std::size_t row = row_of(first), next = next_of(first);
    float* const to = dx + row * kCols;
    cuda::WaitForCopies<0>();
    __syncwarp();
    const LaneOfRow<kPer> in(staged_x, lane), grad(staged_dy, lane);
    __syncwarp();
    float next_r = 0.0f;
    if (next < rows) {
      next_r = inverse_rms[row_of(next)];
      StageRow<kPer>(x + row_of(next) * kCols, lane, staged_x);
      StageRow<kPer>(dy + row_of(next) * kCols, lane, staged_dy);
      cuda::CommitCopies();
    }
    float dot = 0.0f;
    ForLane<kPer>(lane, 0, kCols, [&](int i, std::size_t c) {
      dot = dot + (grad.At(i, c) * gain[c]) * (in.At(i, c) * r);
    });
    const float mean = SumOfLanes(dot) / static_cast<float>(kCols);
    ForLane<kPer>(lane, 0, kCols, [&](int i, std::size_t c) {
      const NormGradient d = GradientOfNorm(in.At(i, c), grad.At(i, c), gain[c], r, mean);
      products[own * kCols + c] = inside ? d.of_gain : 0.0f;
      if (!inside) return;
      const float sum = kAccumulate ? staged_dx[c] + d.dx : d.dx;
      to[c] = sum;
      if (std::is_same_v<T, Bf16> || dx_rounded != nullptr)
        Store(dx_rounded + row * kCols + c, sum);
    });
    if (kAccumulate && next < rows) {
      __syncwarp();
      StageRow<kPer>(dx + row_of(next) * kCols, lane, staged_dx);
      cuda::CommitCopies();
    }
    r = next_r;
    __syncthreads();
    const bool begins = first % kGainChunk == 0;
    const bool ends = first + kRowsPerBlock >= rows || next % kGainChunk == 0;
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      const std::size_t c = threadIdx.x + k * kThreads;
      if (c >= kCols) continue;
      of_gain[k] = WithProducts(begins ? 0.0f : of_gain[k], products + c, kCols);
      if (ends) gain_partials[first / kGainChunk * kCols + c] = of_gain[k];
    }
    __syncthreads();
    if constexpr (kMeasured != Measured::kNothing) {
      MeasureRows<kMeasured>(dx_rounded + first * kCols, kCols, places);
    }
  }
}

constexpr unsigned kSumColumns = 32, kSumParts = 32;

// grid (columns / 32, norms), block (32, 32): part p adds chunks p, p + 32, ...; then the parts are
// added in order.
__global__ void SumGainsKernel(const float* partials, std::size_t stride, std::size_t chunks,
                               const GainPlace* places, float* gradients) {
  __shared__ float parts[kSumParts][kSumColumns];
  const std::size_t c = std::size_t{blockIdx.x} * kSumColumns + threadIdx.x;
  const std::size_t cols = places[blockIdx.y].cols;
  float sum = 0.0f;
  if (c < cols) {
    const float* from = partials + blockIdx.y * stride + c;
#pragma unroll 16
    for (std::size_t i = threadIdx.y; i < chunks; i += kSumParts) sum = sum + from[i * cols];
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || c >= cols) return;
  float* const gradient = gradients + places[blockIdx.y].offset + c;
  sum = *gradient;
  for (unsigned i = 0; i < kSumParts; ++i) sum = sum + parts[i][threadIdx.x];
  *gradient = sum;
}

}  // namespace

// launch(std::integral_constant<int, elements of a lane>()), with 0 for a width without a kernel of
// its own.
template <class Launch>
void WithWidth(std::size_t cols, Launch&& launch) {
  if (cols == 128) return launch(std::integral_constant<int, 8>());
  if (cols == 256) return launch(std::integral_constant<int, 16>());
  if (cols == 512) return launch(std::integral_constant<int, 32>());
  if (cols == 768) return launch(std::integral_constant<int, 48>());
  launch(std::integral_constant<int, 0>());
}

template <class T>
void RmsNorm(const float* x, const float* gain, float epsilon, std::size_t rows, std::size_t cols,
             T* y, float* inverse_rms, cudaStream_t stream, const AmaxPlaces& amax) {
  WithWidth(cols, [&](auto per) {
    WithMeasured<T>(MeasuredOf<T>(amax, rows, cols), [&](auto measured) {
      RmsNormKernel<T, per, measured><<<Blocks(rows, kRowsPerBlock), kThreads, 0, stream>>>(
          x, gain, epsilon, rows, cols, y, inverse_rms, amax);
    });
  });
  CheckLaunch("RmsNorm");
}

template <class T>
void RmsNormBackward(const float* x, const float* gain, const float* inverse_rms, const float* dy,
                     bool accumulate, std::size_t rows, std::size_t cols, float* dx, T* dx_rounded,
                     float* gain_partials, cudaStream_t stream, const AmaxPlaces& amax) {
  const auto launch = [&](auto per, auto accumulates, auto measured) {
    if constexpr (per > kMostOfTwoBlocks) {
      const std::size_t shared = StagedBytes<per>(accumulates);
      if (IsAligned(x, 16) && IsAligned(dy, 16) && IsAligned(dx, 16) &&
          shared <= cuda::MostSharedMemory()) {
        const auto kernel = StagedRmsNormBackwardKernel<T, per, accumulates, measured>;
        AllowShared(kernel, shared);
        kernel<<<std::min(Blocks(rows, kGainChunk), static_cast<unsigned>(cuda::Multiprocessors())),
                 kThreads, shared, stream>>>(x, gain, inverse_rms, dy, rows, dx, dx_rounded,
                                             gain_partials, amax);
        return;
      }
    }
    const std::size_t shared = kRowsPerBlock * std::min(cols, kWindow) * sizeof(float);
    const auto kernel = RmsNormBackwardKernel<T, per, accumulates, measured>;
    AllowShared(kernel, shared);
    kernel<<<Blocks(rows, kGainChunk), kThreads, shared, stream>>>(
        x, gain, inverse_rms, dy, rows, cols, dx, dx_rounded, gain_partials, amax);
  };
  WithWidth(cols, [&](auto per) {
    WithMeasured<T>(MeasuredOf<T>(amax, rows, cols), [&](auto measured) {
      accumulate ? launch(per, std::true_type(), measured)
                 : launch(per, std::false_type(), measured);
    });
  });
  CheckLaunch("RmsNormBackward");
}

void SumGains(const float* partials, std::size_t stride, std::size_t norms, std::size_t chunks,
              const GainPlace* places, std::size_t widest, float* gradients, cudaStream_t stream) {
  SumGainsKernel<<<dim3(Blocks(widest, kSumColumns), static_cast<unsigned>(norms)),
                   dim3(kSumColumns, kSumParts), 0, stream>>>(partials, stride, chunks, places,
                                                              gradients);
  CheckLaunch("SumGains");
}

template void RmsNorm(const float*, const float*, float, std::size_t, std::size_t, float*, float*,
                      cudaStream_t, const AmaxPlaces&);
template void RmsNorm(const float*, const float*, float, std::size_t, std::size_t, Bf16*, float*,
                      cudaStream_t, const AmaxPlaces&);
template void RmsNormBackward(const float*, const float*, const float*, const float*, bool,
                              std::size_t, std::size_t, float*, float*, float*, cudaStream_t,
                              const AmaxPlaces&);
template void RmsNormBackward(const float*, const float*, const float*, const float*, bool,
                              std::size_t, std::size_t, float*, Bf16*, float*, cudaStream_t,
                              const AmaxPlaces&);

}  // namespace fp4lab::gpu
