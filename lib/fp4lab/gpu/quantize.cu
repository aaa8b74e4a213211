// Operands of linears: largest magnitudes, Hadamard transform, values of block formats.
#include <type_traits>

#include "fp4lab/base/error.h"
#include "fp4lab/gpu/quantize.cuh"
#include "fp4lab/gpu/quantize_device.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = 128;

struct UnitArguments {
  std::size_t rows, cols;
  BlockRule rule;
  RandomStream random;
  const std::uint32_t* amax;
};

// Adds a block's largest magnitude to the tensor's, if there is a place for it.
__device__ inline void TakeAmax(float amax, std::uint32_t* to) {
  __shared__ std::uint32_t warps[kThreads / 32];
  const std::uint32_t largest = __reduce_max_sync(kAllLanes, __float_as_uint(amax));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t of_block = 0;
    for (int i = 0; i < kThreads / 32; ++i) of_block = max(of_block, warps[i]);
    if (of_block != 0) atomicMax(to, of_block);
  }
  __syncthreads();
}

__device__ inline TensorScale TensorScaleAt(const UnitArguments& a) {
  return TensorScaleOf(a.rule, a.amax == nullptr ? 0.0f : __uint_as_float(*a.amax));
}

// kUnit values along the reduction axis, in place: kHadamard, then blocks of kBlock.
template <int kUnit, int kBlock, int kHadamard, bool kStochastic>
__device__ inline void ProcessUnit(const UnitArguments& a, const TensorScale& tensor,
                                   std::uint64_t element, float* v) {
  if constexpr (kHadamard > 0) {
#pragma unroll
    for (int i = 0; i < kUnit; i += kHadamard) HadamardGroup<kHadamard>(v + i);
  }
  if (!a.rule.quantizes) return;
#pragma unroll
  for (int i = 0; i < kUnit; i += kBlock) {
    float amax = 0.0f;
#pragma unroll
    for (int j = 0; j < kBlock; ++j) amax = LargerMagnitude(amax, v[i + j]);
    const BlockScale scale = BlockScaleOf(a.rule, amax, tensor);
    QuantizeBlock<kBlock, kStochastic>(a.rule, scale, a.random, element + i, v + i);
  }
}

// kCount neighbours in memory, 16 bytes at a time.
template <int kCount, class T>
__device__ inline void LoadRun(const T* from, float* v) {
  constexpr int kStep = 16 / sizeof(T);
#pragma unroll
  for (int i = 0; i < kCount; i += kStep) {
    const uint4 bits = *reinterpret_cast<const uint4*>(from + i);
    const T* x = reinterpret_cast<const T*>(&bits);
#pragma unroll
    for (int j = 0; j < kStep; ++j) v[i + j] = Load(x + j);
  }
}
template <int kCount, class T>
__device__ inline void StoreRun(T* to, const float* v) {
  constexpr int kStep = 16 / sizeof(T);
#pragma unroll
  for (int i = 0; i < kCount; i += kStep) {
    uint4 bits;
    T* x = reinterpret_cast<T*>(&bits);
#pragma unroll
    for (int j = 0; j < kStep; ++j) Store(x + j, v[i + j]);
    *reinterpret_cast<uint4*>(to + i) = bits;
  }
}

// ---- Units along memory rows: a thread a unit
// ----------------------------------------------------

template <class T, int kUnit, int kBlock, int kHadamard, bool kStochastic>
__global__ void __launch_bounds__(kThreads) AlongColsKernel(UnitArguments a, const T* x, T* out) {
  const std::size_t at = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) * kUnit;
  if (at >= a.rows * a.cols) return;
  float v[kUnit];
  LoadRun<kUnit>(x + at, v);
  ProcessUnit<kUnit, kBlock, kHadamard, kStochastic>(a, TensorScaleAt(a), at, v);
  StoreRun<kUnit>(out + at, v);
}

