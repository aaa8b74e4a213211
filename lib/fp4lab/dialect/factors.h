// The factor of a block from s, S and D, and v, the scaled element, from x and the factor.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "fp4lab/dialect/block_scale_rules.h"
#include "fp4lab/dialect/exponent_bytes.h"
#include "fp4lab/dialect/formula.h"
#include "fp4lab/dialect/tensor_scale.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

enum class Factor : std::uint8_t {
  kReciprocal,
  kReciprocalNan,
  kReciprocalApproximate,
  kReciprocalSubnormalApproximate,
  kReciprocalOrZero,
  kReciprocalZeroBlock,
  kReciprocalOpen,
  kReciprocalPlain,
  kReciprocalInfinite,
  kReciprocalGuarded,
  kReciprocalOfHuge,
  kEncodeOverScale,
  kEncodeOverScaleOpen,
  kEncodeTimesRcp,
  kEncodeOfBlock,
  kBf16,
  kRcpTensorScaleOverScale,
  kDivideByProduct,
  kDivideByProductOrZero,
  kDivideByProductOrEpsilon,
  kDivideByQuotient,
  kDivideByScale,
  kDivideByScaleOrInf,
  kDivideByScaleOrAmax,
  kDivideByQuark,
  kTwoSteps,
  kSearch,
  kPowerOfTwo,
  kPowerOfTwoOrOne,
  kPowerOfTwoApproximate,
  kDivideByWrapped,
  kDivideByNormal,
  kTensorScale,
  kEncodeTimesApproximate,
  kApproximate
};
constexpr Factor LastOf(Factor) { return Factor::kApproximate; }

// How v follows from x and e.
enum class ElementScaling : std::uint8_t {
  kMultiply,       // fl(x * e)
  kDivide,         // fl(x / e)
  kFused,          // fma(x, e, +0) for a BF16 e
  kZeroWhereZero,  // fl(x * e), 0 where e is 0
  kTwoSteps,       // fl(fl(x / D) * e), 0 where e is 0; x / D is 0 where D is 0
  kDivideOrZero    // fl(x / e), 0 where e is 0
};
constexpr ElementScaling LastOf(ElementScaling) { return ElementScaling::kDivideOrZero; }

struct FactorInput {
  float b;            // the block's amax
  float s;            // the stored scale's value
  std::uint8_t byte;  // the stored scale's byte
  TensorScale tensor;
  BlockScale rule;  // the rule and the element's format that the byte was made by
  FormatId element;
};

inline constexpr float kBf16Max = 0x1.fep127f;

constexpr float GuardedReciprocal(float x) { return x == 0.0f ? 0.0f : 1.0f / x; }

// e of kReciprocal, as a function that tuned kernels call. s = 0 and NaN give FLT_MAX, as fminf
// does.
constexpr float ReciprocalFactor(float s, float decode) {
  const float product = s * decode;
  return product == 0.0f ? kFloatMax : ClampToMax(1.0f / product);
}

// Members of the structs: kText, the exact formula; kShort, the formula without roundings and
// guards; kScaling; Number, e or the divisor of x.

template <>
struct Formula<Factor::kReciprocal> {
  static constexpr std::string_view kLabel = "reciprocal";
  static constexpr std::string_view kText =
      "v = fl(x*e), e = min(fl(1/fl(s*D)), FLT_MAX), NaN dropped";
  static constexpr std::string_view kShort = "e = 1 / (s * D)";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return ReciprocalFactor(in.s, in.tensor.decode);
  }
};

template <>
struct Formula<Factor::kReciprocalNan> {
  // NaN stays NaN.
  static constexpr std::string_view kLabel = "reciprocal_nan";
  static constexpr std::string_view kText = "v = fl(x*e), e = min(fl(1/fl(s*D)), FLT_MAX)";
  static constexpr std::string_view kShort = "e = 1 / (s * D)";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return ClampToMaxOrNan(1.0f / (in.s * in.tensor.decode));
  }
};

