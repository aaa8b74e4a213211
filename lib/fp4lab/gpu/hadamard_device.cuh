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

// Whether all binary32 sums of these BF16 values are exact: the largest sum and the last place of
// the smallest value lie within 24 bits, far from overflow and subnormals. `largest`: the bits of
// the largest magnitude, NaN above infinity.
template <int kSize>
__device__ inline bool SumsAreExact(const float* v, std::uint32_t* largest) {
  std::uint32_t most = 0, least = 0xFFFFFFFFu;  // of |v| - 1 unit, so that zeros do not count
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const std::uint32_t magnitude = __float_as_uint(v[k]) & 0x7FFFFFFFu;
    most = max(most, magnitude);
    least = min(least, magnitude - 1u);
  }
  *largest = most;
  constexpr std::uint32_t kSpan = kSize == 16 ? 12 : 11;
  const std::uint32_t high = most >> 23, low = (least + 1u) >> 23;
  return most == 0 || (high - low <= kSpan && high < 249 && low > 16);
}

// The same for kSize rows of two neighbouring BF16 columns, a pair a word: whether both columns'
// sums are exact; `largest`: the largest magnitudes, as BF16 bits. Fields of 16 bits never carry:
// the sign's place is 1 while 1 is subtracted.
template <int kSize>
__device__ inline bool PairSumsAreExact(const std::uint32_t (&pairs)[kSize],
                                        std::uint32_t* largest) {
  std::uint32_t most = 0, least = 0xFFFFFFFFu;  // of |v| - 1 unit
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    most = __vmaxu2(most, pairs[k] & 0x7FFF7FFFu);
    least = __vminu2(least, ((pairs[k] | 0x80008000u) - 0x00010001u) ^ 0x80008000u);
  }
  *largest = most;
  constexpr std::uint32_t kSpan = kSize == 16 ? 12 : 11;
  bool exact = true;
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    const std::uint32_t of_column = most >> (16 * w) & 0xFFFFu, high = of_column >> 7;
    const std::uint32_t low = ((least >> (16 * w) & 0xFFFFu) + 1) >> 7;
    exact = exact && (of_column == 0 || (high - low <= kSpan && high < 249 && low > 16));
  }
  return exact;
}

// Column w of pairs.
template <int kSize>
__device__ inline void UnpackColumn(const std::uint32_t (&pairs)[kSize], int w, float* v) {
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    v[k] = __uint_as_float(w == 0 ? pairs[k] << 16 : pairs[k] & 0xFFFF0000u);
  }
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

// kSize values: transform/hadamard.h. In doubles where binary32 sums would round (not `exact`).
template <int kSize>
__device__ inline void HadamardGroup(float* v, bool exact) {
  static_assert(kSize == 16 || kSize == 32);
  float y[kSize], factor = kSize == 16 ? 0.25f : 0x1.6a09e6p-3f;
  if (exact) {
    NarrowSums(v, y);
  } else {
    WideSums(v, y);
    if (kSize == 16) factor = 1.0f;
  }
#pragma unroll
  for (int k = 0; k < kSize; k += 2) {  // adding +0 makes a sum of zeros +0
    const __nv_bfloat162 pair =
        __floats2bfloat162_rn(__fmaf_rn(y[k], factor, 0.0f), __fmaf_rn(y[k + 1], factor, 0.0f));
    v[k] = __low2float(pair);
    v[k + 1] = __high2float(pair);
  }
}

// *after: the largest magnitude after HadamardGroup, if it is larger; NaN passed over. Rounding
// keeps the order, so only the largest result is rounded.
template <int kSize>
__device__ inline void HadamardMaximum(const float* v, bool exact, float* after) {
  float y[kSize], amax = 0.0f, factor = kSize == 16 ? 0.25f : 0x1.6a09e6p-3f;
  if (exact) {
    NarrowSums(v, y);
  } else {
    WideSums(v, y);
    if (kSize == 16) factor = 1.0f;
  }
#pragma unroll
  for (int k = 0; k < kSize; ++k) amax = fmaxf(amax, fabsf(y[k]));
  *after = fmaxf(*after, __bfloat162float(__float2bfloat16_rn(amax * factor)));
}

// The largest magnitudes of a group before and after HadamardGroup, NaN passed over.
template <int kSize>
__device__ inline void HadamardMaxima(const float* v, float* before, float* after) {
  std::uint32_t largest = 0;
  const bool exact = SumsAreExact<kSize>(v, &largest);
  if (exact) {
    *before = fmaxf(*before, __uint_as_float(largest));
  } else {
#pragma unroll
    for (int k = 0; k < kSize; ++k) *before = LargerMagnitude(*before, v[k]);
  }
  HadamardMaximum<kSize>(v, exact, after);
}

// The same for two columns of BF16.
template <int kSize>
__device__ inline void PairMaxima(const std::uint32_t (&pairs)[kSize], float* before,
                                  float* after) {
  std::uint32_t largest = 0;
  const bool exact = PairSumsAreExact<kSize>(pairs, &largest);
  if (exact) {
    *before = fmaxf(*before, __uint_as_float(max(largest << 16, largest & 0xFFFF0000u)));
  }
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    float v[kSize];
    UnpackColumn<kSize>(pairs, w, v);
    if (!exact) {
#pragma unroll
      for (int k = 0; k < kSize; ++k) *before = LargerMagnitude(*before, v[k]);
    }
    HadamardMaximum<kSize>(v, exact, after);
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