template <class T, int kHadamard>
__global__ void __launch_bounds__(kThreads)
    AmaxAlongColsKernel(UnitArguments a, const T* x, std::uint32_t* to) {
  const std::size_t units = a.rows * a.cols / kHadamard;
  float amax = 0.0f;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < units;
       i += std::size_t{gridDim.x} * kThreads) {
    float v[kHadamard];
    LoadRun<kHadamard>(x + i * kHadamard, v);
    HadamardGroup<kHadamard>(v);
#pragma unroll
    for (int k = 0; k < kHadamard; ++k) amax = LargerMagnitude(amax, v[k]);
  }
  TakeAmax(amax, to);
}

// ---- Units across memory rows: a thread kWide neighbouring columns
// -------------------------------

template <int kUnit, int kWide, class T>
__device__ inline void LoadColumns(const T* from, std::size_t stride, float (&v)[kWide][kUnit]) {
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    if constexpr (kWide == 2) {
      const __nv_bfloat162 pair = *reinterpret_cast<const __nv_bfloat162*>(from + i * stride);
      v[0][i] = __low2float(pair);
      v[1][i] = __high2float(pair);
    } else {
      v[0][i] = Load(from + i * stride);
    }
  }
}

template <class T, int kWide, int kUnit, int kBlock, int kHadamard, bool kStochastic>
__global__ void __launch_bounds__(kThreads) AlongRowsKernel(UnitArguments a, const T* x, T* out) {
  const std::size_t across = a.cols / kWide;
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::size_t c = i % across * kWide, r = i / across * kUnit;
  if (r >= a.rows) return;
  float v[kWide][kUnit];
  LoadColumns<kUnit, kWide>(x + r * a.cols + c, a.cols, v);
  const TensorScale tensor = TensorScaleAt(a);
#pragma unroll
  for (int w = 0; w < kWide; ++w) {
    ProcessUnit<kUnit, kBlock, kHadamard, kStochastic>(a, tensor, (c + w) * a.rows + r, v[w]);
  }
#pragma unroll
  for (int k = 0; k < kUnit; ++k) {
    T* to = out + (r + k) * a.cols + c;
    if constexpr (kWide == 2) {
      *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(v[0][k], v[1][k]);
    } else {
      Store(to, v[0][k]);
    }
  }
}

// `plain`, if not null: the largest magnitude before the transform.
template <class T, int kWide, int kHadamard>
__global__ void __launch_bounds__(kThreads)
    AmaxAlongRowsKernel(UnitArguments a, const T* x, std::uint32_t* plain, std::uint32_t* to) {
  const std::size_t across = a.cols / kWide, units = across * (a.rows / kHadamard);
  float before = 0.0f, amax = 0.0f;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < units;
       i += std::size_t{gridDim.x} * kThreads) {
    const std::size_t c = i % across * kWide, r = i / across * kHadamard;
    float v[kWide][kHadamard];
    LoadColumns<kHadamard, kWide>(x + r * a.cols + c, a.cols, v);
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
#pragma unroll
      for (int k = 0; k < kHadamard; ++k) before = LargerMagnitude(before, v[w][k]);
      HadamardGroup<kHadamard>(v[w]);
#pragma unroll
      for (int k = 0; k < kHadamard; ++k) amax = LargerMagnitude(amax, v[w][k]);
    }
  }
  if (plain != nullptr) TakeAmax(before, plain);
  TakeAmax(amax, to);
}

// ---- Square blocks: kBlock lanes a block, a lane one of its rows
// ---------------------------------

template <class T, int kBlock, bool kStochastic>
__global__ void __launch_bounds__(kThreads)
    SquareKernel(UnitArguments a, bool transposed, const T* x, T* out) {
  const std::size_t lanes = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::size_t block = lanes / kBlock, across = a.cols / kBlock;
  const std::size_t wanted = block / across * kBlock + lanes % kBlock;
  const std::size_t r = wanted < a.rows ? wanted : a.rows - 1, c = block % across * kBlock;
  float v[kBlock];
  LoadRun<kBlock>(x + r * a.cols + c, v);
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kBlock; ++i) amax = LargerMagnitude(amax, v[i]);
#pragma unroll
  for (int width = kBlock / 2; width > 0; width /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, width, kBlock));
  }
  const BlockScale scale = BlockScaleOf(a.rule, amax, TensorScaleAt(a));
  if (!kStochastic || !transposed) {
    QuantizeBlock<kBlock, kStochastic>(a.rule, scale, a.random, r * a.cols + c, v);
  } else {
    for (int i = 0; i < kBlock; ++i) {
      const std::uint32_t random16 = a.random.Bits16((c + i) * a.rows + r);
      v[i] = RoundStochastic(a.rule.element, v[i] * scale.multiplier, random16) * scale.value;
    }
  }
  if (wanted < a.rows) StoreRun<kBlock>(out + r * a.cols + c, v);
}