template <>
struct Formula<Factor::kReciprocalApproximate> : ApproximateFormula {
  // The instruction allows a set of answers; Number has the rounded reciprocal, flushed.
  static constexpr std::string_view kLabel = "reciprocal_approximate";
  static constexpr std::string_view kText =
      "v = fl(x*e), e = min(rcp.approx.ftz(fl(s*D)), FLT_MAX)";
  static constexpr std::string_view kShort = "e = 1 / (s * D)";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return ClampToMax(RcpFtz(in.s * in.tensor.decode));
  }
};

template <>
struct Formula<Factor::kReciprocalSubnormalApproximate> : ApproximateFormula {
  // The instruction allows a set of answers; Number has the correctly rounded reciprocal. Without
  // `.ftz`, subnormal arguments and results are numbers.
  static constexpr std::string_view kLabel = "reciprocal_subnormal_approximate";
  static constexpr std::string_view kText = "v = fl(x*e), e = min(rcp.approx(fl(s*D)), FLT_MAX)";
  static constexpr std::string_view kShort = "e = 1 / (s * D)";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return Formula<Factor::kReciprocal>::Number(in);
  }
};

template <>
struct Formula<Factor::kReciprocalOrZero> {
  static constexpr std::string_view kLabel = "reciprocal_or_zero";
  static constexpr std::string_view kText =
      "v = fl(x*e), e = min(fl(1/fl(s*D)), FLT_MAX), 0 where s is 0";
  static constexpr std::string_view kShort = "e = 1 / (s * D)";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return in.s == 0.0f ? 0.0f : Formula<Factor::kReciprocal>::Number(in);
  }
};

template <>
struct Formula<Factor::kReciprocalZeroBlock> {
  // A block of zeros has codes of +0, also for -0 and NaN.
  static constexpr std::string_view kLabel = "reciprocal_zero_block";
  static constexpr std::string_view kText =
      "v = fl(x*e), e = min(fl(1/fl(s*D)), FLT_MAX), NaN dropped; v = 0 where b is 0";
  static constexpr std::string_view kShort = "e = 1 / (s * D)";
  static constexpr ElementScaling kScaling = ElementScaling::kZeroWhereZero;
  static constexpr float Number(const FactorInput& in) {
    return in.b == 0.0f ? 0.0f : Formula<Factor::kReciprocal>::Number(in);
  }
};

template <>
struct Formula<Factor::kReciprocalOpen> {
  static constexpr std::string_view kLabel = "reciprocal_open";
  static constexpr std::string_view kText = "v = fl(x*e), e = fl(1/fl(D*s)), v = 0 where s is 0";
  static constexpr std::string_view kShort = "e = 1 / (s * D)";
  static constexpr ElementScaling kScaling = ElementScaling::kZeroWhereZero;
  static constexpr float Number(const FactorInput& in) {
    return in.s == 0.0f ? 0.0f : 1.0f / (in.tensor.decode * in.s);
  }
};

template <>
struct Formula<Factor::kReciprocalPlain> {
  // e is Inf where s is 0, so zeros become NaN.
  static constexpr std::string_view kLabel = "reciprocal_plain";
  static constexpr std::string_view kText = "v = fl(x*e), e = fl(1/fl(s*D))";
  static constexpr std::string_view kShort = "e = 1 / (s * D)";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) { return 1.0f / (in.s * in.tensor.decode); }
};

template <>
struct Formula<Factor::kReciprocalInfinite> {
  // e is Inf where s is 0.
  static constexpr std::string_view kLabel = "reciprocal_infinite";
  static constexpr std::string_view kText = "v = fl(x*e), e = fl(1/fl(s*D)), 0 where b is 0";
  static constexpr std::string_view kShort = "e = 1 / (s * D)";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return in.b == 0.0f ? 0.0f : 1.0f / (in.s * in.tensor.decode);
  }
};

