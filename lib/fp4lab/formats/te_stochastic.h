// Transformer Engine's software stochastic rounding to E2M1 with 8 random bits an element, which
// its kernels use on architectures without cvt.rs (common/util/ptx.cuh).
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/formats/format.h"

namespace fp4lab {

// a = |x|, q = the grid's step at a (0.5 below 2, 1 below 4, else 2), t = fmaf(random8 / 256, q,
// a); the code is the largest magnitude <= t, at most 6, with x's sign (also on zero). NaN -> +6.
// The result differs from the carry model, Encode(E2M1, x, kStochastic, random8 << 8), exactly when
// the addition rounds t up to a grid value above the exact sum. 0 <= random8 < 256.
constexpr std::uint32_t EncodeTransformerEngineStochastic(float x, std::uint32_t random8) {
  constexpr Format kE2M1 = FormatOf(FormatId::kE2M1);
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  const float a = std::bit_cast<float>(u & 0x7FFFFFFFu);
  const float q = a < 2.0f ? 0.5f : a < 4.0f ? 1.0f : 2.0f;
  // The product is exact (8 bits times a power of two), so the fused operation is one addition.
  const float t = static_cast<float>(random8) / 256.0f * q + a;
  const std::uint32_t sign = (u >> 31) != 0 ? SignBit(kE2M1) : 0u;
  return a != a ? NanCode(kE2M1) : sign | Encode(kE2M1, t, Rounding::kTowardZero);
}

}  // namespace fp4lab