// ---- One scale a tensor, any shape: a thread kVector elements
// ------------------------------------

template <class T, int kVector, bool kStochastic>
__global__ void OneScaleKernel(UnitArguments a, bool transposed, const T* x, T* out) {
  const std::size_t first = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (first >= a.rows * a.cols) return;
  const float encode = TensorScaleAt(a).encode;
  float v[kVector];
  if constexpr (kVector > 1) {
    LoadRun<kVector>(x + first, v);
  } else {
    v[0] = Load(x + first);
  }
#pragma unroll
  for (int k = 0; k < kVector; ++k) {
    const std::size_t i = first + k;
    const std::size_t element = transposed ? i % a.cols * a.rows + i / a.cols : i;
    v[k] = kStochastic ? RoundStochastic(a.rule.element, v[k] * encode, a.random.Bits16(element))
                       : RoundNearest(a.rule.element, v[k] * encode);
  }
  if constexpr (kVector > 1) {
    StoreRun<kVector>(out + first, v);
  } else {
    Store(out + first, v[0]);
  }
}

template <class T>
__global__ void AmaxKernel(std::size_t size, const T* x, std::uint32_t* to) {
  constexpr std::size_t kVector = 16 / sizeof(T);
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
  const std::size_t whole = size / kVector;
  float amax = 0.0f;
  const std::size_t first = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (std::size_t i = first; i < whole; i += step) {
    float v[kVector];
    LoadRun<kVector>(x + i * kVector, v);
#pragma unroll
    for (std::size_t j = 0; j < kVector; ++j) amax = LargerMagnitude(amax, v[j]);
  }
  for (std::size_t i = whole * kVector + first; i < size; i += step) {
    amax = LargerMagnitude(amax, Load(x + i));
  }
  TakeAmax(amax, to);
}

// ---- Dispatch: each compile-time choice once
// -----------------------------------------------------

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

template <class Launch>
void WithBool(bool value, Launch&& launch) {
  value ? launch(std::true_type()) : launch(std::false_type());
}
// 0, 16 or 32.
template <class Launch>
void WithSize(int value, Launch&& launch) {
  if (value == 32) return launch(Constant<32>());
  value == 16 ? launch(Constant<16>()) : launch(Constant<0>());
}

constexpr int UnitOf(int block, int hadamard) { return block == 32 || hadamard == 32 ? 32 : 16; }

UnitArguments Arguments(const QuantizeJob& job, const std::uint32_t* amax) {
  const BlockRule rule = job.format ? RuleOf(*job.format) : BlockRule{};
  const bool reads = job.format && HasTensorScale(*job.format);
  return {job.rows, job.cols, rule, job.random, reads ? amax : nullptr};
}

// Two neighbouring columns a thread where BF16 pairs are aligned.
template <class T>
bool TakesPairs(const QuantizeJob& job) {
  return std::is_same_v<T, Bf16> && job.cols % 2 == 0;
}

template <class T, int kBlock, int kHadamard, bool kStochastic>
void LaunchUnits(const QuantizeJob& job, const UnitArguments& a, const T* x, T* out,
                 cudaStream_t stream) {
  constexpr int kUnit = UnitOf(kBlock, kHadamard);
  const std::size_t units = job.rows * job.cols / kUnit;
  if (!job.along_rows) {
    AlongColsKernel<T, kUnit, kBlock, kHadamard, kStochastic>
        <<<Blocks(units, kThreads), kThreads, 0, stream>>>(a, x, out);
    return;
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    if (TakesPairs<T>(job)) {
      AlongRowsKernel<T, 2, kUnit, kBlock, kHadamard, kStochastic>
          <<<Blocks(units / 2, kThreads), kThreads, 0, stream>>>(a, x, out);
      return;
    }
  }
  AlongRowsKernel<T, 1, kUnit, kBlock, kHadamard, kStochastic>
      <<<Blocks(units, kThreads), kThreads, 0, stream>>>(a, x, out);
}