template <>
struct Formula<Factor::kReciprocalGuarded> {
  static constexpr std::string_view kLabel = "reciprocal_guarded";
  static constexpr std::string_view kText = "v = fl(x*e), e = fl(1/fl(s*fl(1/S))), with 0 for 1/0";
  static constexpr std::string_view kShort = "e = 1 / (s * (1/S))";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return GuardedReciprocal(in.s * GuardedReciprocal(in.tensor.encode));
  }
};

// vLLM's reciprocal: 10^-8 for 1/0.
constexpr float ReciprocalOrTiny(float x) { return 1.0f / (x == 0.0f ? 1e8f : x); }

template <>
struct Formula<Factor::kReciprocalOfHuge> {
  static constexpr std::string_view kLabel = "reciprocal_of_huge";
  static constexpr std::string_view kText =
      "v = fl(x*e), e = fl(1/fl(s*fl(1/S))), with fl(10^-8) for 1/0";
  static constexpr std::string_view kShort = "e = 1 / (s * (1/S))";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return ReciprocalOrTiny(in.s * ReciprocalOrTiny(in.tensor.encode));
  }
};

template <>
struct Formula<Factor::kEncodeOverScale> {
  static constexpr std::string_view kLabel = "encode_over_scale";
  static constexpr std::string_view kText =
      "v = fl(x*e), e = min(fl(S/s), FLT_MAX), 0 where s is 0";
  static constexpr std::string_view kShort = "e = S / s";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return in.s == 0.0f ? 0.0f : ClampToMax(in.tensor.encode / in.s);
  }
};

template <>
struct Formula<Factor::kEncodeOverScaleOpen> {
  static constexpr std::string_view kLabel = "encode_over_scale_open";
  static constexpr std::string_view kText = "v = fl(x*e), e = fl(S/s), 0 where s is 0";
  static constexpr std::string_view kShort = "e = S / s";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return in.s == 0.0f ? 0.0f : in.tensor.encode / in.s;
  }
};

template <>
struct Formula<Factor::kEncodeTimesRcp> {
  // NaN stays NaN.
  static constexpr std::string_view kLabel = "encode_times_rcp";
  static constexpr std::string_view kText = "v = fl(x*e), e = min(fl(S*fl(1/s)), FLT_MAX)";
  static constexpr std::string_view kShort = "e = S * (1/s)";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return ClampToMaxOrNan(in.tensor.encode * (1.0f / in.s));
  }
};

template <>
struct Formula<Factor::kEncodeOfBlock> {
  // Transformer Engine's FP8 blocks: the factor is computed first, and the scale is its reciprocal.
  static constexpr std::string_view kLabel = "encode_of_block";
  static constexpr std::string_view kText =
      "v = fl(x*e), e = min(fl(q/b), FLT_MAX), 1 where b is 0, Inf or NaN";
  static constexpr std::string_view kShort = "e = q / b";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return EncodeOfBlock(in.b, MaxFinite(in.element));
  }
};

template <>
struct Formula<Factor::kBf16> {
  static constexpr std::string_view kLabel = "bf16";
  static constexpr std::string_view kText =
      "v = fma(x, e, +0), e = bf16(min(fl(S/s), largest bf16))";
  static constexpr std::string_view kShort = "e = bf16(S / s)";
  static constexpr ElementScaling kScaling = ElementScaling::kFused;
  static constexpr float Number(const FactorInput& in) {
    const float quotient = in.tensor.encode / in.s;
    return RoundToBf16(quotient < kBf16Max ? quotient : kBf16Max);
  }
};

template <>
struct Formula<Factor::kRcpTensorScaleOverScale> {
  static constexpr std::string_view kLabel = "rcp_level_over_scale";
  static constexpr std::string_view kText = "v = fl(x*e), e = fl(fl(1/D)/s)";
  static constexpr std::string_view kShort = "e = (1/D) / s";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) { return 1.0f / in.tensor.decode / in.s; }
};

