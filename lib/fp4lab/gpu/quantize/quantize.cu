// Tuned kernels that quantize the operands of linears: Hadamard transform, then values of a
// dialect.
#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/gpu/quantize/quantize.cuh"
#include "fp4lab/gpu/quantize/quantize_units.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = kUnitThreads;

__global__ void AlphaKernel(AlphaArguments a) { MakeAlpha(a); }

// ---- Units along memory rows: a thread has kUnitsOfThread units; neighbouring threads have
// neighbouring units

constexpr unsigned kUnitsOfThread = 4;

template <class T, int kUnit, int kBlock, int kHadamard, bool kStochastic, bool kE2m1>
__global__ void __launch_bounds__(kThreads) AlongColsKernel(UnitArguments a, const T* x, T* out) {
  MakeAlpha(a.alpha);
  const TensorNumbers tensor = TensorNumbersAt(a);
  const std::size_t first = std::size_t{blockIdx.x} * kThreads * kUnitsOfThread + threadIdx.x;
  for (unsigned i = 0; i < kUnitsOfThread; ++i) {
    const std::size_t at = (first + i * kThreads) * kUnit;
    if (at >= a.rows * a.cols) return;
    float v[kUnit];
    LoadRun<kUnit>(x + at, v);
    ProcessUnit<kUnit, kBlock, kHadamard, kStochastic, kE2m1>(a, tensor, at, v);
    StoreRun<kUnit>(out + at, v);
  }
}

// ---- Units across memory rows: a thread has a unit of one column

template <class T, int kUnit, int kBlock, int kHadamard, bool kStochastic, bool kE2m1>
__global__ void __launch_bounds__(kThreads) AlongRowsKernel(UnitArguments a, const T* x, T* out) {
  MakeAlpha(a.alpha);
  const auto across = static_cast<unsigned>(a.cols);
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  const std::size_t c = i % across, r = std::size_t{i / across} * kUnit;
  if (r >= a.rows) return;
  float v[kUnit];
  LoadColumn<kUnit>(x + r * a.cols + c, a.cols, v);
  ProcessUnit<kUnit, kBlock, kHadamard, kStochastic, kE2m1>(a, TensorNumbersAt(a), c * a.rows + r,
                                                            v);
#pragma unroll
  for (int k = 0; k < kUnit; ++k) Store(out + (r + k) * a.cols + c, v[k]);
}

// AlongRowsKernel with two neighbouring BF16 columns per thread.
template <int kUnit, int kBlock, int kHadamard, bool kStochastic, bool kE2m1>
__global__ void __launch_bounds__(kThreads)
    PairsAlongRowsKernel(UnitArguments a, const Bf16* x, Bf16* out) {
  MakeAlpha(a.alpha);
  const auto across = static_cast<unsigned>(a.cols / 2);
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  const std::size_t c = std::size_t{i % across} * 2, r = std::size_t{i / across} * kUnit;
  if (r >= a.rows) return;
  std::uint32_t pairs[kUnit];
  LoadPairs<kUnit>(x + r * a.cols + c, a.cols, pairs);
  ProcessPairs<kUnit, kBlock, kHadamard, kStochastic, kE2m1>(a, TensorNumbersAt(a), c * a.rows + r,
                                                             pairs);
  StorePairs<kUnit>(out + r * a.cols + c, a.cols, pairs);
}

// ---- Square blocks: kBlock lanes per block, one row per lane

template <class T, int kBlock, bool kStochastic>
__global__ void __launch_bounds__(kThreads)
    SquareKernel(UnitArguments a, bool transposed, const T* x, T* out) {
  MakeAlpha(a.alpha);
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
  const ScalePair scale = ScalesOf(a.rule, amax, TensorNumbersAt(a));
  if (!kStochastic || !transposed) {
    QuantizeBlock<kBlock, kStochastic, false>(a.rule, scale, a.random.stream, r * a.cols + c, v);
  } else {
    for (int i = 0; i < kBlock; ++i) {
      const std::uint32_t random16 = a.random.stream.Bits16((c + i) * a.rows + r);
      v[i] = RoundStochastic(a.rule.element, v[i] * scale.multiplier, random16) * scale.value;
    }
  }
  if (wanted < a.rows) StoreRun<kBlock>(out + r * a.cols + c, v);
}

