#include "fp4lab/judge/plan_edits.h"

#include <limits>
#include <vector>

#include "fp4lab/dialect/quantize.h"
#include "fp4lab/dialect/stages.h"

namespace fp4lab {

bool HasLevelTwo(const KernelPlan& p) { return HasLevelTwo(p.kernel.dialect); }
bool IsMx(const KernelPlan& p) {
  return p.kernel.dialect.scale_encoding == ScaleEncoding::kExponent;
}
bool HasScales(const KernelPlan& p) {
  return p.kernel.dialect.block_scale != BlockScale::kOneBlock;
}
bool HasE4m3Scale(const KernelPlan& p) { return HasScales(p) && !IsMx(p); }
bool IsFp4(const KernelPlan& p) { return p.kernel.dialect.element == FormatId::kE2M1; }
bool IsStochastic(const KernelPlan& p) { return IsStochastic(p.kernel.dialect); }

// ---- What is the same for every input

// Codes are searched for with the element and the stored scale: no factor, no scaled element.
bool Searches(const KernelPlan& p) {
  return p.kernel.dialect.rounding == ElementRounding::kTiesToLower;
}

namespace {

// Formulas that are one where S = D = 1, and an approximate one with the member that stands for it.
BlockScale SameFormula(const KernelPlan& p, BlockScale formula) {
  switch (formula) {
    case BlockScale::kApproximate:
      return BlockScale::kTimesSixth;
    case BlockScale::kFoldedApproximate:
      return BlockScale::kFoldedOpen;
    case BlockScale::kDivideFirst:
    case BlockScale::kDivideByLevel:
    case BlockScale::kDivideByBoth:
    case BlockScale::kOverDecode:
      return HasLevelTwo(p) ? formula : BlockScale::kNoLevel;
    default:
      return formula;
  }
}

}  // namespace

Factor SameFactor(const KernelPlan& p, Factor factor) {
  switch (factor) {
    case Factor::kReciprocalApproximate:
      return Factor::kReciprocal;
    case Factor::kEncodeTimesApproximate:
      return Factor::kEncodeTimesRcp;
    case Factor::kDivideByProduct:
    case Factor::kDivideByQuotient:
      return HasLevelTwo(p) ? factor : Factor::kDivideByScale;
    case Factor::kEncodeTimesRcp:
    case Factor::kTwoSteps: {  // x * fl(1/s), where no scale is 0
      const bool same =
          !HasLevelTwo(p) && p.kernel.dialect.scale_encoding == ScaleEncoding::kClamp2m6;
      return same ? Factor::kRcpLevelOverScale : factor;
    }
    default:
      return factor;
  }
}

// A scale of 0 is never stored.
bool HasNoZeroScale(const KernelPlan& p) {
  switch (p.kernel.dialect.scale_encoding) {
    case ScaleEncoding::kClamp2m6:
    case ScaleEncoding::kClamp2m9:
    case ScaleEncoding::kZeroToOne:
    case ScaleEncoding::kZeroToEpsilon:
      return true;
    default:
      return false;
  }
}

// E8M0 rules that leave no scaled element beyond the largest; that leave none that rounds beyond.
bool LeavesNoneAbove(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  return p.scale == ScalePlan{} && d.block_scale == BlockScale::kMicroscaling &&
         d.mx_rule == ScaleRule::kCeil;
}
bool LeavesNoneToWrap(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  const bool by_rule = d.block_scale == BlockScale::kMicroscaling &&
                       (d.mx_rule == ScaleRule::kRceil || d.mx_rule == ScaleRule::kEven);
  // No subnormal scale, so none that is less than 15/16 of what it should be; and where D has lost
  // bits, 1/D is Inf.
  const bool by_clamp = d.scale_encoding == ScaleEncoding::kClamp2m6 &&
                        d.level_two == LevelTwo::kMultiplier &&
                        d.factor == Factor::kRcpLevelOverScale && p.scale == ScalePlan{};
  return LeavesNoneAbove(p) || by_clamp ||
         (p.scale == ScalePlan{} && (by_rule || d.block_scale == BlockScale::kCeilLog2 ||
                                     d.block_scale == BlockScale::kOverflowAware));
}

namespace {

// Whether t or v changes where `changed` stands for the level 2 that has S = 4, D = 1/4.
bool Uses(const KernelPlan& p, const Level& changed) {
  const Dialect& d = p.kernel.dialect;
  if (!HasLevelTwo(d)) return false;
  const Level level{4.0f, 0.25f, 1.0f};
  const auto scaled = [&](const Level& l) {
    return Scaled(d, 0.3f, FactorOf(d, 0.4f, 1.5f, std::uint8_t{0x3C}, l), l);
  };
  return ScaleBefore(d, 0.4f, level) != ScaleBefore(d, 0.4f, changed) ||
         (!Searches(p) && scaled(level) != scaled(changed));
}

}  // namespace

// Dialects that make S from D, or D from S, pass the change on.
bool UsesEncodeScale(const KernelPlan& p) {
  const LevelTwo rule = p.kernel.dialect.level_two;
  const bool from_decode = rule == LevelTwo::kMultiplier || rule == LevelTwo::kTwoDivisions;
  return Uses(p, {5.0f, from_decode ? 0.25f : 0.2f, 1.0f});
}
bool UsesDecodeScale(const KernelPlan& p) {
  const LevelTwo rule = p.kernel.dialect.level_two;
  const bool from_decode = rule == LevelTwo::kMultiplier || rule == LevelTwo::kTwoDivisions;
  return Uses(p, {from_decode ? 5.0f : 4.0f, 0.2f, 1.0f});
}

// Whether a NaN ever becomes a scale byte of the dialect.
bool StoresNanScales(const Dialect& dialect) {
  const std::vector<std::uint16_t> random(64, 0);
  for (const float special :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Matrix<float> x(1, 64, 1.0f);
    x(0, 0) = special;
    const Quantized q = QuantizeAs(dialect, x.View(), {.random = random});
    for (const std::uint8_t byte : q.scales) {
      if (IsNan(FormatOf(dialect.scale), byte)) return true;
    }
  }
  return false;
}

// Whether an intermediate may be subnormal that is more than a rounding to zero away from its use:
// S/s, S and scaled elements never are.
bool MayFlush(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  if (Searches(p)) return false;
  switch (d.factor) {
    case Factor::kEncodeOverScale:
    case Factor::kEncodeOverScaleOpen:
    case Factor::kEncodeTimesRcp:
    case Factor::kEncodeTimesApproximate:
    case Factor::kBf16:
    case Factor::kTensorScale:
    case Factor::kDivideByNormal:
    case Factor::kApproximate:  // flushes by itself
      return false;
    case Factor::kRcpLevelOverScale:
      return HasLevelTwo(d);
    case Factor::kPowerOfTwo:  // rules but RCEIL, which has 2^127 for Inf, end at 2^126
      return d.block_scale == BlockScale::kMicroscaling && d.mx_rule == ScaleRule::kRceil &&
             d.inf_scale == InfScale::kRule;
    case Factor::kDivideByScale:
      return IsMx(p) && d.block_scale != BlockScale::kOverflowAware;  // else no tiny scale
    default:
      return true;
  }
}

bool SetFormula(KernelPlan& p, BlockScale formula) {
  if (!HasE4m3Scale(p)) return false;
  const bool other = SameFormula(p, formula) != SameFormula(p, p.kernel.dialect.block_scale);
  p.scale.constant_over_amax = false;
  p.kernel.dialect.block_scale = other ? formula : p.kernel.dialect.block_scale;
  return other;
}
bool SetEncoding(KernelPlan& p, ScaleEncoding encoding) {
  return HasE4m3Scale(p) && Change(p.kernel.dialect.scale_encoding, encoding);
}
bool SetFactor(KernelPlan& p, Factor factor) {
  if (!HasE4m3Scale(p) || Searches(p)) return false;
  if (SameFactor(p, factor) == SameFactor(p, p.kernel.dialect.factor)) return false;
  return Change(p.kernel.dialect.factor, factor);
}
bool SetRounding(KernelPlan& p, ElementRounding rounding) {
  return Change(p.kernel.dialect.rounding, rounding);
}
bool SetRule(KernelPlan& p, ScaleRule rule) {
  if (!IsMx(p)) return false;
  const bool other_formula = Change(p.kernel.dialect.block_scale, BlockScale::kMicroscaling);
  return Change(p.kernel.dialect.mx_rule, rule) || other_formula;
}
bool SetNan(KernelPlan& p, NanRule rule) {
  return HasScales(p) && Change(p.kernel.dialect.nan, rule);
}
bool SetConstant(KernelPlan& p, float scale_max) {
  return HasLevelTwo(p) && HasScales(p) && Change(p.kernel.dialect.scale_max, scale_max);
}
bool SetTiles(KernelPlan& p, ScaleTiles tiles) {
  const ScaleOrder order = p.output.written.scales;
  const bool in_tiles = order == ScaleOrder::k128x4 || order == ScaleOrder::k8x4;
  // Tiles of 8x4 are row by row as they stand.
  const bool as_it_is = order == ScaleOrder::k8x4 && tiles == ScaleTiles::kRowByRow;
  return HasScales(p) && in_tiles && !as_it_is && Change(p.output.scale_tiles, tiles);
}
bool SetWritten(KernelPlan& p, CodeOrder order) {
  return IsFp4(p) && Change(p.output.written.codes, order);
}
bool SetWritten(KernelPlan& p, ScaleOrder order) {
  return HasScales(p) && Change(p.output.written.scales, order);
}
bool SetWritten(KernelPlan& p, LevelTwoConvention convention) {
  return HasLevelTwo(p) && p.kernel.layout.level_two != LevelTwoConvention::kNone &&
         Change(p.output.written.level_two, convention);
}

}  // namespace fp4lab
