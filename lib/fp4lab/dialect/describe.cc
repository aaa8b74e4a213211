#include "fp4lab/dialect/describe.h"

#include <cmath>

namespace fp4lab {

std::string_view FormulaOf(LevelTwo rule) {
  switch (rule) {
    case LevelTwo::kNone:
      return "none";
    case LevelTwo::kEncodeScale:
      return "S = min(fl(C/amax), FLT_MAX), 1 where amax or S is 0; D = fl(1/S)";
    case LevelTwo::kEncodeFused:
      return "S = min(fl(C/amax), FLT_MAX), 1 where amax is 0 or NaN, 0 where it is Inf; D = "
             "fl(1/S)";
    case LevelTwo::kEncodePartial:
      return "S = min(fl(C/max(amax, FLT_MIN)), FLT_MAX), 1 where amax is 0; D = fl(1/S); amax = "
             "Inf: S = 0, D = 1";
    case LevelTwo::kEncodeJax:
      return "S = min(fl(C/amax), FLT_MAX), FLT_MAX where amax is 0, 1 where it is Inf; D = "
             "fl(1/S)";
    case LevelTwo::kEncodeApproximate:
      return "S = min(div.approx.ftz(C, amax), FLT_MAX), 1 where amax or S is 0; D = "
             "rcp.approx.ftz(S)";
    case LevelTwo::kEncodePlain:
      return "S = fl(C/amax), 0 where amax is 0; D = fl(1/S)";
    case LevelTwo::kMultiplier:
      return "D = fl(amax/C); S = fl(1/D)";
    case LevelTwo::kTwoDivisions:
      return "D = fl(fl(amax/scale_max)/q), 1 where amax is 0; S = fl(1/D)";
    case LevelTwo::kDivisor:
      return "S = fl(C/max(amax, FLT_MIN)); D = fl(1/S)";
    case LevelTwo::kDivisorOrOne:
      return "S = fl(C/max(amax, FLT_MIN)), 1 where that is Inf or NaN; D = fl(1/S)";
    case LevelTwo::kTensorFp8:
      return "S = min(fl(q/amax), FLT_MAX), 1 where amax is 0, Inf or NaN; D = fl(1/S)";
  }
  return "";
}

namespace {
struct TextOfRule {
  template <class Rule>
  std::string_view operator()(Rule) const {
    return Rule::kText;
  }
};
struct ShortOfRule {
  template <class Rule>
  std::string_view operator()(Rule) const {
    return Rule::kShort;
  }
};
}  // namespace

std::string_view FormulaOf(BlockScale rule) {
  return WithBlockScaleRule<std::string_view>(rule, TextOfRule{});
}

std::string_view ShortFormulaOf(BlockScale rule) {
  return WithBlockScaleRule<std::string_view>(rule, ShortOfRule{});
}

std::string_view FormulaOf(ScaleEncoding rule) {
  switch (rule) {
    case ScaleEncoding::kNearest:
      return "t to nearest even, saturating";
    case ScaleEncoding::kClamp2m6:
      return "t clamped to [2^-6, 448], to nearest even";
    case ScaleEncoding::kClamp2m9:
      return "t = 0 becomes 1, then at least 2^-9; to nearest even, beyond 464 NaN";
    case ScaleEncoding::kZeroToOne:
      return "t to nearest even, saturating; 0 becomes 1";
    case ScaleEncoding::kZeroToLeast:
      return "t to nearest even, saturating; 0 becomes the least positive where b > 0";
    case ScaleEncoding::kZeroToEpsilon:
      return "t to nearest even, saturating; 0 becomes 2^-3";
    case ScaleEncoding::kOneWhereTiny:
      return "t < 2^-63 becomes 1; to nearest even, saturating";
    case ScaleEncoding::kHalfUpGgml:
      return "t half up on the bits; 256 and beyond become 448";
    case ScaleEncoding::kExponent:
      return "the exponent";
    case ScaleEncoding::kBinary32:
      return "none: s = t in binary32";
  }
  return "";
}

std::string_view FormulaOf(Factor rule) {
  switch (rule) {
    case Factor::kReciprocal:
      return "v = fl(x*e), e = min(fl(1/fl(s*D)), FLT_MAX), NaN dropped";
    case Factor::kReciprocalNan:
      return "v = fl(x*e), e = min(fl(1/fl(s*D)), FLT_MAX)";
    case Factor::kReciprocalApproximate:
      return "v = fl(x*e), e = min(rcp.approx.ftz(fl(s*D)), FLT_MAX)";
    case Factor::kReciprocalOrZero:
      return "v = fl(x*e), e = min(fl(1/fl(s*D)), FLT_MAX), 0 where s is 0";
    case Factor::kReciprocalOpen:
      return "v = fl(x*e), e = fl(1/fl(D*s)), v = 0 where s is 0";
    case Factor::kReciprocalInfinite:
      return "v = fl(x*e), e = fl(1/fl(s*D)), 0 where b is 0";
    case Factor::kReciprocalGuarded:
      return "v = fl(x*e), e = fl(1/fl(s*fl(1/S))), with 0 for 1/0";
    case Factor::kEncodeOverScale:
      return "v = fl(x*e), e = min(fl(S/s), FLT_MAX), 0 where s is 0";
    case Factor::kEncodeOverScaleOpen:
      return "v = fl(x*e), e = fl(S/s), 0 where s is 0";
    case Factor::kEncodeTimesRcp:
      return "v = fl(x*e), e = min(fl(S*fl(1/s)), FLT_MAX)";
    case Factor::kBf16:
      return "v = fma(x, e, +0), e = bf16(min(fl(S/s), largest bf16))";
    case Factor::kRcpLevelOverScale:
      return "v = fl(x*e), e = fl(fl(1/D)/s)";
    case Factor::kDivideByProduct:
      return "v = fl(x / fl(s*D))";
    case Factor::kDivideByQuotient:
      return "v = fl(x / fl(s/S))";
    case Factor::kDivideByScale:
      return "v = fl(x/s)";
    case Factor::kTwoSteps:
      return "v = fl(fl(x/D) * fl(1/s)), 0 where s is 0";
    case Factor::kSearch:
      return "none: the code is searched for";
    case Factor::kPowerOfTwo:
      return "v = fl(x * 2^-k)";
    case Factor::kDivideByNormal:
      return "v = fl(x / max(s, FLT_MIN)), x / Inf where s is NaN";
    case Factor::kTensorScale:
      return "v = fl(x*S)";
    case Factor::kEncodeTimesApproximate:
      return "v = fl(x*e), e = min(fl(S*rcp.approx.ftz(s)), FLT_MAX)";
    case Factor::kApproximate:
      return "v = fl(x*e), e = rcp.approx.ftz(fl(s*rcp.approx.ftz(S))), 0 where b is 0";
  }
  return "";
}

std::string_view FormulaOf(ElementRounding rule) {
  switch (rule) {
    case ElementRounding::kNearestEven:
      return "v to nearest even, saturating";
    case ElementRounding::kTiesUp:
      return "v to nearest, ties away from zero, saturating";
    case ElementRounding::kHalfAdded:
      return "floor(fl(|v|/step + 0.5)) steps with the sign of v, saturating";
    case ElementRounding::kBf16First:
      return "v to BF16, then to nearest even, saturating";
    case ElementRounding::kTiesToLower:
      return "the first code whose fl(|value*s - x|) is least";
    case ElementRounding::kTowardZero:
      return "v toward zero, saturating";
    case ElementRounding::kStochastic16:
      return "v stochastically with 16 random bits, saturating";
    case ElementRounding::kStochastic8:
      return "v stochastically with 8 random bits, saturating";
    case ElementRounding::kStochastic4:
      return "v stochastically with 4 random bits, saturating";
    case ElementRounding::kStochastic32:
      return "v stochastically with 32 random bits, saturating";
  }
  return "";
}

std::string_view FormulaOf(Adaptive rule) {
  switch (rule) {
    case Adaptive::kNo:
      return "";
    case Adaptive::kMae:
      return "t or fl(1.5 t), whichever gives the lesser sum of |error|; a tie keeps t";
    case Adaptive::kMse:
      return "t or fl(1.5 t), whichever gives the lesser sum of error^2; a tie keeps t";
    case Adaptive::kAbsMax:
      return "t or fl(1.5 t), whichever gives the lesser largest |error|; a tie keeps t";
  }
  return "";
}

std::string_view FormulaOf(NanRule rule) {
  switch (rule) {
    case NanRule::kElement:
      return "left out of all maxima";
    case NanRule::kBlock:
      return "makes its block's maximum NaN";
    case NanRule::kTensor:
      return "makes its block's and the tensor's maximum NaN";
  }
  return "";
}

std::string_view FormulaOf(ScaleRule rule) {
  switch (rule) {
    case ScaleRule::kFloor:
      return "s = 2^(floor(log2 b) - emax)";
    case ScaleRule::kCeil:
      return "s = 2^(ceil(log2 b) - emax)";
    case ScaleRule::kRceil:
      return "s = 2^ceil(log2 fl(b * fl(1/q)))";
    case ScaleRule::kEven:
      return "s = 2^(floor(log2 b') - emax), b' = b plus half a unit of the element's fraction";
    case ScaleRule::kNvfp4:
    case ScaleRule::kTensor:
      break;
  }
  return "";
}

std::string_view FormulaOf(InfScale rule) {
  switch (rule) {
    case InfScale::kRule:
      return "";
    case InfScale::kNan:
      return "an infinite maximum (EVEN: b' = Inf) gives NaN";
    case InfScale::kNumber:
      return "an infinite maximum (EVEN: b' = Inf) counts as 2^128";
  }
  return "";
}

std::string_view ScaleFormulaOf(const Dialect& dialect) {
  return dialect.block_scale == BlockScale::kMicroscaling ? FormulaOf(dialect.mx_rule)
                                                          : FormulaOf(dialect.block_scale);
}

std::string BlockText(const Dialect& dialect) {
  if (dialect.block_rows == 0) return "tensor";
  return std::to_string(dialect.block_rows) + "x" + std::to_string(dialect.block_cols);
}

namespace {

// 448, 447.99, 2688: whole numbers without a fraction.
std::string Number(float x) {
  std::string text = std::to_string(x);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string LevelText(const Dialect& d) {
  std::string text(FormulaOf(d.level_two));
  const float q = MaxFinite(d.element);
  text += "; amax of ";
  text += d.row_scaled ? "the row" : "the tensor";
  if (d.level_two == LevelTwo::kTwoDivisions) {
    text += ", scale_max = " + Number(d.scale_max) + ", q = " + Number(q);
  } else if (d.level_two != LevelTwo::kTensorFp8) {
    text += ", C = " + Number(d.scale_max) + " * " + Number(q) + " = " + Number(d.scale_max * q);
  } else {
    text += ", q = " + Number(q);
  }
  return text;
}

std::string ZeroText(const Dialect& d) {
  if (d.never_negative_zero) return "every code of value 0 is +0";
  return d.keeps_negative_zero ? "signs kept"
                               : "v = -0 becomes +0; what rounds to 0 keeps its sign";
}

std::string NanText(const Dialect& d) {
  std::string text(FormulaOf(d.nan));
  if (d.nan_scale >= 0) text += "; NaN scales are stored as " + std::to_string(d.nan_scale);
  if (d.nan_code >= 0) text += "; NaN elements have code " + std::to_string(d.nan_code);
  return text;
}

}  // namespace

std::vector<DialectLine> Describe(const Dialect& d) {
  const bool has_scales = d.block_scale != BlockScale::kOneBlock;
  const std::string element(Named(d.element).name), scale(Named(d.scale).name);
  std::vector<DialectLine> lines;
  lines.push_back({"format", element + (has_scales ? " in blocks of " + BlockText(d) +
                                                         " with a scale in " + scale
                                                   : " with one scale for the tensor")});
  if (HasLevelTwo(d)) lines.push_back({"level 2", LevelText(d)});
  if (has_scales) {
    lines.push_back(
        {"block scale", std::string(ScaleFormulaOf(d)) +
                            "; b is the block's amax, q = " + Number(MaxFinite(d.element))});
    if (d.scale_encoding != ScaleEncoding::kExponent) {
      lines.push_back({"scale byte", std::string(FormulaOf(d.scale_encoding))});
    }
    if (d.inf_scale != InfScale::kRule) {
      lines.push_back({"scale byte", std::string(FormulaOf(d.inf_scale))});
    }
  }
  lines.push_back({"factor", std::string(FormulaOf(d.factor))});
  lines.push_back({"element", std::string(FormulaOf(d.rounding))});
  if (d.adaptive != Adaptive::kNo) {
    lines.push_back(
        {"candidates", std::string(FormulaOf(d.adaptive)) +
                           (d.adaptive_fp16 ? "; error = fl(value*s - fl(x*S))"
                                            : "; error = fl(fl(fl(value*s*amax) / C) - x)")});
  }
  lines.push_back({"zeros", ZeroText(d)});
  lines.push_back({"NaN", NanText(d)});
  return lines;
}

}  // namespace fp4lab
