// Block scales of the fast kernels: the scale byte from a block's amax, and the factor by which
// elements are multiplied.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/device/convert.cuh"
#include "fp4lab/cuda/device/e8m0.cuh"
#include "fp4lab/dialect/stages.h"

namespace fp4lab::cuda {

enum class Scaling : std::uint8_t { kNvfp4, kMicroscaling, kTensor };

inline constexpr int kScaleBytes = 128;  // E4M3 bytes without the sign

// The numbers of a tensor that its NVFP4 blocks share.
struct Nvfp4Tensor {
  TensorScale tensor;
  float per_amax;  // FoldedFactor: a block's amax * per_amax is its scale before encoding

  __device__ explicit Nvfp4Tensor(float amax)
      : tensor(EncodeTensorScale(kNvfp4Constant, amax)),
        per_amax(FoldedFactor(tensor.encode, TargetOf(Dialect{}))) {}
  __device__ float Factor(std::uint32_t byte) const {
    return ReciprocalFactor(Decode(FormatId::kE4M3, byte), tensor.decode);
  }
};

template <Scaling kScaling, FormatId kElement>
struct Scaler;

// The factor depends only on the byte and the tensor, so the threads of the thread block fill a
// table of it.
template <FormatId kElement>
struct Scaler<Scaling::kNvfp4, kElement> {
  float per_amax;
  const float* factors;  // [kScaleBytes], shared memory

  // Every thread of the thread block runs this constructor; `table` is ready after the next
  // barrier.
  __device__ Scaler(BlockScale, const float* amax, float* table) : factors(table) {
    const Nvfp4Tensor tensor(*amax);
    per_amax = tensor.per_amax;
    for (unsigned i = threadIdx.x; i < kScaleBytes; i += blockDim.x) table[i] = tensor.Factor(i);
  }
  __device__ std::uint32_t Byte(float block_amax) const {
    return NearestFp8Pair<FormatId::kE4M3>(block_amax * per_amax, 0.0f) & 0x7Fu;
  }
  __device__ float Factor(std::uint32_t byte) const { return factors[byte]; }
  // The block scale as BF16 bits, exact.
  __device__ static std::uint32_t Value(std::uint32_t byte) {
    return __float_as_uint(E4m3Value(byte)) >> 16;
  }
};

template <FormatId kElement>
struct Scaler<Scaling::kMicroscaling, kElement> {
  BlockScale rule;

  __device__ Scaler(BlockScale r, const float*, float*) : rule(r) {}
  __device__ std::uint32_t Byte(float block_amax) const {
    return E8m0Byte(rule, block_amax, MaxExponent(kElement), FormatOf(kElement).mantissa_bits,
                    1.0f / MaxFinite(kElement));
  }
  __device__ float Factor(std::uint32_t byte) const {
    return E8m0Reciprocal(static_cast<std::uint8_t>(byte));
  }
  __device__ static std::uint32_t Value(std::uint32_t byte) {
    return byte == 0 ? 0x0040u : byte == 255 ? 0x7FFFu : byte << 7;
  }
};

template <FormatId kElement>
struct Scaler<Scaling::kTensor, kElement> {
  float factor;

  __device__ Scaler(BlockScale, const float* amax, float*)
      : factor(TensorFp8Scale(kElement, *amax).encode) {}
  __device__ std::uint32_t Byte(float) const { return 0; }
  __device__ float Factor(std::uint32_t) const { return factor; }
  __device__ static std::uint32_t Value(std::uint32_t) { return 0x3F80u; }
};

}  // namespace fp4lab::cuda
