// The columnwise random Hadamard transform and its amax: one thread for each group of a column.
#include "fp4lab/base/divide_up.h"
#include "fp4lab/cuda/device/amax.cuh"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/device/hadamard.cuh"
#include "fp4lab/cuda/device/side.cuh"
#include "fp4lab/cuda/quantize/launch.h"

namespace fp4lab::cuda {
namespace {

constexpr int kThreads = 128;

// A thread block takes 128 columns x one group of rows. out: the transformed matrix, laid out as x;
// amax, transformed: bits of max |x| before and after the transform. Each may be nullptr.
template <int kSize>
__global__ void __launch_bounds__(kThreads)
    HadamardKernel(SideJob job, std::uint32_t sign_mask, std::uint16_t* out, unsigned* amax,
                   unsigned* transformed) {
  const unsigned across = static_cast<unsigned>(DivideUp(job.rows, kThreads));
  const std::size_t column = std::size_t{blockIdx.x % across} * kThreads + threadIdx.x;
  const std::size_t first = std::size_t{blockIdx.x / across} * kSize;
  float before = 0.0f, after = 0.0f;
  if (column < job.rows) {
    float group[kSize];
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const float x = job.Element(column, first + k);
      before = LargerMagnitude(before, x);
      group[k] = RoundToBf16(x);
    }
    TransformGroup<kSize>(group, sign_mask);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      after = LargerMagnitude(after, group[k]);
      if (out != nullptr) out[job.Place(column, first + k)] = Bf16Bits(group[k]);
    }
  }
  if (amax != nullptr) StoreBlockAmax<kThreads>(before, amax);
  if (transformed != nullptr) StoreBlockAmax<kThreads>(after, transformed);
}

}  // namespace

void LaunchHadamard(const DeviceMatrix& x, bool transposed, int size, std::uint32_t sign_mask,
                    std::uint16_t* out, float* amax, float* transformed, StreamHandle stream) {
  const SideJob job = JobOf(x, {}, transposed);
  if (job.rows == 0 || job.cols == 0) return;
  const auto grid = static_cast<unsigned>(DivideUp(job.rows, kThreads) *
                                          (job.cols / static_cast<std::size_t>(size)));
  auto* const before = reinterpret_cast<unsigned*>(amax);
  auto* const after = reinterpret_cast<unsigned*>(transformed);
  const cudaStream_t native = NativeStream(stream);
  if (size == 16) {
    HadamardKernel<16><<<grid, kThreads, 0, native>>>(job, sign_mask, out, before, after);
  } else {
    HadamardKernel<32><<<grid, kThreads, 0, native>>>(job, sign_mask, out, before, after);
  }
  CheckLaunch("the Hadamard kernel");
}

}  // namespace fp4lab::cuda
