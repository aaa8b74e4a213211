// The arithmetic of block quantization for kernels, in registers: values out, no codes.
#pragma once

#include <cstdint>

#include "fp4lab/base/random.h"
#include "fp4lab/block/scale_rules.h"
#include "fp4lab/gpu/math.cuh"

namespace fp4lab::gpu {

// An element format's facts; host tables do not exist on the device.
struct ElementRule {
  int mantissa_bits = 0;
  int least_exponent = 0;  // binary32's biased exponent of the least normal
  float max = 0.0f, nan = 0.0f;
};

struct BlockRule {
  bool quantizes = false;  // false: values stay
  ScaleRule rule = ScaleRule::kTensor;
  ElementRule element;
  int max_exponent = 0;  // floor(log2(largest element))
  float reciprocal_of_max = 0.0f;
};

inline ElementRule RuleOf(FormatId id) {
  const Format& f = FormatOf(id);
  return {f.mantissa_bits, 128 - f.bias, MaxFinite(id), Decode(f, NanCode(f))};
}

inline BlockRule RuleOf(const BlockFormat& f) {
  return {true, f.rule, RuleOf(f.element), MaxExponent(f.element), 1.0f / MaxFinite(f.element)};
}

// ---- One element: Encode and Decode of formats/format.h in one step

__device__ inline float PowerOfTwoBits(int biased_exponent) {
  return __int_as_float(biased_exponent << 23);
}

// The binade's biased exponent, that of subnormals where |v| is below the least normal.
__device__ inline int Binade(const ElementRule& f, float magnitude) {
  const int e = __float_as_int(magnitude) >> 23;
  return e > f.least_exponent ? e : f.least_exponent;
}

// Adding 2^23 units rounds to a unit in the last place, ties to even; larger magnitudes saturate.
__device__ inline float RoundNearest(const ElementRule& f, float v) {
  const float a = fminf(fabsf(v), f.max);
  const float shifter = PowerOfTwoBits(Binade(f, a) - f.mantissa_bits + 23);
  const float rounded = copysignf((a + shifter) - shifter, v);
  return isnan(v) ? f.nan : rounded;
}

// 16 random bits are added under the last place that is kept, and what is below it cut: the carry
// rounds up. Below the least normal L the same is done to |v| + L, cut to binary32.
__device__ inline float RoundStochastic(const ElementRule& f, float v, std::uint32_t random16) {
  const float a = fminf(fabsf(v), f.max), least = PowerOfTwoBits(f.least_exponent);
  const bool subnormal = a < least;
  const std::uint32_t bits = __float_as_uint(subnormal ? __fadd_rz(a, least) : a);
  const int cut = 23 - f.mantissa_bits;
  const float carried = __uint_as_float((bits + (random16 << (cut - 16))) >> cut << cut);
  const float rounded = copysignf(subnormal ? carried - least : carried, v);
  return isnan(v) ? f.nan : rounded;
}

// ---- The same for E2M1, whose facts are then constants. NaN becomes 6, as it has to.

__device__ inline float WithinE2m1(float v) { return fmaxf(fminf(v, 6.0f), -6.0f); }

// Units are 1/2 below 2.
__device__ inline float RoundNearestE2m1(float v) {
  const float bounded = WithinE2m1(v), a = fabsf(bounded);
  const int binade = max(__float_as_int(a) & 0x7F800000, 0x3F800000);
  const float shifter = __int_as_float(binade + (22 << 23));
  return copysignf((a + shifter) - shifter, bounded);
}

__device__ inline float RoundStochasticE2m1(float v, std::uint32_t random16) {
  const float bounded = WithinE2m1(v), a = fabsf(bounded);
  const bool subnormal = a < 1.0f;
  const std::uint32_t bits = __float_as_uint(subnormal ? __fadd_rz(a, 1.0f) : a);
  const float carried = __uint_as_float((bits + (random16 << 6)) & 0xFFC00000u);
  return copysignf(subnormal ? carried - 1.0f : carried, bounded);
}

// ---- One block's scale (block/scale_rules.h)

struct BlockScale {
  float multiplier, value;
};

__device__ inline TensorScale TensorScaleOf(const BlockRule& f, float amax) {
  if (f.rule == ScaleRule::kNvfp4) {
    const float encode = Nvfp4EncodeScale(amax);
    return {encode, 1.0f / encode, encode * kOneSixth};
  }
  if (f.rule == ScaleRule::kTensor) {  // Fp8TensorScale
    float encode = 1.0f;
    if (amax != 0.0f && amax <= kFloatMax) encode = fminf(f.element.max / amax, kFloatMax);
    return {encode, 1.0f / encode, 0.0f};
  }
  return {};
}

__device__ inline std::uint8_t E8m0Byte(const BlockRule& f, float amax) {
  const std::uint32_t bits = __float_as_uint(amax);
  switch (f.rule) {
    case ScaleRule::kFloor:
      return FloorByte(bits, f.max_exponent);
    case ScaleRule::kCeil:
      return CeilByte(bits, f.max_exponent);
    case ScaleRule::kEven:
      return EvenByte(bits, f.max_exponent, f.element.mantissa_bits);
    case ScaleRule::kRceil: {
      const std::uint32_t up = internal::RoundExponent(__float_as_uint(amax * f.reciprocal_of_max),
                                                       Rounding::kTowardPositive, 0);
      return static_cast<std::uint8_t>(up == 255 ? 254 : up);
    }
    case ScaleRule::kNvfp4:
    case ScaleRule::kTensor:
      break;
  }
  return 0;
}

__device__ inline BlockScale BlockScaleOf(const BlockRule& f, float amax,
                                          const TensorScale& tensor) {
  if (f.rule == ScaleRule::kTensor) return {tensor.encode, 1.0f};
  if (f.rule == ScaleRule::kNvfp4) {
    const ElementRule e4m3{3, 121, 448.0f, 0.0f};
    const float value = RoundNearest(e4m3, amax * tensor.per_amax);
    const float decode = value * tensor.decode;
    const float reciprocal = 1.0f / decode;
    return {decode != 0.0f && reciprocal < kFloatMax ? reciprocal : kFloatMax, value};
  }
  const std::uint8_t byte = E8m0Byte(f, amax);
  if (byte == 255) return {__int_as_float(0x7FC00000), __int_as_float(0x7FC00000)};
  return {E8m0Reciprocal(byte), byte == 0 ? 0x1p-127f : PowerOfTwoBits(byte)};
}

// max(amax, |v|), NaN passed over.
__device__ inline float LargerMagnitude(float amax, float v) { return fmaxf(amax, fabsf(v)); }

// ---- One block

// The eight 16-bit fields of one Philox block.
struct RandomFields {
  PhiloxBlock words;
  __device__ std::uint32_t operator[](int i) const {
    const std::uint32_t word = i / 2 == 0   ? words[0]
                               : i / 2 == 1 ? words[1]
                               : i / 2 == 2 ? words[2]
                                            : words[3];
    return (word >> (i % 2 * 16)) & 0xFFFFu;
  }
};

// kBlock neighbours along the reduction axis become values. `element`: the number of the first one,
// a multiple of 8.
template <int kBlock, bool kStochastic, bool kE2m1>
__device__ inline void QuantizeBlock(const BlockRule& f, const BlockScale& scale,
                                     const RandomStream& random, std::uint64_t element, float* v) {
#pragma unroll
  for (int i = 0; i < kBlock; i += 8) {
    RandomFields fields{};
    if (kStochastic) fields.words = random.Block((element + i) / 8);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float scaled = v[i + j] * scale.multiplier;
      float rounded;
      if constexpr (kE2m1) {
        rounded = kStochastic ? RoundStochasticE2m1(scaled, fields[j]) : RoundNearestE2m1(scaled);
      } else {
        rounded = kStochastic ? RoundStochastic(f.element, scaled, fields[j])
                              : RoundNearest(f.element, scaled);
      }
      v[i + j] = rounded * scale.value;
    }
  }
}

}  // namespace fp4lab::gpu
