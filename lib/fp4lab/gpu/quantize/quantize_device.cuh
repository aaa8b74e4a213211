// The arithmetic of block quantization in registers, for kernels. The results are values, not
// codes.
#pragma once

#include <cstdint>

#include "fp4lab/base/random.h"
#include "fp4lab/cuda/device/amax.cuh"
#include "fp4lab/cuda/device/e8m0.cuh"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/gpu/kernels/math.cuh"

namespace fp4lab::gpu {

using cuda::LargerMagnitude;

// Facts of an element format; kernels get them as arguments because device code cannot read host
// tables.
struct ElementRule {
  int mantissa_bits = 0;
  int least_exponent = 0;  // binary32's biased exponent of the least normal
  float max = 0.0f, nan = 0.0f;
};

struct BlockRule {
  bool quantizes = false;  // false: values stay
  BlockScale rule = BlockScale::kOneBlock;
  ElementRule element;
  int max_exponent = 0;  // floor(log2(largest element))
  float reciprocal_of_max = 0.0f;
};

inline ElementRule RuleOf(FormatId id) {
  const Format& f = FormatOf(id);
  return {f.mantissa_bits, 128 - f.bias, MaxFinite(id), Decode(f, NanCode(f))};
}

inline BlockRule RuleOf(const Dialect& d) {
  return {true, d.block_scale, RuleOf(d.element), MaxExponent(d.element),
          1.0f / MaxFinite(d.element)};
}

// ---- One element: Encode and Decode of formats/format.h in one step

__device__ inline float PowerOfTwoBits(int biased_exponent) {
  return __int_as_float(biased_exponent << 23);
}

// The biased exponent of the binade of a magnitude; below the least normal, the exponent of
// subnormals.
__device__ inline int Binade(const ElementRule& f, float magnitude) {
  const int e = __float_as_int(magnitude) >> 23;
  return e > f.least_exponent ? e : f.least_exponent;
}

// Rounds v to the format, ties to even: adding and subtracting 2^23 units in the last place rounds
// to one unit. Larger magnitudes saturate.
__device__ inline float RoundNearest(const ElementRule& f, float v) {
  const float a = fminf(fabsf(v), f.max);
  const float shifter = PowerOfTwoBits(Binade(f, a) - f.mantissa_bits + 23);
  const float rounded = copysignf((a + shifter) - shifter, v);
  return isnan(v) ? f.nan : rounded;
}

// Rounds v stochastically: 16 random bits are added below the last place that is kept, then the
// bits below that place are cut, so that a carry rounds up. Below the least normal L, |v| + L,
// truncated to binary32, is rounded in the same way.
__device__ inline float RoundStochastic(const ElementRule& f, float v, std::uint32_t random16) {
  const float a = fminf(fabsf(v), f.max), least = PowerOfTwoBits(f.least_exponent);
  const bool subnormal = a < least;
  const std::uint32_t bits = __float_as_uint(subnormal ? __fadd_rz(a, least) : a);
  const int cut = 23 - f.mantissa_bits;
  const float carried = __uint_as_float((bits + (random16 << (cut - 16))) >> cut << cut);
  const float rounded = copysignf(subnormal ? carried - least : carried, v);
  return isnan(v) ? f.nan : rounded;
}

// ---- RoundNearest and RoundStochastic for E2M1, whose facts are constants. NaN becomes 6, because
// E2M1 has no NaN.

__device__ inline float WithinE2m1(float v) { return fmaxf(fminf(v, 6.0f), -6.0f); }

// The unit in the last place is 1/2 below 2.
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

// ---- One block's scale (dialect/stages.h)

// The numbers of a tensor that its blocks need: encode scale S, decode scale D, and FoldedFactor
// (dialect/block_scale_rules.h).
struct TensorNumbers {
  float encode = 1.0f, decode = 1.0f, per_amax = 0.0f;
};

// The factors of a block's elements: `multiplier` before rounding, `value` after it.
struct ScalePair {
  float multiplier, value;
};

__device__ inline TensorNumbers TensorNumbersOf(const BlockRule& f, float amax) {
  if (f.rule == BlockScale::kFolded) {
    const TensorScale tensor = EncodeTensorScale(kNvfp4Constant, amax);
    return {tensor.encode, tensor.decode, FoldedFactor(tensor.encode, TargetOf(Dialect{}))};
  }
  if (f.rule == BlockScale::kOneBlock) {  // TensorFp8Scale
    float encode = 1.0f;
    if (amax != 0.0f && amax <= kFloatMax) encode = fminf(f.element.max / amax, kFloatMax);
    return {encode, 1.0f / encode, 0.0f};
  }
  return {};
}

__device__ inline ScalePair ScalesOf(const BlockRule& f, float amax, const TensorNumbers& tensor) {
  if (f.rule == BlockScale::kOneBlock) return {tensor.encode, 1.0f};
  if (f.rule == BlockScale::kFolded) {
    const ElementRule e4m3{3, 121, 448.0f, 0.0f};
    const float value = RoundNearest(e4m3, amax * tensor.per_amax);
    return {ReciprocalFactor(value, tensor.decode), value};
  }
  const std::uint8_t byte =
      cuda::E8m0Byte(f.rule, amax, f.max_exponent, f.element.mantissa_bits, f.reciprocal_of_max);
  if (byte == 255) return {__int_as_float(0x7FC00000), __int_as_float(0x7FC00000)};
  return {E8m0Reciprocal(byte), byte == 0 ? 0x1p-127f : PowerOfTwoBits(byte)};
}

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

// Replaces kBlock neighbours along the reduction axis by their quantized values. `element`: the
// number of the first neighbour, a multiple of 8.
template <int kBlock, bool kStochastic, bool kE2m1>
__device__ inline void QuantizeBlock(const BlockRule& f, const ScalePair& scale,
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
