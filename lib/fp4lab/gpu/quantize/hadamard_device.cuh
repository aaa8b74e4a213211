// The Hadamard transform of a group in registers (transform/hadamard.h), and the amax before and
// after the transform.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/device/bf16_words.cuh"
#include "fp4lab/gpu/quantize/quantize_device.cuh"
#include "fp4lab/transform/hadamard_transform.h"

namespace fp4lab::gpu {

using cuda::HalfOf;

template <int kSize, class Number>
__device__ inline void Butterflies(Number (&x)[kSize]) {
#pragma unroll
  for (int stride = 1; stride < kSize; stride *= 2) {
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      if ((k & stride) != 0) continue;
      const Number a = x[k], b = x[k + stride];
      x[k] = a + b;
      x[k + stride] = a - b;
    }
  }
}

// The arithmetic in which the sums of a group of BF16 values are exact.
enum class Sums : std::uint8_t {
  kNarrow,  // in binary32
  kSplit,   // upper and lower parts of the values in binary32, added at the end
  kWide,    // in binary64
};
struct SumPlan {
  Sums sums = Sums::kNarrow;
  float splitter = 0.0f;  // (v + splitter) - splitter is v's upper part; kSplit
};

// Chooses the arithmetic of a group's sums. `high`, `low`: the biased exponents of the group's
// largest and smallest nonzero magnitude. Binary32 sums are exact if the largest sum and the last
// place of the smallest value lie within 24 bits, far from overflow and subnormals. Upper parts are
// multiples of 2^-24 of the largest sum, so lower parts may reach down as many bits again.
template <int kSize>
__device__ inline SumPlan PlanOf(std::uint32_t high, std::uint32_t low) {
  constexpr std::uint32_t kGrowth = kSize == 16 ? 4 : 5;  // log2(kSize)
  const std::uint32_t span = high - low;
  const bool fits = high < 249 && low > 16 && span <= 41 - 2 * kGrowth;
  const Sums sums = !fits ? Sums::kWide : span <= 16 - kGrowth ? Sums::kNarrow : Sums::kSplit;
  return {sums, __uint_as_float((high + kGrowth) << 23 | 0x400000u)};
}

// Plans the sums of kSize values. *largest: the float bits of the largest magnitude, with NaN above
// infinity.
template <int kSize>
__device__ inline SumPlan PlanSums(const float* v, std::uint32_t* largest) {
  std::uint32_t most = 0, least = 0xFFFFFFFFu;  // least: of |v| - 1 unit, without zeros
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const std::uint32_t magnitude = __float_as_uint(v[k]) & 0x7FFFFFFFu;
    most = max(most, magnitude);
    least = min(least, magnitude - 1u);
  }
  *largest = most;
  return most == 0 ? SumPlan{} : PlanOf<kSize>(most >> 23, (least + 1u) >> 23);
}

// PlanSums for kSize rows of two neighbouring BF16 columns, one pair per word; both columns share
// one plan. *largest: the BF16 bits of the largest magnitude of each column. Adding 2^15 - 1 to a
// 16-bit field never carries and makes 0 the largest signed number, so zeros do not count.
template <int kSize>
__device__ inline SumPlan PlanPairSums(const std::uint32_t* pairs, std::uint32_t* largest) {
  std::uint32_t most = 0, least = 0x7FFF7FFFu;  // least: of |v| - 1 unit - 2^15
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const std::uint32_t magnitudes = pairs[k] & 0x7FFF7FFFu;
    most = __vmaxu2(most, magnitudes);
    least = __vmins2(least, magnitudes + 0x7FFF7FFFu);
  }
  least ^= 0x80008000u;
  *largest = most;
  const std::uint32_t high[2] = {(most & 0xFFFFu) >> 7, most >> 23};
  const std::uint32_t low[2] = {((least & 0xFFFFu) + 1) >> 7, ((least >> 16) + 1) >> 7};
  return most == 0 ? SumPlan{} : PlanOf<kSize>(max(high[0], high[1]), min(low[0], low[1]));
}

// Plans all groups of kSize rows in kUnit rows.
template <int kSize, int kUnit>
__device__ inline void PlanUnit(const std::uint32_t (&pairs)[kUnit], SumPlan* plans) {
#pragma unroll
  for (int g = 0; g < kUnit; g += kSize) {
    std::uint32_t largest = 0;
    plans[g / kSize] = PlanPairSums<kSize>(pairs + g, &largest);
  }
}

// Unpacks column w of `pairs` to binary32.
template <int kSize>
__device__ inline void UnpackColumn(const std::uint32_t (&pairs)[kSize], int w, float* v) {
#pragma unroll
  for (int k = 0; k < kSize; ++k) v[k] = HalfOf(pairs[k], w);
}

template <int kSize>
inline constexpr std::uint32_t kHadamardSigns = kSize == 16 ? kTeSignMask16 : kTeSignMask32;

// The sums of a group in binary64, rounded to binary32; for size 16 they include the factor 1/4.
// The sums are exact as long as the group spans less than 2^40 (8 bits of each value, 5 for the
// sum, 53 in all).
template <int kSize>
__device__ inline void WideSums(const float* v, float (&y)[kSize]) {
  double x[kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) x[k] = (kHadamardSigns<kSize> >> k & 1u) != 0 ? -v[k] : v[k];
  Butterflies(x);
#pragma unroll
  for (int k = 0; k < kSize; ++k) y[k] = static_cast<float>(kSize == 16 ? x[k] * 0.25 : x[k]);
}

