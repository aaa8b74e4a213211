// max |x| of a matrix or of its rows.
#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/cuda/device/amax.cuh"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/device/side.cuh"
#include "fp4lab/cuda/quantize/launch.h"

namespace fp4lab::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kNan = 0x7FC00000u;

// The bits of max(amax, |x|). NaN gives kNan, above Inf, if keeps_nan; else NaN is ignored.
__device__ unsigned Larger(unsigned amax, float x, bool keeps_nan) {
  const unsigned magnitude = __float_as_uint(x) & 0x7FFFFFFFu;
  return magnitude > 0x7F800000u ? (keeps_nan ? kNan : amax) : max(amax, magnitude);
}

// Larger, for the two BF16 values of a word.
__device__ unsigned LargerOfPair(unsigned amax, unsigned pair, bool keeps_nan) {
  amax = Larger(amax, __uint_as_float(pair << 16), keeps_nan);
  return Larger(amax, __uint_as_float(pair & 0xFFFF0000u), keeps_nan);
}

__device__ unsigned LargerOfVector(unsigned amax, uint4 v, bool bf16, bool keeps_nan) {
  const unsigned words[] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (const unsigned word : words) {
    amax =
        bf16 ? LargerOfPair(amax, word, keeps_nan) : Larger(amax, __uint_as_float(word), keeps_nan);
  }
  return amax;
}

// *out = max(*out, max |x|). Threads read whole vectors of 16 bytes and then the remaining elements
// one by one; vectors is 0 if x is not aligned to 16 bytes.
template <bool kBf16, bool kKeepsNan>
__global__ void __launch_bounds__(kThreads)
    AmaxKernel(const void* x, std::size_t count, std::size_t vectors, unsigned* out) {
  constexpr std::size_t kAVector = kBf16 ? 8 : 4;
  constexpr int kUnrolled = 4;
  const std::size_t first = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  const uint4* const in = static_cast<const uint4*>(x);
  unsigned amax = 0;
  std::size_t i = first;
  for (; i + (kUnrolled - 1) * stride < vectors; i += kUnrolled * stride) {
    uint4 v[kUnrolled];
#pragma unroll
    for (int k = 0; k < kUnrolled; ++k) v[k] = in[i + k * stride];
#pragma unroll
    for (int k = 0; k < kUnrolled; ++k) amax = LargerOfVector(amax, v[k], kBf16, kKeepsNan);
  }
  for (; i < vectors; i += stride) amax = LargerOfVector(amax, in[i], kBf16, kKeepsNan);
  SideJob tail;
  tail.x = x;
  tail.bf16 = kBf16;
  for (std::size_t j = vectors * kAVector + first; j < count; j += stride) {
    amax = Larger(amax, tail.Element(0, j), kKeepsNan);
  }
  StoreBlockAmax<kThreads>(__uint_as_float(amax), out);
}

// out[r] = the amax of row r; one warp for each row.
__global__ void __launch_bounds__(kThreads)
    RowAmaxKernel(SideJob job, bool keeps_nan, unsigned* out) {
  const std::size_t row = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (row >= job.rows) return;
  unsigned amax = 0;
  for (std::size_t c = threadIdx.x % 32; c < job.cols; c += 32) {
    amax = Larger(amax, job.Element(row, c), keeps_nan);
  }
  amax = __reduce_max_sync(0xFFFFFFFFu, amax);
  if (threadIdx.x % 32 == 0) out[row] = amax;
}

}  // namespace

void LaunchAmax(const DeviceMatrix& x, float* amax, bool keeps_nan, StreamHandle stream) {
  const std::size_t count = x.rows * x.cols;
  if (count == 0) return;
  const bool bf16 = x.type == ElementType::kBf16;
  const bool aligned = IsAligned(x.data);
  const std::size_t vectors = aligned ? count / (bf16 ? 8 : 4) : 0;
  const std::size_t wanted = ((aligned ? vectors : count) + 4 * kThreads - 1) / (4 * kThreads);
  const unsigned blocks = static_cast<unsigned>(wanted < 4096 ? (wanted == 0 ? 1 : wanted) : 4096);
  auto* const out = reinterpret_cast<unsigned*>(amax);
  const cudaStream_t native = NativeStream(stream);
  const auto launch = [&](auto kernel) {
    kernel<<<blocks, kThreads, 0, native>>>(x.data, count, vectors, out);
  };
  if (bf16) {
    keeps_nan ? launch(AmaxKernel<true, true>) : launch(AmaxKernel<true, false>);
  } else {
    keeps_nan ? launch(AmaxKernel<false, true>) : launch(AmaxKernel<false, false>);
  }
  CheckLaunch("the amax kernel");
}

void LaunchRowAmax(const DeviceMatrix& x, float* amax, bool keeps_nan, StreamHandle stream) {
  if (x.rows == 0) return;
  const auto blocks = Blocks(x.rows * 32, kThreads);
  RowAmaxKernel<<<blocks, kThreads, 0, NativeStream(stream)>>>(JobOf(x, {}, false), keeps_nan,
                                                               reinterpret_cast<unsigned*>(amax));
  CheckLaunch("the kernel of row maxima");
}

}  // namespace fp4lab::cuda
