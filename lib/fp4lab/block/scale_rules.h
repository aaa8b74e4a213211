// How the scale of a block or tensor follows from its amax: every rule in its exact operation
// order.
//
// All arithmetic is IEEE binary32, round to nearest even, subnormals kept; fl(.) is one rounding.
// amax is max |x| over the elements with NaN left out, so it is never NaN, but it may be Inf.
// constexpr and free of macros: host, device and tests share it.
//
// The rules in one table (a: amax of the block, E its exponent field, M its fraction field,
// emax = floor(log2(largest element)), m = fraction bits of the element):
//   rule    scale                                                     amax = Inf
//   kNvfp4  E4M3 byte of fl(a * fl(S_enc * fl(1/6)))                  tensor: S_enc = 1; block: 448
//   kFloor  E8M0 byte max(E - emax, 0)                                0xFF = NaN
//   kCeil   E8M0 byte max(E + (M != 0) - emax, 0)                     0xFF
//   kEven   kFloor of a with 2^(22 - m) added to its bits             0xFF
//   kRceil  E8M0 byte, up, of fl(a * fl(1/max element))               0xFE = 2^127 (TE, PTX
//   satfinite) kTensor FP32 fl(max / amax)                                       1
// A block whose scale is NaN decodes to NaN and all its codes are the element format's NaN code.
#pragma once

#include <bit>
#include <cstdint>

#include "fp4lab/block/block_format.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

inline constexpr float kFloatMax = 0x1.fffffep127f;
inline constexpr float kOneSixth = 1.0f / 6.0f;          // 0x3E2AAAAB
inline constexpr float kNvfp4Max = 448.0f * 6.0f;        // 2688: largest E4M3 times largest E2M1
inline constexpr float kNvfp4AlphaDivisor = 7225344.0f;  // 2688^2, exact

// ---- NVFP4 (Transformer Engine, common/cast/nvfp4/core_nvfp4.cuh)
// ---------------------------------

// The tensor's encode scale S_enc = min(fl(2688 / amax), FLT_MAX), 1 where amax is 0 or the
// quotient is 0 (amax = Inf). A NaN amax gives FLT_MAX, as fminf drops the NaN.
// Another C than 2688: 256 * 6 of four-over-six.
constexpr float Nvfp4EncodeScale(float amax, float c = kNvfp4Max) {
  if (amax == 0.0f) return 1.0f;
  const float quotient = c / amax;
  const float scale = quotient < kFloatMax ? quotient : kFloatMax;
  return scale == 0.0f ? 1.0f : scale;
}

// What a block needs to know of its tensor.
struct TensorScale {
  float encode = 1.0f;    // S_enc (kNvfp4), the scale (kTensor), 1 (MX)
  float decode = 1.0f;    // fl(1 / encode)
  float per_amax = 0.0f;  // kNvfp4: K = fl(S_enc * fl(1/6)), the factor from block amax to scale
};

// ---- E8M0 (OCP MX v1.0 section 6.3; torchao mx_formats; PTX cvt.rp.satfinite.ue8m0)
// ---------------

// floor(log2) of the largest element: 2 for E2M1 and E2M3, 4 for E3M2, 8 for E4M3, 15 for E5M2.
constexpr int MaxExponent(FormatId element) {
  return static_cast<int>(std::bit_cast<std::uint32_t>(MaxFinite(element)) >> 23) - 127;
}

constexpr std::uint8_t FloorByte(std::uint32_t amax_bits, int max_exponent) {
  if (amax_bits >= 0x7F800000u) return 0xFF;
  const int e = static_cast<int>(amax_bits >> 23) - max_exponent;
  return static_cast<std::uint8_t>(e < 0 ? 0 : e);
}
constexpr std::uint8_t CeilByte(std::uint32_t amax_bits, int max_exponent) {
  if (amax_bits >= 0x7F800000u) return 0xFF;
  const int up = (amax_bits & 0x7FFFFFu) != 0 ? 1 : 0;
  const int e = static_cast<int>(amax_bits >> 23) + up - max_exponent;
  return static_cast<std::uint8_t>(e < 0 ? 0 : e);
}
// torchao's EVEN: half a unit of the element's last fraction bit is added to amax's fraction, so
// the exponent steps up where amax would round to the next power of two. Then amax rounds to the
// largest element at most, but for E4M3, whose top code is NaN: 480 saturates to 448.
constexpr std::uint8_t EvenByte(std::uint32_t amax_bits, int max_exponent, int mantissa_bits) {
  if (amax_bits >= 0x7F800000u) return 0xFF;
  const std::uint32_t rounded = amax_bits + (1u << (22 - mantissa_bits));
  const int e = static_cast<int>(rounded >> 23) - max_exponent;
  return static_cast<std::uint8_t>(e < 0 ? 0 : e);
}
// TE and cuBLAS: the product with the rounded reciprocal, then cvt.rp.satfinite.ue8m0x2.
constexpr std::uint8_t RceilByte(float amax, float reciprocal_of_max) {
  return static_cast<std::uint8_t>(
      Encode(FormatId::kE8M0, amax * reciprocal_of_max, Rounding::kTowardPositive));
}

// 2^(127 - byte), the exact reciprocal of an E8M0 scale (TE exp2f_rcp; torchao): 254 gives the
// subnormal 2^-127, 255 NaN.
constexpr float E8m0Reciprocal(std::uint8_t byte) {
  if (byte == 255) return std::bit_cast<float>(0x7FC00000u);
  if (byte == 254) return 0x1p-127f;
  return std::bit_cast<float>((254u - byte) << 23);
}

