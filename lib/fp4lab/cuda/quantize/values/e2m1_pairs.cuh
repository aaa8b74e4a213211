// Rounding of BF16 numbers to nearest E2M1, two numbers at a time.
//
// The rounded magnitude is a monotone function of a number's magnitude, with seven steps. So the
// smallest BF16 numbers that reach the steps, found once for a block, take the place of the
// arithmetic on its elements.
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/cuda/device/bf16_words.cuh"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab::cuda {

// The bounds between neighbouring E2M1 magnitudes.
inline constexpr int kE2m1Bounds = 7;
constexpr float E2m1Bound(int i) {
  constexpr float kBounds[kE2m1Bounds] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  return kBounds[i];
}

// The first number whose rounding to binary32 is at least bound i, `takes_bound`, or above it, as
// its distance from the bound. Ties go to the bound, whose last bit is 0.
constexpr float DistanceOfStep(int i, bool takes_bound) {
  const float bound = E2m1Bound(i);
  const auto bits = std::bit_cast<std::uint32_t>(bound);
  const float below = std::bit_cast<float>(bits - 1), above = std::bit_cast<float>(bits + 1);
  return takes_bound ? (below - bound) / 2 : (above - bound) / 2;
}

// kRounding: kNearestEven or kTiesAway. kDivides: whether a number is divided by the factor before
// it is rounded, or multiplied.
template <ElementRounding kRounding, bool kDivides>
class E2m1Pairs {
 public:
  // `factor`: from 2^-100 to 2^100.
  __device__ explicit E2m1Pairs(float factor) {
    const float unit = kDivides ? factor : 1.0f / factor;
#pragma unroll
    for (int i = 0; i < kE2m1Bounds; ++i) {
      constexpr bool kAway = kRounding == ElementRounding::kTiesAway;
      const bool takes_bound = kAway || i % 2 != 0;
      const float bound = E2m1Bound(i);
      // A little above the bound: the next BF16 number reaches the step for certain, and the one
      // before does not.
      const std::uint32_t bits = __float_as_uint(bound * (1 + 0x1p-21f) * unit) & 0xFFFF0000u;
      const float a = __uint_as_float(bits);
      bool reaches = false;
      if constexpr (kDivides) {  // fl(a / factor), from the exact remainder
        const float remainder = __fmaf_rn(-bound, factor, a);
        const float least = DistanceOfStep(i, takes_bound) * factor;
        reaches = takes_bound ? remainder >= least : remainder > least;
      } else {
        const float v = a * factor;
        reaches = takes_bound ? v >= bound : v > bound;
      }
      steps_[i] = PairOf(__uint_as_float(reaches ? bits : bits + 0x10000u));
    }
  }

  // The rounded magnitudes of a pair of magnitudes, which may be infinite but not NaN.
  __device__ __nv_bfloat162 Rounded(__nv_bfloat162 a) const {
    const auto reaches = [&](int i) { return __hge2(a, steps_[i]); };  // 1 or 0
    const __nv_bfloat162 halves =
        __hadd2(__hadd2(reaches(0), reaches(1)), __hadd2(reaches(2), reaches(3)));
    const __nv_bfloat162 ones = __hadd2(reaches(4), reaches(5));
    return __hfma2(halves, PairOf(0.5f), __hfma2(reaches(6), PairOf(2.0f), ones));
  }

 private:
  __nv_bfloat162 steps_[kE2m1Bounds];
};

}  // namespace fp4lab::cuda
