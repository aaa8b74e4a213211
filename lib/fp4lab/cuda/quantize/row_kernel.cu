// Rowwise quantization in one pass at memory speed: a thread takes eight elements at a time, and
// two (or four) neighbouring threads hold a block. The number of columns must be a multiple of the
// block's. row16_kernel.cu quantizes NVFP4 from BF16.
#include <type_traits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/device/eight.cuh"
#include "fp4lab/cuda/quantize/launch.h"
#include "fp4lab/cuda/quantize/row_job.cuh"
#include "fp4lab/cuda/quantize/scale.cuh"

namespace fp4lab::cuda {
namespace {

constexpr int kThreads = 256;

struct Loaded16 {  // eight BF16 elements
  uint4 w;
  __device__ void Load(const void* x, std::uint32_t octet) {
    w = __ldcs(static_cast<const uint4*>(x) + octet);
  }
  __device__ Eight Elements() const { return EightOf(w); }
  __device__ float Largest(const Eight& e, bool* nan) const {
    const std::uint32_t largest = LargestBf16(w);
    *nan = largest > kInfBf16;
    return *nan ? LargestOf(e, nan) : __uint_as_float(largest << 16);
  }
};
struct Loaded32 {  // eight floats
  float4 x, y;
  __device__ void Load(const void* in, std::uint32_t octet) {
    x = __ldcs(static_cast<const float4*>(in) + std::size_t{2} * octet);
    y = __ldcs(static_cast<const float4*>(in) + std::size_t{2} * octet + 1);
  }
  __device__ Eight Elements() const { return EightOf(x, y); }
  __device__ float Largest(const Eight& e, bool* nan) const { return LargestOf(e, nan); }
};

template <class Loaded, FormatId kElement, Scaling kScaling, RandomBits kBits>
__device__ void QuantizeOctet(const RowJob& job, const Scaler<kScaling, kElement>& scaler,
                              const Loaded& loaded, std::uint32_t octet) {
  constexpr std::uint32_t kShared = kScaling == Scaling::kNvfp4 ? 2 : 4;  // threads of a block
  const Eight e = loaded.Elements();
  std::uint32_t byte = 0;
  bool special = false;
  if constexpr (kScaling != Scaling::kTensor) {
    float amax = loaded.Largest(e, &special);
#pragma unroll
    for (std::uint32_t step = 1; step < kShared; step *= 2) {
      amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, static_cast<int>(step)));
    }
    byte = scaler.Byte(amax);
    if (job.scales != nullptr && octet % kShared == 0 && octet < job.octets) {
      StoreScale(job, octet / kShared, byte);
    }
  }
  if (octet >= job.octets) return;
  const float factor = scaler.Factor(byte);
  special = special || (kScaling == Scaling::kMicroscaling && byte == 255);
  if constexpr (kElement == FormatId::kE2M1) {
    const RandomOctet<kBits> random(job.random, octet);
    const std::uint32_t codes = E2m1Codes<kBits>(e, Both(factor), special, random);
    if (job.codes != nullptr) reinterpret_cast<std::uint32_t*>(job.codes)[octet] = codes;
    if (job.values != nullptr) {
      reinterpret_cast<uint4*>(job.values)[octet] = E2m1Values(codes, Both(scaler.Value(byte)));
    }
  } else {
    const uint2 codes = Fp8Codes<kElement>(e, factor);
    if (job.codes != nullptr) reinterpret_cast<uint2*>(job.codes)[octet] = codes;
    if (job.values != nullptr) {
      reinterpret_cast<uint4*>(job.values)[octet] = Fp8Values<kElement>(codes, scaler.Value(byte));
    }
  }
}

// The octets of a thread block in a round, and a thread's elements of them.
template <class Loaded>
struct Round {
  static constexpr int kUnrolled = sizeof(Loaded) == 16 ? 4 : 2;
  static constexpr std::uint32_t kOctets = kThreads * kUnrolled;
  Loaded loaded[kUnrolled];

  __device__ static std::uint32_t Octet(std::uint32_t round, int k) {
    return round * kOctets + static_cast<std::uint32_t>(k * kThreads) + threadIdx.x;
  }
  __device__ void Load(const RowJob& job, std::uint32_t round) {
#pragma unroll
    for (int k = 0; k < kUnrolled; ++k) {
      const std::uint32_t octet = Octet(round, k);
      loaded[k].Load(job.x, octet < job.octets ? octet : 0);
    }
  }
};

