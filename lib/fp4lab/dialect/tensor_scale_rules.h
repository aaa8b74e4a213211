// The tensor scale of the dialects: S and D from amax.
#pragma once

#include <cstdint>
#include <string_view>

#include "fp4lab/dialect/formula.h"
#include "fp4lab/dialect/tensor_scale.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

enum class TensorScaleRule : std::uint8_t {
  kNone,
  kEncodeScale,
  kEncodeFused,
  kEncodeApproximate,
  kEncodePartial,
  kEncodeJax,
  kEncodePlain,
  kMultiplier,
  kTwoDivisions,
  kDivisor,
  kDivisorOrOne,
  kDivisorBf16,
  kTimesReciprocal,
  kTimesReciprocalOrZero,
  kOverFloored,
  kMultiplierOrEpsilon,
  kTensorFp8
};
constexpr TensorScaleRule LastOf(TensorScaleRule) { return TensorScaleRule::kTensorFp8; }

struct TensorScaleInput {
  float amax;          // the largest |x|; may be NaN
  float c;             // scale_max * q, the amax that the tensor scale maps to 1: 448 * 6 for NVFP4
  float scale_max, q;  // the largest block scale that c aims at, and the largest element
  FormatId element;
};

struct TensorScaleShort {
  std::string_view encode, decode;
};

// Members of the structs: kText; kShort, S and D without roundings and guards; Numbers, S and D.
// The base structs say whether S or D is computed first, and which numbers readers use.
struct EncodeFirst {
  static constexpr bool kDecodeFirst = false;
  static constexpr TensorScaleShort kShort = {"S = C / amax", "D = 1 / S"};
};
struct DecodeFirst {
  static constexpr bool kDecodeFirst = true;
  static constexpr TensorScaleShort kShort = {"S = 1 / (amax / C)", "D = amax / C"};
};

// Transformer Engine's readers compute with amax and fl(1/C) (ReadByAmax), others with D
// (ReadByDecode). AlphaByAmax: the alpha of a GEMM is computed from amax, decoded values from D.
struct ReadByAmax {
  static constexpr bool kAlphaHasAmax = true, kValuesHaveAmax = true;
};
struct AlphaByAmax {
  static constexpr bool kAlphaHasAmax = true, kValuesHaveAmax = false;
};
struct ReadByDecode {
  static constexpr bool kAlphaHasAmax = false, kValuesHaveAmax = false;
};

// The level of a given S, with D = fl(1/S), and of a given D, with S = fl(1/D).
constexpr TensorScale TensorScaleOfEncode(float encode) { return {encode, 1.0f / encode}; }
constexpr TensorScale TensorScaleOfDecode(float decode) { return {1.0f / decode, decode}; }

// S and D of kEncodeScale and of kTensorFp8, as functions that tuned kernels call.
constexpr TensorScale EncodeTensorScale(float c, float amax) {
  // A NaN amax gives FLT_MAX, as fminf drops the NaN; Inf gives 1.
  const float scale = amax == 0.0f ? 1.0f : ClampToMax(c / amax);
  return TensorScaleOfEncode(scale == 0.0f ? 1.0f : scale);
}
// Transformer Engine's Float8CurrentScaling, recipe_common.cuh compute_scale_from_amax.
constexpr TensorScale TensorFp8Scale(FormatId element, float amax) {
  if (amax == 0.0f || !(amax <= kFloatMax)) return {};
  return TensorScaleOfEncode(ClampToMax(MaxFinite(element) / amax));
}

template <>
struct Formula<TensorScaleRule::kNone> : EncodeFirst, ReadByDecode {
  // S = D = 1: the dialect has no tensor scale, or the tensor scale is outside of the quantizer.
  static constexpr std::string_view kLabel = "none";
  static constexpr std::string_view kText = "none";
  static constexpr TensorScale Numbers(const TensorScaleInput&) { return {}; }
};

template <>
struct Formula<TensorScaleRule::kEncodeScale> : EncodeFirst, ReadByAmax {
  static constexpr std::string_view kLabel = "encode_scale";
  static constexpr std::string_view kText =
      "S = min(fl(C/amax), FLT_MAX), 1 where amax or S is 0; D = fl(1/S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    return EncodeTensorScale(in.c, in.amax);
  }
};

