// The random Hadamard transform of one group that a thread holds in registers.
#pragma once

#include <cstdint>

#include "fp4lab/formats/format.h"
#include "fp4lab/transform/exact_hadamard.h"

namespace fp4lab::cuda {

// Binades that the terms of a group may span for binary32 sums of them to be exact: BF16 terms are
// multiples of 2^(E - 7), a sum of 2^k of them that spans s binades has at most s + 8 + k bits.
constexpr int ExactSpan(int size) { return size == 16 ? 12 : 11; }

// Whether all binary32 sums of group (BF16 values) are exact, normal and finite. largest, smallest:
// exponent fields of the largest and the smallest nonzero magnitude.
__device__ inline bool SumsAreExact(int size, int largest, int smallest) {
  return largest - smallest <= ExactSpan(size) && largest < 255 - 6 && smallest > 16;
}

// group[k], k < kSize: BF16 values in, transformed BF16 values out.
template <int kSize>
__device__ void TransformGroup(float (&group)[kSize], std::uint32_t sign_mask) {
  std::uint32_t largest = 0, smallest = 0x7F800000u;
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const std::uint32_t magnitude = __float_as_uint(group[k]) & 0x7FFFFFFFu;
    largest = max(largest, magnitude);
    smallest = min(smallest, magnitude == 0 ? 0x7F800000u : magnitude);
  }
  if (!SumsAreExact(kSize, static_cast<int>(largest >> 23), static_cast<int>(smallest >> 23))) {
    float in[kSize];
    for (int k = 0; k < kSize; ++k) in[k] = group[k];
#pragma unroll 1
    for (int j = 0; j < kSize; ++j) {
      const float y = RoundToBf16(ExactHadamardOutput(in, kSize, sign_mask, j));
#pragma unroll
      for (int k = 0; k < kSize; ++k) group[k] = k == j ? y : group[k];
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    group[k] = __uint_as_float(__float_as_uint(group[k]) ^ (sign_mask >> k & 1u) << 31);
  }
#pragma unroll
  for (int half = 1; half < kSize; half *= 2) {
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      if ((k & half) != 0) continue;
      const float a = group[k], b = group[k + half];
      group[k] = a + b;
      group[k + half] = a - b;
    }
  }
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const float scaled = group[k] * (kSize == 16 ? 0.25f : kInverseSqrt32);
    group[k] = RoundToBf16(scaled + 0.0f);  // a sum of zero is +0
  }
}

}  // namespace fp4lab::cuda