template <>
struct Formula<Factor::kDivideByProduct> {
  static constexpr std::string_view kLabel = "divide_by_product";
  static constexpr std::string_view kText = "v = fl(x / fl(s*D))";
  static constexpr std::string_view kShort = "divisor = s * D";
  static constexpr ElementScaling kScaling = ElementScaling::kDivide;
  static constexpr float Number(const FactorInput& in) { return in.s * in.tensor.decode; }
};

template <>
struct Formula<Factor::kDivideByProductOrZero> {
  static constexpr std::string_view kLabel = "divide_by_product_or_zero";
  static constexpr std::string_view kText = "v = fl(x / fl(s*D)), 0 where fl(s*D) is 0";
  static constexpr std::string_view kShort = "divisor = s * D";
  static constexpr ElementScaling kScaling = ElementScaling::kDivideOrZero;
  static constexpr float Number(const FactorInput& in) { return in.s * in.tensor.decode; }
};

template <>
struct Formula<Factor::kDivideByProductOrEpsilon> {
  static constexpr std::string_view kLabel = "divide_by_product_or_epsilon";
  static constexpr std::string_view kText = "v = fl(x / fl(s*D)), with 2^-23 for fl(s*D) = 0";
  static constexpr std::string_view kShort = "divisor = s * D";
  static constexpr ElementScaling kScaling = ElementScaling::kDivide;
  static constexpr float Number(const FactorInput& in) {
    const float product = in.s * in.tensor.decode;
    return product == 0.0f ? kFloatEpsilon : product;
  }
};

template <>
struct Formula<Factor::kDivideByQuotient> {
  static constexpr std::string_view kLabel = "divide_by_quotient";
  static constexpr std::string_view kText = "v = fl(x / fl(s/S))";
  static constexpr std::string_view kShort = "divisor = s / S";
  static constexpr ElementScaling kScaling = ElementScaling::kDivide;
  static constexpr float Number(const FactorInput& in) { return in.s / in.tensor.encode; }
};

template <>
struct Formula<Factor::kDivideByScale> {
  static constexpr std::string_view kLabel = "divide_by_scale";
  static constexpr std::string_view kText = "v = fl(x/s)";
  static constexpr std::string_view kShort = "divisor = s";
  static constexpr ElementScaling kScaling = ElementScaling::kDivide;
  static constexpr float Number(const FactorInput& in) { return in.s; }
};

template <>
struct Formula<Factor::kDivideByScaleOrInf> {
  static constexpr std::string_view kLabel = "divide_by_scale_or_inf";
  static constexpr std::string_view kText = "v = fl(x/s), x / Inf where s is NaN";
  static constexpr std::string_view kShort = "divisor = s";
  static constexpr ElementScaling kScaling = ElementScaling::kDivide;
  static constexpr float Number(const FactorInput& in) {
    return in.s != in.s ? std::bit_cast<float>(0x7F800000u) : in.s;
  }
};

template <>
struct Formula<Factor::kDivideByScaleOrAmax> {
  static constexpr std::string_view kLabel = "divide_by_scale_or_amax";
  static constexpr std::string_view kText = "v = fl(x/s), x / b where b is Inf or NaN";
  static constexpr std::string_view kShort = "divisor = s";
  static constexpr ElementScaling kScaling = ElementScaling::kDivide;
  static constexpr float Number(const FactorInput& in) {
    return in.b <= kFloatMax ? in.s : in.b;  // false for NaN
  }
};

template <>
struct Formula<Factor::kDivideByQuark> {
  // Differs from s where the export raised a scale to 2^-126, and where s is NaN for b = Inf.
  static constexpr std::string_view kLabel = "divide_by_quark";
  static constexpr std::string_view kText = "v = fl(x/s')";
  static constexpr std::string_view kShort = "divisor = s'";
  static constexpr ElementScaling kScaling = ElementScaling::kDivide;
  static constexpr float Number(const FactorInput& in) {
    if (in.rule == BlockScale::kQuarkFloor) return QuarkFloorScale(in.b, in.element);
    if (in.rule == BlockScale::kQuarkCeil) return QuarkCeilScale(in.b, in.element);
    return QuarkEvenScale(in.b, in.element);
  }
};

