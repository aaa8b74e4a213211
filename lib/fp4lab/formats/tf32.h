// TF32 in its 32-bit container, and the conversions to TF32 that Encode does not cover.
//
// The container of a code is code << 13. Conversions from binary32:
//   cvt.rn.tf32, cvt.rz.tf32    Encode(kTF32, x, kNearestEven or kTowardZero, 0, kSpecial):
//                               overflow under RN gives Inf, NaN gives 0x7FFFE000
//   cvt.rn.satfinite.tf32       the same with kSaturate
//   cvt.rna.tf32                Tf32NearestAway below
//   TF32 operand of an mma      Tf32Operand below: the tensor core reads a binary32 register
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/formats/format.h"

namespace fp4lab {

constexpr std::uint32_t Tf32Container(std::uint32_t code) { return code << 13; }

// The code that a tensor core reads from a binary32 pattern: the upper 19 bits. The lower bits are
// dropped before NaN is detected: a NaN whose payload lies in the lower 13 bits reads as Inf
// (measured on hardware).
constexpr std::uint32_t Tf32Operand(float x) { return std::bit_cast<std::uint32_t>(x) >> 13; }

// cvt.rna.tf32: adds half a unit to the bit pattern, whether number or NaN, and truncates: ties go
// away from zero, overflow gives Inf, and the NaN 0x7F800001 becomes Inf (measured on hardware).
// For patterns whose sum would run into the sign (NaN, 0x7FFFF000 and above) the result of the
// hardware is not known: here they give the NaN 0x7FFFE000 with their sign.
constexpr std::uint32_t Tf32NearestAway(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = u >> 31 << 18, code = ((u & 0x7FFFFFFFu) + 0x1000u) >> 13;
  return sign | (code > 0x3FFFFu ? 0x3FFFFu : code);
}

static_assert(Tf32Container(NanCode(FormatOf(FormatId::kTF32))) == 0x7FFFE000u);
static_assert(Tf32Container(MaxFiniteCode(FormatOf(FormatId::kTF32))) == 0x7F7FE000u);

}  // namespace fp4lab
