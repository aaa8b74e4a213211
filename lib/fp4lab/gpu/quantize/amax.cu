// Kernels that measure the amax of an operand, before and after its Hadamard transform.
#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/gpu/quantize/quantize.cuh"
#include "fp4lab/gpu/quantize/quantize_units.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kThreads = kUnitThreads;

template <class T, int kHadamard>
__global__ void __launch_bounds__(kThreads)
    AmaxAlongColsKernel(UnitArguments a, const T* x, std::uint32_t* to) {
  const std::size_t units = a.rows * a.cols / kHadamard;
  float amax = 0.0f;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < units;
       i += std::size_t{gridDim.x} * kThreads) {
    float v[kHadamard];
    LoadRun<kHadamard>(x + i * kHadamard, v);
    float before = 0.0f;
    HadamardMaxima<kHadamard>(v, &before, &amax);
  }
  cuda::StoreBlockAmax<kThreads>(amax, to);
}

// `to` receives the amax after the transform; `plain`, if not null, the amax before it.
template <class T, int kWide, int kHadamard>
__global__ void __launch_bounds__(kThreads)
    AmaxAlongRowsKernel(UnitArguments a, const T* x, std::uint32_t* plain, std::uint32_t* to) {
  const auto across = static_cast<unsigned>(a.cols / kWide);
  const auto units = across * static_cast<unsigned>(a.rows / kHadamard);
  float before = 0.0f, amax = 0.0f;
  for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < units; i += gridDim.x * kThreads) {
    const std::size_t c = i % across * kWide, r = i / across * kHadamard;
    if constexpr (kWide == 2) {
      std::uint32_t pairs[kHadamard];
      LoadPairs<kHadamard>(x + r * a.cols + c, a.cols, pairs);
      PairMaxima<kHadamard>(pairs, &before, &amax);
    } else {
      float v[kHadamard];
      LoadColumn<kHadamard>(x + r * a.cols + c, a.cols, v);
      HadamardMaxima<kHadamard>(v, &before, &amax);
    }
  }
  if (plain != nullptr) cuda::StoreBlockAmax<kThreads>(before, plain);
  cuda::StoreBlockAmax<kThreads>(amax, to);
}

// `whole`: how many vectors of 16 bytes are loaded as such.
template <class T>
__global__ void AmaxKernel(std::size_t size, std::size_t whole, const T* x, std::uint32_t* to) {
  constexpr std::size_t kVector = 16 / sizeof(T);
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
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
  cuda::StoreBlockAmax<kThreads>(amax, to);
}

// Grid size of a grid-stride kernel over `units` units of work.
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

}  // namespace

template <class T>
void MeasureAmax(const QuantizeJob& job, const T* x, std::uint32_t* amax, cudaStream_t stream) {
  CheckJob(job);
  const std::size_t size = job.rows * job.cols;
  if (job.hadamard == 0) {
    const std::size_t vectors = size / (16 / sizeof(T));
    const std::size_t whole = IsAligned(x) ? vectors : 0;  // an expert's rows begin anywhere
    AmaxKernel<<<AmaxBlocks(vectors), kThreads, 0, stream>>>(size, whole, x, amax);
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

template void MeasureAmax(const QuantizeJob&, const float*, std::uint32_t*, cudaStream_t);
template void MeasureAmax(const QuantizeJob&, const Bf16*, std::uint32_t*, cudaStream_t);
template void MeasureBoth(const QuantizeJob&, const float*, std::uint32_t*, std::uint32_t*,
                          cudaStream_t);
template void MeasureBoth(const QuantizeJob&, const Bf16*, std::uint32_t*, std::uint32_t*,
                          cudaStream_t);

}  // namespace fp4lab::gpu