template <class T>
void LaunchUnits(const QuantizeJob& job, const UnitArguments& a, const T* x, T* out,
                 cudaStream_t stream) {
  const int block = job.format && job.format->block_cols == 32 ? 32 : 16;
  WithBool(block == 32, [&](auto wide) {
    WithSize(job.hadamard, [&](auto hadamard) {
      WithBool(job.rounding == Rounding::kStochastic, [&](auto stochastic) {
        LaunchUnits<T, wide ? 32 : 16, hadamard, stochastic>(job, a, x, out, stream);
      });
    });
  });
}

template <class T>
void LaunchSquare(const QuantizeJob& job, const UnitArguments& a, const T* x, T* out,
                  cudaStream_t stream) {
  WithBool(job.format->block_cols == 32, [&](auto wide) {
    constexpr int kBlock = wide ? 32 : 16;
    const unsigned blocks = Blocks(job.rows * job.cols / kBlock, kThreads);
    WithBool(job.rounding == Rounding::kStochastic, [&](auto stochastic) {
      SquareKernel<T, kBlock, stochastic>
          <<<blocks, kThreads, 0, stream>>>(a, job.along_rows, x, out);
    });
  });
}

// Blocks of a kernel that goes over `units` with all threads again and again.
unsigned AmaxBlocks(std::size_t units) {
  constexpr std::size_t kMost = 132 * 16;
  const std::size_t wanted = Blocks(units, kThreads);
  return static_cast<unsigned>(wanted < kMost ? (wanted > 0 ? wanted : 1) : kMost);
}

template <class T>
void LaunchAmaxAlongRows(const QuantizeJob& job, const T* x, std::uint32_t* plain,
                         std::uint32_t* amax, cudaStream_t stream) {
  const UnitArguments a = Arguments(job, nullptr);
  WithBool(job.hadamard == 32, [&](auto wide) {
    constexpr int kSize = wide ? 32 : 16;
    const std::size_t units = job.rows * job.cols / kSize;
    if constexpr (std::is_same_v<T, Bf16>) {
      if (TakesPairs<T>(job)) {
        AmaxAlongRowsKernel<T, 2, kSize>
            <<<AmaxBlocks(units / 2), kThreads, 0, stream>>>(a, x, plain, amax);
        return;
      }
    }
    AmaxAlongRowsKernel<T, 1, kSize><<<AmaxBlocks(units), kThreads, 0, stream>>>(a, x, plain, amax);
  });
}

void CheckJob(const QuantizeJob& job) {
  const std::size_t along = job.along_rows ? job.rows : job.cols;
  const std::size_t block = job.format ? static_cast<std::size_t>(job.format->block_cols) : 0;
  const std::size_t square = job.format && job.format->block_rows > 1
                                 ? static_cast<std::size_t>(job.format->block_rows)
                                 : 1;
  Expects((block == 0 || along % block == 0) &&
              (job.hadamard == 0 || along % static_cast<std::size_t>(job.hadamard) == 0) &&
              job.rows % square == 0 && job.cols % square == 0,
          "QuantizeJob: whole blocks and Hadamard groups");
}

// alpha of nn/linear.cc's OptionsFor, as GemmAlpha and TensorDecodeScale of scale_rules.h have it.
__device__ float DecodeScale(const BlockRule& rule, const std::uint32_t* amax) {
  if (!rule.quantizes) return 1.0f;
  const float value = __uint_as_float(*amax);
  return rule.rule == ScaleRule::kNvfp4 ? value / kNvfp4Max : TensorScaleOf(rule, value).decode;
}

__global__ void AlphaKernel(BlockRule a, const std::uint32_t* amax_a, BlockRule b,
                            const std::uint32_t* amax_b, float* alpha) {
  const bool both = a.quantizes && b.quantizes;
  if (both && a.rule == ScaleRule::kNvfp4 && b.rule == ScaleRule::kNvfp4) {
    *alpha = __uint_as_float(*amax_a) * __uint_as_float(*amax_b) / kNvfp4AlphaDivisor;
    return;
  }
  *alpha = DecodeScale(a, amax_a) * DecodeScale(b, amax_b);
}

}  // namespace

