#include "fp4lab/dialect/labels.h"

namespace fp4lab {

std::string_view LabelOf(LevelTwo rule) {
  switch (rule) {
    case LevelTwo::kNone:
      return "none";
    case LevelTwo::kEncodeScale:
      return "encode_scale";
    case LevelTwo::kEncodeFused:
      return "encode_fused";
    case LevelTwo::kEncodeApproximate:
      return "encode_approximate";
    case LevelTwo::kEncodePartial:
      return "encode_partial";
    case LevelTwo::kEncodeJax:
      return "encode_jax";
    case LevelTwo::kEncodePlain:
      return "encode_plain";
    case LevelTwo::kMultiplier:
      return "multiplier";
    case LevelTwo::kTwoDivisions:
      return "two_divisions";
    case LevelTwo::kDivisor:
      return "divisor";
    case LevelTwo::kDivisorOrOne:
      return "divisor_or_one";
    case LevelTwo::kTensorFp8:
      return "tensor_fp8";
  }
  return "";
}

namespace {
struct LabelOfRule {
  template <class Rule>
  std::string_view operator()(Rule) const {
    return Rule::kLabel;
  }
};
}  // namespace

std::string_view LabelOf(BlockScale rule) {
  return WithBlockScaleRule<std::string_view>(rule, LabelOfRule{});
}

std::string_view LabelOf(ScaleEncoding rule) {
  switch (rule) {
    case ScaleEncoding::kNearest:
      return "nearest";
    case ScaleEncoding::kClamp2m6:
      return "clamp_2m6";
    case ScaleEncoding::kClamp2m9:
      return "clamp_2m9";
    case ScaleEncoding::kZeroToOne:
      return "zero_to_one";
    case ScaleEncoding::kZeroToLeast:
      return "zero_to_least";
    case ScaleEncoding::kZeroToEpsilon:
      return "zero_to_epsilon";
    case ScaleEncoding::kOneWhereTiny:
      return "one_where_tiny";
    case ScaleEncoding::kHalfUpGgml:
      return "half_up_ggml";
    case ScaleEncoding::kExponent:
      return "exponent";
    case ScaleEncoding::kBinary32:
      return "binary32";
  }
  return "";
}

std::string_view LabelOf(Factor rule) {
  switch (rule) {
    case Factor::kReciprocal:
      return "reciprocal";
    case Factor::kReciprocalNan:
      return "reciprocal_nan";
    case Factor::kReciprocalApproximate:
      return "reciprocal_approximate";
    case Factor::kReciprocalOrZero:
      return "reciprocal_or_zero";
    case Factor::kReciprocalOpen:
      return "reciprocal_open";
    case Factor::kReciprocalInfinite:
      return "reciprocal_infinite";
    case Factor::kReciprocalGuarded:
      return "reciprocal_guarded";
    case Factor::kEncodeOverScale:
      return "encode_over_scale";
    case Factor::kEncodeOverScaleOpen:
      return "encode_over_scale_open";
    case Factor::kEncodeTimesRcp:
      return "encode_times_rcp";
    case Factor::kBf16:
      return "bf16";
    case Factor::kRcpLevelOverScale:
      return "rcp_level_over_scale";
    case Factor::kDivideByProduct:
      return "divide_by_product";
    case Factor::kDivideByQuotient:
      return "divide_by_quotient";
    case Factor::kDivideByScale:
      return "divide_by_scale";
    case Factor::kTwoSteps:
      return "two_steps";
    case Factor::kSearch:
      return "search";
    case Factor::kPowerOfTwo:
      return "power_of_two";
    case Factor::kDivideByNormal:
      return "divide_by_normal";
    case Factor::kTensorScale:
      return "tensor_scale";
    case Factor::kEncodeTimesApproximate:
      return "encode_times_approximate";
    case Factor::kApproximate:
      return "approximate";
  }
  return "";
}

std::string_view LabelOf(ElementRounding rule) {
  switch (rule) {
    case ElementRounding::kNearestEven:
      return "nearest_even";
    case ElementRounding::kTiesUp:
      return "ties_up";
    case ElementRounding::kHalfAdded:
      return "half_added";
    case ElementRounding::kBf16First:
      return "bf16_first";
    case ElementRounding::kTiesToLower:
      return "ties_to_lower";
    case ElementRounding::kTowardZero:
      return "toward_zero";
    case ElementRounding::kStochastic16:
      return "stochastic_16";
    case ElementRounding::kStochastic8:
      return "stochastic_8";
    case ElementRounding::kStochastic4:
      return "stochastic_4";
    case ElementRounding::kStochastic32:
      return "stochastic_32";
  }
  return "";
}

std::string_view LabelOf(Adaptive rule) {
  switch (rule) {
    case Adaptive::kNo:
      return "none";
    case Adaptive::kMae:
      return "mae";
    case Adaptive::kMse:
      return "mse";
    case Adaptive::kAbsMax:
      return "abs_max";
  }
  return "";
}

std::string_view LabelOf(NanRule rule) {
  switch (rule) {
    case NanRule::kElement:
      return "element";
    case NanRule::kBlock:
      return "block";
    case NanRule::kTensor:
      return "tensor";
  }
  return "";
}

std::string_view LabelOf(InfScale rule) {
  switch (rule) {
    case InfScale::kRule:
      return "rule";
    case InfScale::kNan:
      return "nan";
    case InfScale::kNumber:
      return "number";
  }
  return "";
}

std::string_view LabelOf(BlockStatistic rule) {
  switch (rule) {
    case BlockStatistic::kAmax:
      return "none";
    case BlockStatistic::kQuest:
      return "quest";
  }
  return "";
}

std::string_view LabelOf(Unbias rule) {
  switch (rule) {
    case Unbias::kNone:
      return "none";
    case Unbias::kMsEden:
      return "ms_eden";
  }
  return "";
}

std::string_view LabelOf(ScaleRule rule) {
  switch (rule) {
    case ScaleRule::kNvfp4:
      return "nvfp4";
    case ScaleRule::kFloor:
      return "floor";
    case ScaleRule::kCeil:
      return "ceil";
    case ScaleRule::kRceil:
      return "rceil";
    case ScaleRule::kEven:
      return "even";
    case ScaleRule::kTensor:
      return "tensor";
  }
  return "";
}

}  // namespace fp4lab