// One round for each thread block: persistent thread blocks were slower. The number of octets is a
// multiple of kShared, so that the threads that hold a block of elements run together.
template <class Loaded, FormatId kElement, Scaling kScaling, RandomBits kBits>
__global__ void __launch_bounds__(kThreads) RowKernel(RowJob job) {
  __shared__ float table[kScaleBytes];
  Round<Loaded> round;
  round.Load(job, blockIdx.x);
  const Scaler<kScaling, kElement> scaler(job.rule, job.amax, table);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < Round<Loaded>::kUnrolled; ++k) {
    const std::uint32_t octet = Round<Loaded>::Octet(blockIdx.x, k);
    // The octets of a warp are consecutive. A warp returns only if all its octets are past the end;
    // if only some are, its last threads take part in the shuffles.
    if (octet - threadIdx.x % 32 >= job.octets) return;
    QuantizeOctet<Loaded, kElement, kScaling, kBits>(job, scaler, round.loaded[k], octet);
  }
}

template <class Loaded, FormatId kElement, Scaling kScaling, RandomBits kBits>
void Launch(const RowJob& job, cudaStream_t stream) {
  constexpr std::uint32_t kOctets = Round<Loaded>::kOctets;
  RowKernel<Loaded, kElement, kScaling, kBits>
      <<<DivideUp(job.octets, kOctets), kThreads, 0, stream>>>(job);
  CheckLaunch("the kernel of rows");
}

template <class Loaded, Scaling kScaling>
void LaunchE2m1(const RowJob& job, RandomBits bits, cudaStream_t stream) {
  if (bits == RandomBits::kCounter) {
    Launch<Loaded, FormatId::kE2M1, kScaling, RandomBits::kCounter>(job, stream);
  } else if (bits == RandomBits::kInstruction) {
    Launch<Loaded, FormatId::kE2M1, kScaling, RandomBits::kInstruction>(job, stream);
  } else {
    Launch<Loaded, FormatId::kE2M1, kScaling, RandomBits::kNone>(job, stream);
  }
}

template <class Loaded, FormatId kElement>
void LaunchFp8(const RowJob& job, cudaStream_t stream) {
  if (job.rule == BlockScale::kOneBlock) {
    Launch<Loaded, kElement, Scaling::kTensor, RandomBits::kNone>(job, stream);
  } else {
    Launch<Loaded, kElement, Scaling::kMicroscaling, RandomBits::kNone>(job, stream);
  }
}

template <class Loaded>
void LaunchFor(const Dialect& dialect, const RowJob& job, RandomBits bits, cudaStream_t stream) {
  if (dialect.element == FormatId::kE4M3) return LaunchFp8<Loaded, FormatId::kE4M3>(job, stream);
  if (dialect.element == FormatId::kE5M2) return LaunchFp8<Loaded, FormatId::kE5M2>(job, stream);
  if (dialect.block_scale != BlockScale::kFolded) {
    LaunchE2m1<Loaded, Scaling::kMicroscaling>(job, bits, stream);
  } else if constexpr (std::is_same_v<Loaded, Loaded32>) {
    LaunchE2m1<Loaded, Scaling::kNvfp4>(job, bits, stream);
  } else {
    LaunchRows16(job, bits, stream);
  }
}

}  // namespace

void LaunchRows(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide& side,
                StreamHandle stream) {
  const auto octets = static_cast<std::uint32_t>(x.rows * x.cols / 8);
  const std::size_t scale_cols = dialect.block_scale == BlockScale::kOneBlock
                                     ? 1
                                     : x.cols / static_cast<std::size_t>(dialect.block_cols);
  const RowJob job{x.data,
                   octets,
                   side.codes,
                   side.scales,
                   side.values,
                   side.amax,
                   dialect.block_scale,
                   KeyedStream(side.random),
                   side.scale_order == ScaleOrder::k128x4,
                   Divider(static_cast<std::uint32_t>(scale_cols))};
  if (x.type == ElementType::kBf16) {
    LaunchFor<Loaded16>(dialect, job, side.random_bits, NativeStream(stream));
  } else {
    LaunchFor<Loaded32>(dialect, job, side.random_bits, NativeStream(stream));
  }
}

}  // namespace fp4lab::cuda