template <>
struct Formula<TensorScaleRule::kEncodeFused> : EncodeFirst, ReadByAmax {
  // amax = Inf gives S = 0 and D = Inf.
  static constexpr std::string_view kLabel = "encode_fused";
  static constexpr std::string_view kText =
      "S = min(fl(C/amax), FLT_MAX), 1 where amax is 0 or NaN, 0 where it is Inf; D = fl(1/S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    return TensorScaleOfEncode(in.amax > 0.0f ? ClampToMax(in.c / in.amax) : 1.0f);
  }
};

template <>
struct Formula<TensorScaleRule::kEncodeApproximate> : EncodeFirst, ReadByAmax, ApproximateFormula {
  // div.approx and rcp.approx allow a set of answers; Numbers() has the rounded ones, flushed.
  static constexpr std::string_view kLabel = "encode_approximate";
  static constexpr std::string_view kText =
      "S = min(div.approx.ftz(C, amax), FLT_MAX), 1 where amax or S is 0; D = rcp.approx.ftz(S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    const float encode = EncodeTensorScale(in.c, in.amax).encode;
    return {encode, RcpFtz(encode)};
  }
};

template <>
struct Formula<TensorScaleRule::kEncodePartial> : EncodeFirst, ReadByAmax {
  static constexpr std::string_view kLabel = "encode_partial";
  static constexpr std::string_view kText =
      "S = min(fl(C/max(amax, FLT_MIN)), FLT_MAX), 1 where amax is 0; D = fl(1/S); amax = Inf: S = "
      "0, D = 1";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    if (!(in.amax > 0.0f)) return {};
    const float encode = ClampToMax(in.c / (in.amax > kFloatMin ? in.amax : kFloatMin));
    if (encode == 0.0f) return {0.0f, 1.0f};
    return TensorScaleOfEncode(encode);
  }
};

template <>
struct Formula<TensorScaleRule::kEncodeJax> : EncodeFirst, ReadByAmax {
  // NaN stays NaN.
  static constexpr std::string_view kLabel = "encode_jax";
  static constexpr std::string_view kText =
      "S = min(fl(C/amax), FLT_MAX), FLT_MAX where amax is 0, 1 where it is Inf; D = fl(1/S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    const float quotient = ClampToMaxOrNan(in.c / in.amax);
    return TensorScaleOfEncode(in.amax == 0.0f ? kFloatMax : quotient == 0.0f ? 1.0f : quotient);
  }
};

template <>
struct Formula<TensorScaleRule::kEncodePlain> : EncodeFirst, AlphaByAmax {
  static constexpr std::string_view kLabel = "encode_plain";
  static constexpr std::string_view kText = "S = fl(C/amax), 0 where amax is 0; D = fl(1/S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    return TensorScaleOfEncode(in.amax == 0.0f ? 0.0f : in.c / in.amax);
  }
};

template <>
struct Formula<TensorScaleRule::kMultiplier> : DecodeFirst, ReadByDecode {
  static constexpr std::string_view kLabel = "multiplier";
  static constexpr std::string_view kText = "D = fl(amax/C); S = fl(1/D)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    return TensorScaleOfDecode(in.amax / in.c);
  }
};

template <>
struct Formula<TensorScaleRule::kTwoDivisions> : DecodeFirst, ReadByDecode {
  static constexpr std::string_view kLabel = "two_divisions";
  static constexpr std::string_view kText =
      "D = fl(fl(amax/scale_max)/q), 1 where amax is 0; S = fl(1/D)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    return TensorScaleOfDecode(in.amax == 0.0f ? 1.0f : in.amax / in.scale_max / in.q);
  }
};

// torch's quotient of a Python number and a tensor: the tensor's reciprocal, times the number.
constexpr float TimesReciprocal(float c, float amax) { return 1.0f / amax * c; }

template <>
struct Formula<TensorScaleRule::kDivisor> : EncodeFirst, ReadByDecode {
  static constexpr std::string_view kLabel = "divisor";
  static constexpr std::string_view kText = "S = fl(fl(1/amax) * C); D = fl(1/S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    return TensorScaleOfEncode(TimesReciprocal(in.c, in.amax));
  }
};

