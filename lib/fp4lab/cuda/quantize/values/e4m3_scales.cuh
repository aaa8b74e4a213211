// Block scales in E4M3 as values, in a few operations instead of an encoder and a decoder of any
// format.
#pragma once

#include <cstdint>

#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/ms_eden.h"

namespace fp4lab::cuda {

// The E4M3 number nearest to a magnitude a of at most 448, ties to even.
__device__ inline float NearestE4m3(float a) {
  const std::uint32_t bits = __float_as_uint(a);
  const std::uint32_t even = (bits + 0x7FFFFu + (bits >> 20 & 1u)) & 0xFFF00000u;
  const float small = (a + 0x1.8p14f) - 0x1.8p14f;  // a multiple of 2^-9
  return a < 0x1p-6f ? small : __uint_as_float(even);
}

// A magnitude a of at most 448, rounded to E4M3 with 16 random bits: see Encode of format.h.
__device__ inline float StochasticE4m3(float a, std::uint32_t random16) {
  const std::uint32_t code = (static_cast<std::uint32_t>(a * 0x1p25f) + random16) >> 16;
  const std::uint32_t normal = (__float_as_uint(a) + (random16 << 4)) & 0xFFF00000u;
  return a < 0x1p-6f ? static_cast<float>(code) * 0x1p-9f : fminf(__uint_as_float(normal), 448.0f);
}

// Whether the dialect's scales are t rounded to E4M3, unless that is 0.
constexpr bool HasNearestE4m3Scales(const Dialect& d) {
  return d.scale == FormatId::kE4M3 && d.block_scale != BlockScale::kOneBlock &&
         (d.scale_encoding == ScaleEncoding::kNearest ||
          d.scale_encoding == ScaleEncoding::kZeroToOne);
}

// NumbersFrom of dialect/stages.h, but for the byte, which is 0 where NearestE4m3 has made the
// scale.
__device__ inline BlockNumbers NumbersWithoutByte(const Dialect& d, float b, float t,
                                                  const TensorScale& l) {
  if (!HasNearestE4m3Scales(d) || !(t >= 0x1p-9f && t <= 448.0f)) return NumbersFrom(d, b, t, l);
  BlockNumbers n{.amax = b, .scale_before = t, .scale = NearestE4m3(t)};
  n.factor = FactorOf(d, b, n.scale, 0, l);  // factors of E4M3 scales do not depend on the byte
  return n;
}

// The value of CorrectedScaleByte (quantize/ms_eden.h).
__device__ inline float CorrectedScale(const Dialect& d, float scale, float correction,
                                       std::uint32_t bits) {
  const float a = scale * correction;
  if (HasNearestE4m3Scales(d) && a >= 0.0f && a <= 448.0f) return StochasticE4m3(a, bits);
  return ScaleValueOf(d, CorrectedScaleByte(d, scale, correction, bits));
}

}  // namespace fp4lab::cuda