template <class T>
void MeasureAmax(const QuantizeJob& job, const T* x, std::uint32_t* amax, cudaStream_t stream) {
  CheckJob(job);
  const std::size_t size = job.rows * job.cols;
  if (job.hadamard == 0) {
    AmaxKernel<<<AmaxBlocks(size / (16 / sizeof(T))), kThreads, 0, stream>>>(size, x, amax);
  } else if (job.along_rows) {
    LaunchAmaxAlongRows(job, x, nullptr, amax, stream);
  } else {
    WithBool(job.hadamard == 32, [&](auto wide) {
      constexpr int kSize = wide ? 32 : 16;
      AmaxAlongColsKernel<T, kSize>
          <<<AmaxBlocks(size / kSize), kThreads, 0, stream>>>(Arguments(job, nullptr), x, amax);
    });
  }
  CheckLaunch("MeasureAmax");
}

template <class T>
void MeasureBoth(const QuantizeJob& job, const T* x, std::uint32_t* plain, std::uint32_t* amax,
                 cudaStream_t stream) {
  CheckJob(job);
  Expects(job.along_rows && job.hadamard > 0, "MeasureBoth: a transform along rows");
  LaunchAmaxAlongRows(job, x, plain, amax, stream);
  CheckLaunch("MeasureBoth");
}

template <class T>
void QuantizeToValues(const QuantizeJob& job, const T* x, const std::uint32_t* amax, T* out,
                      cudaStream_t stream) {
  CheckJob(job);
  const UnitArguments a = Arguments(job, amax);
  const bool one_scale = job.format && job.format->block_cols == 0 && job.hadamard == 0;
  const bool square = job.format && job.format->block_rows > 1;
  if (one_scale) {
    const std::size_t size = job.rows * job.cols;
    WithBool(job.rounding == Rounding::kStochastic, [&](auto stochastic) {
      WithBool(size % 8 == 0, [&](auto wide) {
        constexpr int kVector = wide ? 8 : 1;
        OneScaleKernel<T, kVector, stochastic>
            <<<Blocks(size, kVector * kThreads), kThreads, 0, stream>>>(a, job.along_rows, x, out);
      });
    });
  } else if (!square) {
    LaunchUnits(job, a, x, out, stream);
  } else {
    if (job.hadamard > 0) {
      QuantizeJob transform = job;
      transform.format.reset();
      LaunchUnits(transform, Arguments(transform, nullptr), x, out, stream);
      x = out;
    }
    LaunchSquare(job, a, x, out, stream);
  }
  CheckLaunch("QuantizeToValues");
}

void WriteAlpha(const std::optional<BlockFormat>& a, const std::uint32_t* amax_a,
                const std::optional<BlockFormat>& b, const std::uint32_t* amax_b, float* alpha,
                cudaStream_t stream) {
  AlphaKernel<<<1, 1, 0, stream>>>(a ? RuleOf(*a) : BlockRule{}, amax_a,
                                   b ? RuleOf(*b) : BlockRule{}, amax_b, alpha);
  CheckLaunch("WriteAlpha");
}

template void MeasureAmax(const QuantizeJob&, const float*, std::uint32_t*, cudaStream_t);
template void MeasureAmax(const QuantizeJob&, const Bf16*, std::uint32_t*, cudaStream_t);
template void MeasureBoth(const QuantizeJob&, const float*, std::uint32_t*, std::uint32_t*,
                          cudaStream_t);
template void MeasureBoth(const QuantizeJob&, const Bf16*, std::uint32_t*, std::uint32_t*,
                          cudaStream_t);
template void QuantizeToValues(const QuantizeJob&, const float*, const std::uint32_t*, float*,
                               cudaStream_t);
template void QuantizeToValues(const QuantizeJob&, const Bf16*, const std::uint32_t*, Bf16*,
                               cudaStream_t);

}  // namespace fp4lab::gpu
