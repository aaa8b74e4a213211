// The Hadamard transform of a group in registers (transform/hadamard.h), and largest magnitudes.
#pragma once

#include <cstdint>

#include "fp4lab/gpu/quantize_device.cuh"

namespace fp4lab::gpu {

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

// How the sums of a group of BF16 values come out exact.
enum class Sums : std::uint8_t {
  kNarrow,  // in binary32
  kSplit,   // the upper and the lower parts of the values in binary32, added once
  kWide,    // in double
};
struct SumPlan {
  Sums sums = Sums::kNarrow;
  float splitter = 0.0f;  // adding it leaves a value's upper part; good unless kWide
};

// `high`, `low`: the biased exponents of the largest value and of the least that is not 0. In
// binary32 the largest sum and the last place of the smallest value must lie within 24 bits, far
// from overflow and subnormals. Upper parts are multiples of 2^-24 of that sum, so lower parts may
// reach down as many bits again.
template <int kSize>
__device__ inline SumPlan PlanOf(std::uint32_t high, std::uint32_t low) {
  constexpr std::uint32_t kGrowth = kSize == 16 ? 4 : 5;  // log2(kSize)
  const std::uint32_t span = high - low;
  const bool fits = high < 249 && low > 16 && span <= 41 - 2 * kGrowth;
  const Sums sums = !fits ? Sums::kWide : span <= 16 - kGrowth ? Sums::kNarrow : Sums::kSplit;
  return {sums, __uint_as_float((high + kGrowth) << 23 | 0x400000u)};
}

// `largest`: the bits of the largest magnitude, NaN above infinity.
template <int kSize>
__device__ inline SumPlan PlanSums(const float* v, std::uint32_t* largest) {
  std::uint32_t most = 0, least = 0xFFFFFFFFu;  // of |v| - 1 unit, so that zeros do not count
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const std::uint32_t magnitude = __float_as_uint(v[k]) & 0x7FFFFFFFu;
    most = max(most, magnitude);
    least = min(least, magnitude - 1u);
  }
  *largest = most;
  return most == 0 ? SumPlan{} : PlanOf<kSize>(most >> 23, (least + 1u) >> 23);
}

// The same for kSize rows of two neighbouring columns, a pair a word, which get one plan;
// `largest`: the largest magnitudes, as BF16 bits. 2^15 - 1 added to a field of 16 bits makes 0 the
// largest signed number, and never carries.
template <int kSize>
__device__ inline SumPlan PlanPairSums(const std::uint32_t* pairs, std::uint32_t* largest) {
  std::uint32_t most = 0, least = 0x7FFF7FFFu;  // of |v| - 1 unit - 2^15
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

// The plans of all groups of kSize of kUnit rows.
template <int kSize, int kUnit>
__device__ inline void PlanUnit(const std::uint32_t (&pairs)[kUnit], SumPlan* plans) {
#pragma unroll
  for (int g = 0; g < kUnit; g += kSize) {
    std::uint32_t largest = 0;
    plans[g / kSize] = PlanPairSums<kSize>(pairs + g, &largest);
  }
}

// BF16 number `half` of a word.
__device__ inline float HalfOf(std::uint32_t word, int half) {
  return __uint_as_float(half == 0 ? word << 16 : word & 0xFFFF0000u);
}

// Column w of pairs.
template <int kSize>
__device__ inline void UnpackColumn(const std::uint32_t (&pairs)[kSize], int w, float* v) {
#pragma unroll
  for (int k = 0; k < kSize; ++k) v[k] = HalfOf(pairs[k], w);
}

template <int kSize>
inline constexpr std::uint32_t kHadamardSigns = kSize == 16 ? 0xD7E8u : 0xD7E8D7E8u;

// The sums of a group rounded to binary32, times 1 / 4 for size 16, in double: exact as long as the
// group spans less than 2^40 (8 bits of each value, 5 for the sum, 53 in all).
template <int kSize>
__device__ inline void WideSums(const float* v, float (&y)[kSize]) {
  double x[kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) x[k] = (kHadamardSigns<kSize> >> k & 1u) != 0 ? -v[k] : v[k];
  Butterflies(x);
#pragma unroll
  for (int k = 0; k < kSize; ++k) y[k] = static_cast<float>(kSize == 16 ? x[k] * 0.25 : x[k]);
}

// The same by binary32 sums, without the factor.
template <int kSize>
__device__ inline void NarrowSums(const float* v, float (&y)[kSize]) {
#pragma unroll
  for (int k = 0; k < kSize; ++k) y[k] = (kHadamardSigns<kSize> >> k & 1u) != 0 ? -v[k] : v[k];
  Butterflies(y);
}

// Likewise by the upper and lower parts of the values; the last addition alone rounds.
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

// The sums of a group rounded to binary32, but for the factor that is returned. Lanes of a warp
// that may take the narrow way go the split one with their neighbours: the bits are the same.
template <int kSize>
__device__ inline float HadamardSums(const float* v, const SumPlan& plan, float (&y)[kSize]) {
  static_assert(kSize == 16 || kSize == 32);
  if (plan.sums == Sums::kWide) {
    WideSums(v, y);
    return kSize == 32 ? 0x1.6a09e6p-3f : 1.0f;
  }
  if (__all_sync(__activemask(), plan.sums == Sums::kNarrow)) {
    NarrowSums(v, y);
  } else {
    SplitSums(v, plan.splitter, y);
  }
  return kSize == 32 ? 0x1.6a09e6p-3f : 0.25f;
}

// kSize values: transform/hadamard.h. Two neighbours a word.
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

// The same, in place.
template <int kSize>
__device__ inline void HadamardGroup(float* v, const SumPlan& plan) {
  std::uint32_t words[kSize / 2];
  HadamardWords<kSize>(v, plan, words);
#pragma unroll
  for (int k = 0; k < kSize; ++k) v[k] = HalfOf(words[k / 2], k % 2);
}

// *after: the largest magnitude after HadamardGroup, if it is larger; NaN passed over. Rounding
// keeps the order, so only the largest result is rounded.
template <int kSize>
__device__ inline void HadamardMaximum(const float* v, const SumPlan& plan, float* after) {
  float y[kSize], amax = 0.0f;
  const float factor = HadamardSums(v, plan, y);
#pragma unroll
  for (int k = 0; k < kSize; ++k) amax = fmaxf(amax, fabsf(y[k]));
  *after = fmaxf(*after, __bfloat162float(__float2bfloat16_rn(amax * factor)));
}

// The largest magnitudes of a group before and after HadamardGroup, NaN passed over.
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

// The same for two columns of BF16.
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

// Two columns' largest magnitudes, after the transform too if that is wanted.
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

// kUnit rows of two neighbouring columns.
template <int kUnit>
__device__ inline void LoadPairs(const Bf16* from, std::size_t stride,
                                 std::uint32_t (&pairs)[kUnit]) {
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    pairs[i] = *reinterpret_cast<const std::uint32_t*>(from + i * stride);
  }
}

// ---- The largest magnitude of a tensor

// The largest of all threads' magnitudes is added to *to. All kThreads threads call it.
template <int kThreads>
__device__ inline void TakeAmax(float amax, std::uint32_t* to) {
  __shared__ std::uint32_t warps[kThreads / 32];
  const std::uint32_t largest = __reduce_max_sync(kAllLanes, __float_as_uint(amax));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t of_block = 0;
    for (int i = 0; i < kThreads / 32; ++i) of_block = max(of_block, warps[i]);
    if (of_block != 0) atomicMax(to, of_block);
  }
  __syncthreads();
}

}  // namespace fp4lab::gpu