// ---- One scale per tensor, any shape: kVector elements per thread

template <class T, int kVector, bool kStochastic>
__global__ void OneScaleKernel(UnitArguments a, bool transposed, const T* x, T* out) {
  MakeAlpha(a.alpha);
  const std::size_t first = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) * kVector;
  if (first >= a.rows * a.cols) return;
  const float encode = TensorNumbersAt(a).encode;
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
    v[k] = kStochastic
               ? RoundStochastic(a.rule.element, v[k] * encode, a.random.stream.Bits16(element))
               : RoundNearest(a.rule.element, v[k] * encode);
  }
  if constexpr (kVector > 1) {
    StoreRun<kVector>(out + first, v);
  } else {
    Store(out + first, v[0]);
  }
}

// ---- Dispatch: each compile-time choice once

constexpr int UnitOf(int block, int hadamard) { return block == 32 || hadamard == 32 ? 32 : 16; }

template <class T, int kBlock, int kHadamard, bool kStochastic, bool kE2m1>
void LaunchUnits(const QuantizeJob& job, const UnitArguments& a, const T* x, T* out,
                 cudaStream_t stream) {
  constexpr int kUnit = UnitOf(kBlock, kHadamard);
  const std::size_t units = job.rows * job.cols / kUnit;
  if (!job.along_rows) {
    AlongColsKernel<T, kUnit, kBlock, kHadamard, kStochastic, kE2m1>
        <<<Blocks(units, kThreads * kUnitsOfThread), kThreads, 0, stream>>>(a, x, out);
    return;
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    if (TakesPairs<T>(job)) {
      PairsAlongRowsKernel<kUnit, kBlock, kHadamard, kStochastic, kE2m1>
          <<<Blocks(units / 2, kThreads), kThreads, 0, stream>>>(a, x, out);
      return;
    }
  }
  AlongRowsKernel<T, kUnit, kBlock, kHadamard, kStochastic, kE2m1>
      <<<Blocks(units, kThreads), kThreads, 0, stream>>>(a, x, out);
}

template <class T>
void LaunchUnits(const QuantizeJob& job, const UnitArguments& a, const T* x, T* out,
                 cudaStream_t stream) {
  const int block = job.format && job.format->block_cols == 32 ? 32 : 16;
  const bool e2m1 = job.format && job.format->element == FormatId::kE2M1;
  WithBool(block == 32, [&](auto wide) {
    WithSize(job.hadamard, [&](auto hadamard) {
      WithBool(job.format && IsStochastic(*job.format), [&](auto stochastic) {
        WithBool(e2m1, [&](auto is_e2m1) {
          LaunchUnits<T, wide ? 32 : 16, hadamard, stochastic, is_e2m1>(job, a, x, out, stream);
        });
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
    WithBool(job.format && IsStochastic(*job.format), [&](auto stochastic) {
      SquareKernel<T, kBlock, stochastic>
          <<<blocks, kThreads, 0, stream>>>(a, job.along_rows, x, out);
    });
  });
}

}  // namespace

template <class T>
void QuantizeToValues(const QuantizeJob& job, const T* x, const std::uint32_t* amax, T* out,
                      cudaStream_t stream, const AlphaJob& alpha) {
  CheckJob(job);
  const UnitArguments a = Arguments(job, amax, alpha);
  const bool one_scale = job.format && job.format->block_cols == 0 && job.hadamard == 0;
  const bool square = job.format && job.format->block_rows > 1;
  if (one_scale) {
    const std::size_t size = job.rows * job.cols;
    WithBool(job.format && IsStochastic(*job.format), [&](auto stochastic) {
      WithBool(size % 8 == 0 && IsAligned(x) && IsAligned(out), [&](auto wide) {
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

void WriteAlpha(const AlphaJob& job, cudaStream_t stream) {
  AlphaKernel<<<1, 1, 0, stream>>>(Arguments(job));
  CheckLaunch("WriteAlpha");
}

template void QuantizeToValues(const QuantizeJob&, const float*, const std::uint32_t*, float*,
                               cudaStream_t, const AlphaJob&);
template void QuantizeToValues(const QuantizeJob&, const Bf16*, const std::uint32_t*, Bf16*,
                               cudaStream_t, const AlphaJob&);

}  // namespace fp4lab::gpu