template <>
struct Formula<Factor::kTwoSteps> {
  static constexpr std::string_view kLabel = "two_steps";
  static constexpr std::string_view kText = "v = fl(fl(x/D) * fl(1/s)), 0 where s is 0";
  static constexpr std::string_view kShort = "1/s";
  static constexpr ElementScaling kScaling = ElementScaling::kTwoSteps;
  static constexpr float Number(const FactorInput& in) { return GuardedReciprocal(in.s); }
};

template <>
struct Formula<Factor::kSearch> {
  // The code is found by comparing |value*s - x|; v = fl(x/s) does not enter the search.
  static constexpr std::string_view kLabel = "search";
  static constexpr std::string_view kText = "none: the code minimises |value*s - x|";
  static constexpr std::string_view kShort = "divisor = s";
  static constexpr ElementScaling kScaling = ElementScaling::kDivide;
  static constexpr float Number(const FactorInput& in) { return in.s; }
};

template <>
struct Formula<Factor::kPowerOfTwo> {
  // The exact reciprocal of an E8M0 scale.
  static constexpr std::string_view kLabel = "power_of_two";
  static constexpr std::string_view kText = "v = fl(x * 2^-k)";
  static constexpr std::string_view kShort = "e = 1 / s";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) { return E8m0Reciprocal(in.byte); }
};

template <>
struct Formula<Factor::kPowerOfTwoOrOne> {
  static constexpr std::string_view kLabel = "power_of_two_or_one";
  static constexpr std::string_view kText = "v = fl(x * 2^-k), x where the byte is 0";
  static constexpr std::string_view kShort = "e = 1 / s";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return in.byte == 0 ? 1.0f : E8m0Reciprocal(in.byte);
  }
};

template <>
struct Formula<Factor::kPowerOfTwoApproximate> : ApproximateFormula {
  // ex2.approx.ftz flushes 2^-127, the factor of a byte of 254 (b = Inf); Number has 2^-127.
  static constexpr std::string_view kLabel = "power_of_two_approximate";
  static constexpr std::string_view kText = "v = fl(x * 2^-k), x where the byte is 0";
  static constexpr std::string_view kShort = "e = 1 / s";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return in.byte == 0 ? 1.0f : E8m0Reciprocal(in.byte);
  }
};

template <>
struct Formula<Factor::kDivideByWrapped> {
  // The divisor is the power of two that the byte lost by its wrap: bytes above 127 of blocks below
  // 2^-100 are 256 too great. It is 0 where b is NaN or Inf.
  static constexpr std::string_view kLabel = "divide_by_wrapped";
  static constexpr std::string_view kText =
      "v = fl(x / 2^k), k the exponent before the byte's wrap; x / 0 where b is NaN or Inf";
  static constexpr std::string_view kShort = "divisor = s";
  static constexpr ElementScaling kScaling = ElementScaling::kDivide;
  static constexpr float Number(const FactorInput& in) {
    if (!(in.b <= kFloatMax)) return 0.0f;
    const int k = in.byte - 127 - (in.byte > 127 && in.b < 0x1p-100f ? 256 : 0);
    return std::bit_cast<float>(k < -126 ? 1u << (k + 149)
                                         : static_cast<std::uint32_t>(k + 127) << 23);
  }
};

template <>
struct Formula<Factor::kDivideByNormal> {
  // The divisor has the E8M0 byte as its exponent field, but at least the field of FLT_MIN.
  static constexpr std::string_view kLabel = "divide_by_normal";
  static constexpr std::string_view kText = "v = fl(x / max(s, FLT_MIN)), x / Inf where s is NaN";
  static constexpr std::string_view kShort = "divisor = max(s, FLT_MIN)";
  static constexpr ElementScaling kScaling = ElementScaling::kDivide;
  static constexpr float Number(const FactorInput& in) {
    return in.s != in.s ? std::bit_cast<float>(0x7F800000u) : in.s < kFloatMin ? kFloatMin : in.s;
  }
};