// The sums of a group in binary32, without the factor 1/4.
template <int kSize>
__device__ inline void NarrowSums(const float* v, float (&y)[kSize]) {
#pragma unroll
  for (int k = 0; k < kSize; ++k) y[k] = (kHadamardSigns<kSize> >> k & 1u) != 0 ? -v[k] : v[k];
  Butterflies(y);
}

// The sums of a group from the upper and lower parts of its values in binary32, without the factor
// 1/4. Only the final addition of the two sums rounds.
template <int kSize>
__device__ inline void SplitSums(const float* v, float splitter, float (&y)[kSize]) {
  float upper[kSize], lower[kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const float x = (kHadamardSigns<kSize> >> k & 1u) != 0 ? -v[k] : v[k];
    upper[k] = (x + splitter) - splitter;
    lower[k] = x - upper[k];
  }
  Butterflies(upper);
  Butterflies(lower);
#pragma unroll
  for (int k = 0; k < kSize; ++k) y[k] = upper[k] + lower[k];
}

// Computes the sums of a group, rounded to binary32, and returns the factor that they still need.
// If any active lane of the warp needs split sums, all lanes without a wide plan compute split
// sums: the bits are the same, and the warp does not diverge.
template <int kSize>
__device__ inline float HadamardSums(const float* v, const SumPlan& plan, float (&y)[kSize]) {
  static_assert(kSize == 16 || kSize == 32);
  if (plan.sums == Sums::kWide) {
    WideSums(v, y);
    return kSize == 32 ? kInverseSqrt32 : 1.0f;
  }
  if (__all_sync(__activemask(), plan.sums == Sums::kNarrow)) {
    NarrowSums(v, y);
  } else {
    SplitSums(v, plan.splitter, y);
  }
  return kSize == 32 ? kInverseSqrt32 : 0.25f;
}

// The Hadamard transform of kSize values (transform/hadamard.h), packed as BF16, two neighbours per
// word.
template <int kSize>
__device__ inline void HadamardWords(const float* v, const SumPlan& plan, std::uint32_t* words) {
  float y[kSize];
  const float factor = HadamardSums(v, plan, y);
#pragma unroll
  for (int k = 0; k < kSize; k += 2) {  // adding +0 makes a sum of zeros +0
    const __nv_bfloat162 pair =
        __floats2bfloat162_rn(__fmaf_rn(y[k], factor, 0.0f), __fmaf_rn(y[k + 1], factor, 0.0f));
    words[k / 2] = *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

// The Hadamard transform of kSize values in place.
template <int kSize>
__device__ inline void HadamardGroup(float* v, const SumPlan& plan) {
  std::uint32_t words[kSize / 2];
  HadamardWords<kSize>(v, plan, words);
#pragma unroll
  for (int k = 0; k < kSize; ++k) v[k] = HalfOf(words[k / 2], k % 2);
}

// *after = max(*after, amax of the group after HadamardGroup); NaN is passed over. Rounding is
// monotonic, so only the largest sum is rounded.
template <int kSize>
__device__ inline void HadamardMaximum(const float* v, const SumPlan& plan, float* after) {
  float y[kSize], amax = 0.0f;
  const float factor = HadamardSums(v, plan, y);
#pragma unroll
  for (int k = 0; k < kSize; ++k) amax = fmaxf(amax, fabsf(y[k]));
  *after = fmaxf(*after, __bfloat162float(__float2bfloat16_rn(amax * factor)));
}

// Raises *before and *after to the amax of the group before and after HadamardGroup; NaN is passed
// over.
template <int kSize>
__device__ inline void HadamardMaxima(const float* v, float* before, float* after) {
  std::uint32_t largest = 0;
  const SumPlan plan = PlanSums<kSize>(v, &largest);
  if (plan.sums != Sums::kWide) {
    *before = fmaxf(*before, __uint_as_float(largest));
  } else {
#pragma unroll
    for (int k = 0; k < kSize; ++k) *before = LargerMagnitude(*before, v[k]);
  }
  HadamardMaximum<kSize>(v, plan, after);
}

// HadamardMaxima for two neighbouring BF16 columns.
template <int kSize>
__device__ inline void PairMaxima(const std::uint32_t (&pairs)[kSize], float* before,
                                  float* after) {
  std::uint32_t largest = 0;
  const SumPlan plan = PlanPairSums<kSize>(pairs, &largest);
  const bool finite = plan.sums != Sums::kWide;
  if (finite) {
    *before = fmaxf(*before, __uint_as_float(max(largest << 16, largest & 0xFFFF0000u)));
  }
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    float v[kSize];
    UnpackColumn<kSize>(pairs, w, v);
    if (!finite) {
#pragma unroll
      for (int k = 0; k < kSize; ++k) *before = LargerMagnitude(*before, v[k]);
    }
    HadamardMaximum<kSize>(v, plan, after);
  }
}

// Raises *before to the amax of two neighbouring columns and, if kTransforms, *after to their amax
// after the transform.
template <bool kTransforms, int kSize>
__device__ inline void MeasurePairs(const std::uint32_t (&pairs)[kSize], float* before,
                                    float* after) {
  if constexpr (kTransforms) {
    PairMaxima<kSize>(pairs, before, after);
  } else {
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      *before = LargerMagnitude(*before, __uint_as_float(pairs[k] << 16));
      *before = LargerMagnitude(*before, __uint_as_float(pairs[k] & 0xFFFF0000u));
    }
  }
}

// Loads kUnit rows of two neighbouring columns, one pair per word.
template <int kUnit>
__device__ inline void LoadPairs(const Bf16* from, std::size_t stride,
                                 std::uint32_t (&pairs)[kUnit]) {
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    pairs[i] = *reinterpret_cast<const std::uint32_t*>(from + i * stride);
  }
}

}  // namespace fp4lab::gpu
