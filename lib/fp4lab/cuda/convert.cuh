// Conversions to narrow formats, eight elements at a time: instructions where the chip has them,
// else the same arithmetic in few operations. Checked against Encode by `fp4lab crosscheck`.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/chip.cuh"
#include "fp4lab/formats/format.h"
#include "fp4lab/formats/ptx_stochastic.h"

namespace fp4lab::cuda {

// ---- E2M1 in software
// ---------------------------------------------------------------------------- The code of
// magnitude a, before rounding, is a concave function, the least of four lines:
//   c(a) = min(2 a, a + 2, a / 2 + 4, 7)
// Rounding is monotone, so it may come before the minimum; each line rounded is one operation:
// adding 2^23 rounds to an integer, ties to even, with the integer in the low bits. Positive floats
// are ordered as integers.
inline constexpr std::uint32_t kIntegerBits = 0x4B000000u;  // 2^23

__device__ inline std::uint32_t LeastBits(float a, float b, float c, std::uint32_t largest) {
  return min(min(__float_as_uint(a), __float_as_uint(b)), min(__float_as_uint(c), largest));
}

// kIntegerBits + the code of a >= 0, not NaN.
__device__ inline std::uint32_t NearestE2m1(float a) {
  return LeastBits(__fmaf_rn(a, 2.0f, 0x1p23f), a + (0x1p23f + 2.0f),
                   __fmaf_rn(a, 0.5f, 0x1p23f + 4.0f), kIntegerBits + 7);
}

// kIntegerBits + floor(c(a) * 2^16): with 16 random bits added, the code is in bits 16 to 18.
__device__ inline std::uint32_t ScaledE2m1(float a) {
  return LeastBits(__fmaf_rz(a, 0x1p17f, 0x1p23f), __fmaf_rz(a, 0x1p16f, 0x1p23f + 0x1p17f),
                   __fmaf_rz(a, 0x1p15f, 0x1p23f + 0x1p18f), kIntegerBits + (7u << 16));
}

// ---- Eight codes of magnitudes v >= 0, element i in bits 4 i to 4 i + 2
// -------------------------- (NaN gives any code: the callers put that right.)

// v[7] takes the uppermost nibble: a cvt's first operand lands in the upper half.
__device__ inline std::uint32_t NearestByInstruction(const float (&v)[8]) {
  std::uint32_t codes;
  asm("{\n"
      ".reg .b8 b0, b1, b2, b3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b0, %2, %1;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b1, %4, %3;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b2, %6, %5;\n"
      "cvt.rn.satfinite.e2m1x2.f32 b3, %8, %7;\n"
      "mov.b32 %0, {b0, b1, b2, b3};\n"
      "}"
      : "=r"(codes)
      : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
  return codes;
}

__device__ inline std::uint32_t NearestCodes(const float (&v)[8]) {
  if constexpr (kHasFp4Conversions) {
    return NearestByInstruction(v);
  } else {
    std::uint32_t codes = NearestE2m1(v[7]);
#pragma unroll
    for (int i = 6; i >= 0; --i) codes = codes * 16u + NearestE2m1(v[i]);
    return codes - (kIntegerBits + (kIntegerBits << 4));  // higher powers of 16 vanish
  }
}

// fields[i]: 16 random bits in the low half; the upper half counts for nothing.
__device__ inline std::uint32_t StochasticCodes(const float (&v)[8],
                                                const std::uint32_t (&fields)[8]) {
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t code = (ScaledE2m1(v[i]) + (fields[i] & 0xFFFFu)) >> 16 & 7u;
    codes |= code << (4 * i);
  }
  return codes;
}

// The words of cvt.rs: one for elements 0 to 3, one for 4 to 7.
__device__ inline std::uint32_t StochasticByInstruction(const float (&v)[8], std::uint32_t word0,
                                                        std::uint32_t word1) {
  std::uint32_t codes;
  asm("{\n"
      ".reg .b16 h0, h1;\n"
      "cvt.rs.satfinite.e2m1x4.f32 h0, {%4, %3, %2, %1}, %9;\n"
      "cvt.rs.satfinite.e2m1x4.f32 h1, {%8, %7, %6, %5}, %10;\n"
      "mov.b32 %0, {h0, h1};\n"
      "}"
      : "=r"(codes)
      : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]),
        "r"(word0), "r"(word1));
  return codes;
}

__device__ inline std::uint32_t InstructionCodes(const float (&v)[8], std::uint32_t word0,
                                                 std::uint32_t word1) {
  if constexpr (kHasStochasticConversions) {
    return StochasticByInstruction(v, word0, word1);
  } else {
    std::uint32_t fields[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t word = half == 0 ? word0 : word1;
      // formats/ptx_stochastic.h: bytes 3 and 1 for the upper pair, 2 and 0 for the lower; the
      // second of a pair backwards.
      const std::uint32_t high = __byte_perm(word, 0u, 0x4431);
      const std::uint32_t low = __byte_perm(word, 0u, 0x4420);
      fields[4 * half + 0] = low;
      fields[4 * half + 1] = __brev(low) >> 16;
      fields[4 * half + 2] = high;
      fields[4 * half + 3] = __brev(high) >> 16;
    }
    return StochasticCodes(v, fields);
  }
}

// ---- FP8: instructions of sm_89 and later
// --------------------------------------------------------

// a in the low byte, b in the upper. kElement is E4M3 or E5M2; NaN gives 0x7F.
template <FormatId kElement>
__device__ std::uint32_t NearestFp8Pair(float a, float b) {
  std::uint16_t pair;
  if constexpr (kElement == FormatId::kE4M3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
  }
  return pair;
}

// The value of an E4M3 byte without sign that is not NaN.
__device__ inline float E4m3Value(std::uint32_t byte) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(byte)));
  float value;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}"
      : "=f"(value)
      : "r"(halves));
  return value;
}

// Two values of eight bits: E4M3 or E5M2 codes a (low) and b as BF16, exact.
template <FormatId kElement>
__device__ std::uint32_t Bf16OfFp8Pair(std::uint32_t pair) {
  const std::uint32_t a = __float_as_uint(Decode(kElement, pair & 0xFFu)) >> 16;
  const std::uint32_t b = __float_as_uint(Decode(kElement, pair >> 8 & 0xFFu)) & 0xFFFF0000u;
  return a | b;
}

// ---- E8M0
// ----------------------------------------------------------------------------------------

// cvt.rp.satfinite.ue8m0: the byte of |x| rounded up.
__device__ inline std::uint8_t UpwardE8m0(float x) {
  if constexpr (kHasFp4Conversions) {
    std::uint16_t pair;
    asm("cvt.rp.satfinite.ue8m0x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return static_cast<std::uint8_t>(pair);
  } else {
    return static_cast<std::uint8_t>(Encode(FormatId::kE8M0, x, Rounding::kTowardPositive));
  }
}

}  // namespace fp4lab::cuda
