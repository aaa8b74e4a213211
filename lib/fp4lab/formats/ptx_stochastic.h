// The random bits of PTX cvt.rs instructions: the bits of the 32-bit operand rbits that each
// element of the result takes, as 16-bit fields for Encode(..., Rounding::kStochastic, field).
//
// Two elements share 16 bits: one element reads the bits in order, the other reads them reversed.
// The PTX ISA does not state this; two independent sources measured it on B200 (TIRx-harness's
// tables, PyTorch's quant_cast_bench). That E2M3 and E3M2 have the FP8 layout is known from the PTX
// ISA alone.
#pragma once

#include <array>
#include <cstdint>

namespace fp4lab {

// The 16 bits in reverse order.
constexpr std::uint32_t Reversed16(std::uint32_t bits) {
  std::uint32_t reversed = 0;
  for (int i = 0; i < 16; ++i) reversed |= (bits >> i & 1u) << (15 - i);
  return reversed;
}

// cvt.rs.satfinite.{e4m3x4,e5m2x4,e2m3x4,e3m2x4}.f32 d, {a, b, e, f}, rbits: the fields of f, e, b,
// a, in the order of the result's bytes, lowest first.
constexpr std::array<std::uint32_t, 4> CvtRsByteFields(std::uint32_t rbits) {
  const std::uint32_t high = rbits >> 16, low = rbits & 0xFFFFu;
  return {low, Reversed16(low), high, Reversed16(high)};
}

// cvt.rs.satfinite.e2m1x4.f32: the fields of f, e, b, a, in the order of the result's nibbles,
// lowest first. a and b take bytes 3 and 1 of rbits, e and f take bytes 2 and 0.
constexpr std::array<std::uint32_t, 4> CvtRsNibbleFields(std::uint32_t rbits) {
  const std::uint32_t high = (rbits >> 16 & 0xFF00u) | (rbits >> 8 & 0xFFu);
  const std::uint32_t low = (rbits >> 8 & 0xFF00u) | (rbits & 0xFFu);
  return {low, Reversed16(low), high, Reversed16(high)};
}

// cvt.rs.bf16x2.f32 d, a, b, rbits: the fields of b and a.
constexpr std::array<std::uint32_t, 2> CvtRsBf16Fields(std::uint32_t rbits) {
  return {rbits & 0xFFFFu, rbits >> 16};
}

// cvt.rs.f16x2.f32 d, a, b, rbits: the fields of b and a, of 13 bits each, in the upper 13 of 16
// bits: they are added to the 13 bits that a normal result discards.
constexpr std::array<std::uint32_t, 2> CvtRsFp16Fields(std::uint32_t rbits) {
  return {(rbits & 0x1FFFu) << 3, (rbits >> 16 & 0x1FFFu) << 3};
}

}  // namespace fp4lab