template <>
struct Formula<TensorScaleRule::kDivisorOrOne> : EncodeFirst, ReadByDecode {
  // compressed-tensors clamps amax to FLT_MIN before; below it, S is Inf with or without the clamp.
  static constexpr std::string_view kLabel = "divisor_or_one";
  static constexpr std::string_view kText =
      "S = fl(fl(1/max(amax, FLT_MIN)) * C), 1 where that is Inf or NaN; D = fl(1/S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    const float encode = TimesReciprocal(in.c, in.amax);
    return encode <= kFloatMax ? TensorScaleOfEncode(encode) : TensorScale{};  // false for NaN
  }
};

template <>
struct Formula<TensorScaleRule::kDivisorBf16> : EncodeFirst, ReadByDecode {
  // kDivisorOrOne of a BF16 tensor, each operation rounded to BF16.
  static constexpr std::string_view kLabel = "divisor_bf16";
  static constexpr std::string_view kText =
      "S = bf16(bf16(1/max(amax, FLT_MIN)) * C), 1 where that is Inf or NaN; D = fl(1/S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    const float encode = RoundToBf16(RoundToBf16(1.0f / in.amax) * in.c);
    return encode <= kFloatMax ? TensorScaleOfEncode(encode) : TensorScale{};
  }
};

template <>
struct Formula<TensorScaleRule::kTimesReciprocal> : EncodeFirst, ReadByDecode {
  // torch's quotient of a Python number and a tensor.
  static constexpr std::string_view kLabel = "times_reciprocal";
  static constexpr std::string_view kText =
      "S = fl(C * fl(1/amax)), FLT_MAX where amax is 0; D = fl(1/S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    return TensorScaleOfEncode(in.amax == 0.0f ? kFloatMax : in.c * (1.0f / in.amax));
  }
};

template <>
struct Formula<TensorScaleRule::kTimesReciprocalOrZero> : EncodeFirst, ReadByDecode {
  static constexpr std::string_view kLabel = "times_reciprocal_or_zero";
  static constexpr std::string_view kText = "S = fl(C * fl(1/amax)); D = fl(1/S), with 0 for 1/0";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    const float encode = in.amax == 0.0f ? 0.0f : in.c * (1.0f / in.amax);
    return {encode, encode == 0.0f ? 0.0f : 1.0f / encode};
  }
};

template <>
struct Formula<TensorScaleRule::kOverFloored> : EncodeFirst, ReadByDecode {
  static constexpr std::string_view kLabel = "over_floored";
  static constexpr std::string_view kText = "S = fl(C/max(amax, 10^-8)); D = fl(1/S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    return TensorScaleOfEncode(in.c / (in.amax > 1e-8f ? in.amax : 1e-8f));
  }
};

template <>
struct Formula<TensorScaleRule::kMultiplierOrEpsilon> : DecodeFirst, ReadByDecode {
  static constexpr std::string_view kLabel = "multiplier_or_epsilon";
  static constexpr std::string_view kText = "D = fl(amax/C), 2^-23 where that is 0; S = fl(1/D)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    const float decode = in.amax / in.c;
    return TensorScaleOfDecode(decode == 0.0f ? kFloatEpsilon : decode);
  }
};

template <>
struct Formula<TensorScaleRule::kTensorFp8> : EncodeFirst, ReadByDecode {
  // One scale and no blocks; q is the largest element.
  static constexpr std::string_view kLabel = "tensor_fp8";
  static constexpr std::string_view kText =
      "S = min(fl(q/amax), FLT_MAX), 1 where amax is 0, Inf or NaN; D = fl(1/S)";
  static constexpr TensorScale Numbers(const TensorScaleInput& in) {
    return TensorFp8Scale(in.element, in.amax);
  }
};

struct TensorScaleFromAmax {
  TensorScaleInput in;
  template <class F>
  constexpr TensorScale operator()(F) const {
    return F::Numbers(in);
  }
};
struct DecodeFirstOf {
  template <class F>
  constexpr bool operator()(F) const {
    return F::kDecodeFirst;
  }
};
struct AlphaHasAmaxOf {
  template <class F>
  constexpr bool operator()(F) const {
    return F::kAlphaHasAmax;
  }
};
struct ValuesHaveAmaxOf {
  template <class F>
  constexpr bool operator()(F) const {
    return F::kValuesHaveAmax;
  }
};

// Whether the rule computes D from amax and S as the reciprocal of D (otherwise the reverse).
constexpr bool IsDecodeFirst(TensorScaleRule rule) {
  return WithFormula<bool>(rule, DecodeFirstOf{});
}

}  // namespace fp4lab
