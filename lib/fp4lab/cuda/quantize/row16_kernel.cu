// Rowwise NVFP4 of BF16 elements: each thread quantizes whole blocks of 16.
#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/quantize/block16.cuh"
#include "fp4lab/cuda/quantize/row_job.cuh"

namespace fp4lab::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr int kUnrolled = 2;                            // blocks of a thread in a round
constexpr std::uint32_t kRound = kThreads * kUnrolled;  // blocks of a thread block in a round
// Rounds of a thread block, for which it fills its tables once; with more rounds the thread blocks
// end too unevenly.
constexpr std::uint32_t kMostRounds = 8;

// The blocks of a thread in a round; their numbers are kThreads apart.
struct Blocks {
  std::uint32_t w[kUnrolled][8];

  __device__ void Load(const void* x, std::uint32_t first, std::uint32_t count) {
#pragma unroll
    for (int i = 0; i < kUnrolled; ++i) {
      const std::uint32_t block = min(first + static_cast<std::uint32_t>(i) * kThreads, count - 1);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint4 v = __ldg(static_cast<const uint4*>(x) + std::size_t{2} * block + k);
        w[i][4 * k] = v.x;
        w[i][4 * k + 1] = v.y;
        w[i][4 * k + 2] = v.z;
        w[i][4 * k + 3] = v.w;
      }
    }
  }
};

__device__ void Store(const RowJob& job, std::uint32_t block, const Quantized16& q) {
  if (job.codes != nullptr) reinterpret_cast<uint2*>(job.codes)[block] = q.codes;
  if (job.scales != nullptr) StoreScale(job, block, q.byte);
  if (job.values == nullptr) return;
  const std::uint32_t scale = Scaler<Scaling::kNvfp4, FormatId::kE2M1>::Value(q.byte);
  uint4* const out = reinterpret_cast<uint4*>(job.values) + std::size_t{2} * block;
  out[0] = E2m1Values(q.codes.x, Both(scale));
  out[1] = E2m1Values(q.codes.y, Both(scale));
}

// Thread blocks for each multiprocessor.
template <RandomBits kBits>
inline constexpr int kResident = kBits == RandomBits::kNone ? 4 : 3;

// Each round is loaded while the round before is quantized.
template <RandomBits kBits>
__global__ void __launch_bounds__(kThreads, kResident<kBits>)
    Row16Kernel(RowJob job, std::uint32_t count) {
  __shared__ BlockTables tables;
  const std::uint32_t step = gridDim.x * kRound;
  std::uint32_t first = blockIdx.x * kRound + threadIdx.x;
  Blocks next;
  next.Load(job.x, first, count);
  const Block16Scaler<kBits> scaler(job.amax, &tables);
  __syncthreads();
  for (; first < count; first += step) {
    const Blocks current = next;
    if (first + step < count) next.Load(job.x, first + step, count);
    Quantized16 q[kUnrolled];
    QuantizePair(current.w, scaler, job.random, first, kThreads, &q);
#pragma unroll
    for (int i = 0; i < kUnrolled; ++i) {
      const std::uint32_t block = first + static_cast<std::uint32_t>(i) * kThreads;
      if (block < count) Store(job, block, q[i]);
    }
  }
}

template <RandomBits kBits>
void Launch(const RowJob& job, cudaStream_t stream) {
  const std::uint32_t count = job.octets / 2, rounds = DivideUp(count, kRound);
  const auto resident = static_cast<std::uint32_t>(kResident<kBits> * Multiprocessors());
  const std::uint32_t each = std::clamp(rounds / resident, 1u, kMostRounds);
  Row16Kernel<kBits><<<DivideUp(rounds, each), kThreads, 0, stream>>>(job, count);
  CheckLaunch("the kernel of rows of blocks of 16");
}

}  // namespace

void LaunchRows16(const RowJob& job, RandomBits bits, cudaStream_t stream) {
  if (bits == RandomBits::kNone) return Launch<RandomBits::kNone>(job, stream);
  bits == RandomBits::kCounter ? Launch<RandomBits::kCounter>(job, stream)
                               : Launch<RandomBits::kInstruction>(job, stream);
}

}  // namespace fp4lab::cuda