// ---- FP8 with one scale (TE Float8CurrentScaling, recipe_common.cuh compute_scale_from_amax)
// ------

// fl(max / amax); 1 where amax is 0, Inf or NaN; FLT_MAX where the quotient overflows.
constexpr float Fp8TensorScale(FormatId element, float amax) {
  if (amax == 0.0f || !(amax <= kFloatMax)) return 1.0f;
  const float scale = MaxFinite(element) / amax;
  return scale <= kFloatMax ? scale : kFloatMax;
}

// ---- All rules
// ------------------------------------------------------------------------------------

constexpr TensorScale TensorScaleOf(const BlockFormat& format, float amax) {
  switch (format.rule) {
    case ScaleRule::kNvfp4: {
      const float encode = Nvfp4EncodeScale(amax);
      return {encode, 1.0f / encode, encode * kOneSixth};
    }
    case ScaleRule::kTensor: {
      const float encode = Fp8TensorScale(format.element, amax);
      return {encode, 1.0f / encode, 0.0f};
    }
    case ScaleRule::kFloor:
    case ScaleRule::kCeil:
    case ScaleRule::kRceil:
    case ScaleRule::kEven:
      break;
  }
  return {};
}

// The scale byte of a block. (kTensor has none: 0.)
constexpr std::uint8_t ScaleByte(const BlockFormat& format, float block_amax,
                                 const TensorScale& tensor) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(block_amax);
  const int max_exponent = MaxExponent(format.element);
  switch (format.rule) {
    case ScaleRule::kNvfp4:  // TE also clamps the product to FLT_MAX first: the same after
                             // saturation
      return static_cast<std::uint8_t>(Encode(FormatId::kE4M3, block_amax * tensor.per_amax));
    case ScaleRule::kFloor:
      return FloorByte(bits, max_exponent);
    case ScaleRule::kCeil:
      return CeilByte(bits, max_exponent);
    case ScaleRule::kEven:
      return EvenByte(bits, max_exponent, FormatOf(format.element).mantissa_bits);
    case ScaleRule::kRceil:
      return RceilByte(block_amax, 1.0f / MaxFinite(format.element));
    case ScaleRule::kTensor:
      return 0;
  }
  return 0;
}

// The factor e that elements are multiplied by before they are rounded, code = element(fl(x * e)):
//   kNvfp4: min(fl(1 / fl(s * S_dec)), FLT_MAX)    (s = 0 gives FLT_MAX: TE writes +-6 codes there)
//   MX: the exact reciprocal of the scale          kTensor: the tensor's scale
constexpr float Multiplier(const BlockFormat& format, std::uint8_t byte,
                           const TensorScale& tensor) {
  if (format.rule == ScaleRule::kTensor) return tensor.encode;
  if (format.rule != ScaleRule::kNvfp4) return E8m0Reciprocal(byte);
  const float decode = Decode(FormatId::kE4M3, byte) * tensor.decode;
  if (decode == 0.0f) return kFloatMax;
  const float reciprocal = 1.0f / decode;
  return reciprocal < kFloatMax ? reciprocal : kFloatMax;
}

// What a stored scale byte is worth, the tensor's scale left out.
constexpr float ScaleValue(const BlockFormat& format, std::uint8_t byte) {
  return format.rule == ScaleRule::kTensor ? 1.0f : Decode(format.scale, byte);
}

// The factor that the tensor scale contributes to one operand of a GEMM: 1 for MX; for NVFP4
// fl(amax / 2688) (JAX's quantizer.py; two NVFP4 operands use GemmAlpha); for FP8 fl(1 / scale).
constexpr float TensorDecodeScale(const BlockFormat& format, float amax) {
  if (format.rule == ScaleRule::kNvfp4) return amax / kNvfp4Max;
  return TensorScaleOf(format, amax).decode;
}

// The alpha of a GEMM. Two NVFP4 operands: TE's reference_nvfp4.py, fl(fl(amax_a * amax_b) /
// 2688^2). Any other pair: the product of the two decode scales.
constexpr float GemmAlpha(const BlockFormat& a, float amax_a, const BlockFormat& b, float amax_b) {
  if (a.rule == ScaleRule::kNvfp4 && b.rule == ScaleRule::kNvfp4) {
    return amax_a * amax_b / kNvfp4AlphaDivisor;
  }
  return TensorDecodeScale(a, amax_a) * TensorDecodeScale(b, amax_b);
}

// The whole factor of a block in Dequantize. NVFP4 as TE's dequantize_nvfp4.cuh:
// fl(fl(scale * amax) * fl(1/2688)). MX: the scale. FP8: fl(1 / scale).
constexpr float DecodeFactor(const BlockFormat& format, std::uint8_t byte, float amax) {
  const float scale = ScaleValue(format, byte);
  switch (format.rule) {
    case ScaleRule::kNvfp4:
      return scale * amax * (1.0f / kNvfp4Max);
    case ScaleRule::kTensor:
      return TensorScaleOf(format, amax).decode;
    case ScaleRule::kFloor:
    case ScaleRule::kCeil:
    case ScaleRule::kRceil:
    case ScaleRule::kEven:
      break;
  }
  return scale;
}

static_assert(std::bit_cast<std::uint32_t>(kOneSixth) == 0x3E2AAAABu);
static_assert(MaxExponent(FormatId::kE2M1) == 2 && MaxExponent(FormatId::kE5M2) == 15);

}  // namespace fp4lab
