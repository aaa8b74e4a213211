// E2M1 in software, the same on every chip: sources that need no more have no code for a chip of
// their own, as those with convert.cuh have, and are compiled once for CI.
#pragma once

#include <cstdint>

namespace fp4lab::cuda {

// The code of magnitude a, before rounding, is a concave function, the least of four lines:
//   c(a) = min(2 a, a + 2, a / 2 + 4, 7)
// Rounding is monotone, so it may come before the minimum. Each line is rounded by one operation:
// adding 2^23 rounds to an integer, ties to even, and leaves the integer in the low bits. Positive
// floats are ordered as integers, so the minimum is an integer instruction.
inline constexpr std::uint32_t kIntegerBits = 0x4B000000u;  // 2^23

// kIntegerBits + the E2M1 code of a >= 0, RNE.
__device__ inline std::uint32_t NearestE2m1(float a) {
  const std::uint32_t low = __float_as_uint(__fmaf_rn(a, 2.0f, 0x1p23f));
  const std::uint32_t middle = __float_as_uint(a + (0x1p23f + 2.0f));
  const std::uint32_t high = __float_as_uint(__fmaf_rn(a, 0.5f, 0x1p23f + 4.0f));
  return min(min(low, middle), min(high, kIntegerBits + 7));
}

// The code of a >= 0 before rounding, with its fraction below bit 22: if a <= 6, bits 22 to 24 are
// the E2M1 code of a rounded down; for larger a and for NaN the result is larger, compared as
// unsigned numbers.
//
// The bits of a float follow the curve c: for a >= 1 the bits of a, for a < 1 those of 2 a + 2,
// whose last bits the addition cuts off.
__device__ inline std::uint32_t CurveOfE2m1(float a) {
  const int below_1 = __float_as_int(__fmaf_rz(a, 2.0f, 2.0f));
  return static_cast<std::uint32_t>(__viaddmax_s32(__float_as_int(a), 4 << 22, below_1));
}

// Rounds a >= 0 to nearest, ties away from 0: the code as in CurveOfE2m1.
__device__ inline std::uint32_t TiesAwayE2m1(float a) { return CurveOfE2m1(a) + (1u << 21); }

// Rounds a >= 0 stochastically: the code as in CurveOfE2m1. The 16 random bits (half `half` of
// `fields`) are added right below bit 22 and carry into the code; the bits that CurveOfE2m1 cuts
// off are below them.
__device__ inline std::uint32_t StochasticE2m1(float a, std::uint32_t fields, int half) {
  return __dp2a_lo(fields, half == 0 ? 0x0040u : 0x4000u, CurveOfE2m1(a));
}

// Packs two results of StochasticE2m1, a in the low half: bits 6 to 8 of each half are the code, 7
// for results above 6; the other bits are arbitrary.
__device__ inline std::uint32_t PairOfStochastic(std::uint32_t a, std::uint32_t b) {
  return __vminu2(__byte_perm(a, b, 0x7632), 0x41FF41FFu);
}

}  // namespace fp4lab::cuda
