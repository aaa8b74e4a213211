// Conversions to narrow formats, eight elements at a time, by instructions if the chip has them,
// else by a few operations with the same results. `fp4lab crosscheck` compares them with Encode.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/device/chip.cuh"
#include "fp4lab/cuda/device/e2m1.cuh"
#include "fp4lab/formats/format.h"
#include "fp4lab/formats/ptx_stochastic.h"

namespace fp4lab::cuda {

// ---- Eight codes of magnitudes v >= 0, element i in bits 4 i to 4 i + 2; NaN gives 7 ----

// The first operand of a cvt lands in the upper half of the result, so that v[7] becomes the
// uppermost nibble.
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

// fields[i]: 16 random bits of element 2 i in the low half, of element 2 i + 1 in the upper half.
__device__ inline std::uint32_t StochasticCodes(const float (&v)[8],
                                                const std::uint32_t (&fields)[4]) {
  std::uint32_t code[8], pairs[4];
#pragma unroll
  for (int i = 0; i < 8; ++i) code[i] = StochasticE2m1(v[i], fields[i / 2], i % 2);
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = PairOfStochastic(code[i], code[i + 4]);
  const std::uint32_t low = pairs[0] + 16 * (pairs[1] & 0x01C001C0u);
  const std::uint32_t high = pairs[2] + 16 * (pairs[3] & 0x01C001C0u);
  return (low >> 6 & 0x00770077u) | (high << 2 & 0x77007700u);
}

// word0 and word1 are the random words of cvt.rs for elements 0 to 3 and 4 to 7.
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
    std::uint32_t fields[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t word = half == 0 ? word0 : word1;
      // As in formats/ptx_stochastic.h: bytes 3 and 1 serve the upper two elements, bytes 2 and 0
      // the lower two; the second element of each pair takes the 16 bits in reverse order.
      const std::uint32_t high = __byte_perm(word, 0u, 0x4431);
      const std::uint32_t low = __byte_perm(word, 0u, 0x4420);
      fields[2 * half] = low | __brev(low);
      fields[2 * half + 1] = high | __brev(high);
    }
    return StochasticCodes(v, fields);
  }
}

// ---- FP8: instructions of sm_89 and later ----

// Rounds a and b to FP8, RNE, saturating: a in the low byte, b in the upper. kElement is E4M3 or
// E5M2; NaN gives 0x7F.
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

// Decodes two E4M3 or E5M2 codes to BF16, exactly: the code in the low byte of `pair` to the low
// half, the code in the next byte to the upper half.
template <FormatId kElement>
__device__ std::uint32_t Bf16OfFp8Pair(std::uint32_t pair) {
  const std::uint32_t a = __float_as_uint(Decode(kElement, pair & 0xFFu)) >> 16;
  const std::uint32_t b = __float_as_uint(Decode(kElement, pair >> 8 & 0xFFu)) & 0xFFFF0000u;
  return a | b;
}

// ---- E8M0 ----

// The E8M0 byte of |x|, rounded up: cvt.rp.satfinite.ue8m0.
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
