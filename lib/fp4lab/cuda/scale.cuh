// Block scales of the fast kernels: the byte of a block's amax, and what elements are multiplied
// by.
#pragma once

#include <cstdint>

#include "fp4lab/block/scale_rules.h"
#include "fp4lab/cuda/convert.cuh"

namespace fp4lab::cuda {

enum class Scaling : std::uint8_t { kNvfp4, kMicroscaling, kTensor };

inline constexpr int kScaleBytes = 128;  // of E4M3 without the sign

template <Scaling kScaling, FormatId kElement>
struct Scaler;

// The factor is a function of the byte and the tensor: a table, made by the block's threads.
template <FormatId kElement>
struct Scaler<Scaling::kNvfp4, kElement> {
  float per_amax;
  const float* factors;  // [kScaleBytes], shared memory

  // Every thread calls it; `table` is ready after the block's next barrier.
  __device__ Scaler(ScaleRule, const float* amax, float* table) : factors(table) {
    constexpr BlockFormat kFormat{FormatId::kE2M1, FormatId::kE4M3, 1, 16, ScaleRule::kNvfp4};
    const TensorScale tensor = TensorScaleOf(kFormat, *amax);
    per_amax = tensor.per_amax;
    for (unsigned i = threadIdx.x; i < kScaleBytes; i += blockDim.x) {
      table[i] = Multiplier(kFormat, static_cast<std::uint8_t>(i), tensor);
    }
  }
  __device__ std::uint32_t Byte(float block_amax) const {
    return NearestFp8Pair<FormatId::kE4M3>(block_amax * per_amax, 0.0f) & 0x7Fu;
  }
  __device__ float Factor(std::uint32_t byte) const { return factors[byte]; }
  // BF16 bits, exact.
  __device__ static std::uint32_t Value(std::uint32_t byte) {
    return __float_as_uint(E4m3Value(byte)) >> 16;
  }
};

template <FormatId kElement>
struct Scaler<Scaling::kMicroscaling, kElement> {
  ScaleRule rule;

  __device__ Scaler(ScaleRule r, const float*, float*) : rule(r) {}
  __device__ std::uint32_t Byte(float block_amax) const {
    constexpr int kMaxExponent = MaxExponent(kElement);
    const std::uint32_t bits = __float_as_uint(block_amax);
    if (rule == ScaleRule::kFloor) return FloorByte(bits, kMaxExponent);
    if (rule == ScaleRule::kCeil) return CeilByte(bits, kMaxExponent);
    if (rule == ScaleRule::kEven) {
      return EvenByte(bits, kMaxExponent, FormatOf(kElement).mantissa_bits);
    }
    return UpwardE8m0(block_amax * (1.0f / MaxFinite(kElement)));
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

  __device__ Scaler(ScaleRule, const float* amax, float*) {
    factor = Fp8TensorScale(kElement, *amax);
  }
  __device__ std::uint32_t Byte(float) const { return 0; }
  __device__ float Factor(std::uint32_t) const { return factor; }
  __device__ static std::uint32_t Value(std::uint32_t) { return 0x3F80u; }
};

}  // namespace fp4lab::cuda