template <>
struct Formula<Factor::kTensorScale> {
  static constexpr std::string_view kLabel = "tensor_scale";
  static constexpr std::string_view kText = "v = fl(x*S)";
  static constexpr std::string_view kShort = "e = S";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) { return in.tensor.encode; }
};

template <>
struct Formula<Factor::kEncodeTimesApproximate> : ApproximateFormula {
  // The instruction allows a set of answers; Number has the correctly rounded reciprocal.
  static constexpr std::string_view kLabel = "encode_times_approximate";
  static constexpr std::string_view kText =
      "v = fl(x*e), e = min(fl(S*rcp.approx.ftz(s)), FLT_MAX)";
  static constexpr std::string_view kShort = "e = S * (1/s)";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return ClampToMaxOrNan(in.tensor.encode * RcpFtz(in.s));
  }
};

template <>
struct Formula<Factor::kApproximate> : ApproximateFormula {
  // The instructions allow a set of answers; Number has the correctly rounded reciprocals.
  static constexpr std::string_view kLabel = "approximate";
  static constexpr std::string_view kText =
      "v = fl(x*e), e = rcp.approx.ftz(fl(s*rcp.approx.ftz(S))), 0 where b is 0";
  static constexpr std::string_view kShort = "e = 1 / (s * (1/S))";
  static constexpr ElementScaling kScaling = ElementScaling::kMultiply;
  static constexpr float Number(const FactorInput& in) {
    return in.b == 0.0f ? 0.0f : RcpFtz(in.s * RcpFtz(in.tensor.encode));
  }
};

struct FactorNumberOf {
  FactorInput in;
  template <class F>
  constexpr float operator()(F) const {
    return F::Number(in);
  }
};
struct ScalingOfFormula {
  template <class F>
  constexpr ElementScaling operator()(F) const {
    return F::kScaling;
  }
};
constexpr ElementScaling ScalingOf(Factor factor) {
  return WithFormula<ElementScaling>(factor, ScalingOfFormula{});
}

// The factors with a scaling, as a bit mask: device code tests the scaling for each element.
template <ElementScaling kScaling>
inline constexpr std::uint64_t kFactorsWith = [] {
  static_assert(static_cast<int>(LastOf(Factor{})) < 64);
  std::uint64_t factors = 0;
  for (std::uint32_t i = 0; i <= static_cast<std::uint32_t>(LastOf(Factor{})); ++i) {
    if (ScalingOf(static_cast<Factor>(i)) == kScaling) factors |= std::uint64_t{1} << i;
  }
  return factors;
}();
template <ElementScaling kScaling>
constexpr bool HasScaling(Factor factor) {
  return (kFactorsWith<kScaling> >> static_cast<unsigned>(factor) & 1) != 0;
}
constexpr bool Divides(Factor factor) { return HasScaling<ElementScaling::kDivide>(factor); }
// Whether FactorInput's number is a divisor.
constexpr bool HasDivisor(Factor factor) {
  return Divides(factor) || HasScaling<ElementScaling::kDivideOrZero>(factor);
}

// v from x and e, by the scaling of the factor.
constexpr float ScaledBy(Factor factor, float x, float e, const TensorScale& l) {
  if (Divides(factor)) return x / e;
  if (HasScaling<ElementScaling::kDivideOrZero>(factor)) return e == 0.0f ? 0.0f : x / e;
  if (HasScaling<ElementScaling::kFused>(
          factor)) {  // the product is exact in binary64, -0 becomes +0
    return static_cast<float>(static_cast<double>(x) * static_cast<double>(e) + 0.0);
  }
  const bool two_steps = HasScaling<ElementScaling::kTwoSteps>(factor);
  if (e == 0.0f && (two_steps || HasScaling<ElementScaling::kZeroWhereZero>(factor))) return 0.0f;
  if (two_steps) return (l.decode == 0.0f ? 0.0f : x / l.decode) * e;
  return x * e;
}

}  // namespace fp4lab
