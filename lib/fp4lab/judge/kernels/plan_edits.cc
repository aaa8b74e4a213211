#include "fp4lab/judge/kernels/plan_edits.h"

#include <limits>
#include <vector>

#include "fp4lab/dialect/stages.h"
#include "fp4lab/exchange/order/byte_order.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

bool HasTensorScale(const KernelPlan& p) { return HasTensorScale(p.kernel.dialect); }
bool IsMx(const KernelPlan& p) {
  return p.kernel.dialect.scale_encoding == ScaleEncoding::kExponent;
}
bool HasScales(const KernelPlan& p) {
  return p.kernel.dialect.block_scale != BlockScale::kOneBlock;
}
bool HasE4m3Scale(const KernelPlan& p) { return HasScales(p) && !IsMx(p); }
bool HasScaleNumbers(const KernelPlan& p) {
  return HasScales(p) && p.kernel.dialect.scale_encoding == ScaleEncoding::kBinary32;
}
bool HasScaleBytes(const KernelPlan& p) { return HasE4m3Scale(p) && !HasScaleNumbers(p); }
bool HasWideFp8Blocks(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  return IsMx(p) && FormatOf(d.element).bits == 8 && d.block_cols > 32;
}
ScaleType ScaleTypeOf(const KernelPlan& p) {
  return ScaleTypeOf(p.kernel.dialect, p.output.written);
}
bool HasBf16Scale(const KernelPlan& p) {
  return !HasTensorScale(p) && p.kernel.dialect.block_scale == BlockScale::kDivideFirstBf16;
}
bool IsFp4(const KernelPlan& p) { return p.kernel.dialect.element == FormatId::kE2M1; }
bool IsStochastic(const KernelPlan& p) { return IsStochastic(p.kernel.dialect); }

// ---- Formulas that are equal for every input

bool Searches(const KernelPlan& p) {
  return p.kernel.dialect.rounding == ElementRounding::kClosest;
}

namespace {

// One representative of the formulas that are equal where S = D = 1, and the exact formula that
// stands for an approximate one.
BlockScale SameFormula(const KernelPlan& p, BlockScale formula) {
  switch (formula) {
    case BlockScale::kApproximate:
      return BlockScale::kTimesSixth;
    case BlockScale::kFoldedApproximate:
      return HasTensorScale(p) ? BlockScale::kFoldedOpen : BlockScale::kTimesSixth;
    case BlockScale::kFoldedOrZero:  // another formula only where S may be Inf
      return p.kernel.dialect.tensor_scale == TensorScaleRule::kTimesReciprocal
                 ? formula
                 : BlockScale::kFoldedOpen;
    case BlockScale::kDivideFirstOrZero:
      return p.kernel.dialect.tensor_scale == TensorScaleRule::kTimesReciprocal
                 ? formula
                 : BlockScale::kDivideFirst;
    case BlockScale::kDivideFirst:
    case BlockScale::kDivideByTensorScale:
    case BlockScale::kDivideByBoth:
    case BlockScale::kOverDecode:
      return HasTensorScale(p) ? formula : BlockScale::kNoTensorScale;
    default:
      return formula;
  }
}

}  // namespace

Factor SameFactor(const KernelPlan& p, Factor factor) {
  switch (factor) {
    case Factor::kReciprocalApproximate:
    case Factor::kReciprocalSubnormalApproximate:
      return Factor::kReciprocal;
    case Factor::kPowerOfTwoApproximate:
      return Factor::kPowerOfTwo;
    case Factor::kEncodeTimesApproximate:
      return Factor::kEncodeTimesRcp;
    case Factor::kEncodeOverScaleOpen:  // 1/s is at most 2^17
      return HasTensorScale(p) ? factor : Factor::kEncodeOverScale;
    case Factor::kDivideByProduct:
    case Factor::kDivideByQuotient:
      return HasTensorScale(p) ? factor : Factor::kDivideByScale;
    case Factor::kReciprocalPlain:
      return HasFlooredScale(p) ? Factor::kRcpTensorScaleOverScale : factor;
    case Factor::kEncodeTimesRcp:
      if (HasFlooredScale(p)) return Factor::kRcpTensorScaleOverScale;
      [[fallthrough]];
    case Factor::kTwoSteps: {  // x * fl(1/s), where no scale is 0
      const bool same =
          !HasTensorScale(p) && p.kernel.dialect.scale_encoding == ScaleEncoding::kClamp2m6;
      return same ? Factor::kRcpTensorScaleOverScale : factor;
    }
    default:
      return factor;
  }
}

bool WritesNoNegativeZero(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  return Searches(p) || d.rounding == ElementRounding::kClosestScaled || d.never_negative_zero;
}

bool ZeroScaleGivesZeros(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  const bool divides =
      d.rounding == ElementRounding::kClosestScaled && d.factor == Factor::kDivideByScale;
  return divides || (d.factor == Factor::kReciprocalGuarded && d.never_negative_zero);
}

bool SubnormalsVanish(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  if (!HasE4m3Scale(p) || HasTensorScale(p)) return false;
  const auto numbers = [&](float b) { return NumbersFrom(d, b, ScaleBefore(d, b, {}), {}); };
  const float subnormal = 0x1.fffffcp-127f;
  const BlockNumbers small = numbers(subnormal), zero = numbers(0.0f);
  return small.byte == zero.byte &&
         QuantizedElement(d, small, {}, subnormal, 0) == QuantizedElement(d, zero, {}, 0.0f, 0);
}

bool HasFlooredScale(const KernelPlan& p) {
  const BlockScale rule = p.kernel.dialect.block_scale;
  return rule == BlockScale::kNoTensorScaleFloored || rule == BlockScale::kCeilQuotientFloored;
}

bool HasNoZeroScale(const KernelPlan& p) {
  if (HasFlooredScale(p)) return true;
  if (p.kernel.dialect.block_scale == BlockScale::kInverseOfEncode) return true;  // zeros have 1
  switch (p.kernel.dialect.scale_encoding) {
    case ScaleEncoding::kClamp2m6:
    case ScaleEncoding::kClamp2m9:
    case ScaleEncoding::kOneClamp2m9:
    case ScaleEncoding::kZeroToOne:
    case ScaleEncoding::kZeroToEpsilon:
      return true;
    default:
      return false;
  }
}

bool LeavesNoneAbove(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  if (d.rounding == ElementRounding::kNearestEvenOpen) return true;  // it does not saturate
  return p.scale == ScalePlan{} &&
         (d.block_scale == BlockScale::kCeil || d.block_scale == BlockScale::kQuarkCeil);
}
bool LeavesNoneToWrap(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  const bool by_rule = d.block_scale == BlockScale::kRceil || d.block_scale == BlockScale::kEven ||
                       d.block_scale == BlockScale::kEvenQuarter ||
                       d.block_scale == BlockScale::kQuarkEven ||
                       d.block_scale == BlockScale::kCeilLog2Least ||
                       d.block_scale == BlockScale::kCeilQuotientFloored;
  // The clamp excludes subnormal scales, so no scale is less than 15/16 of its exact value; and
  // where D has lost bits, 1/D is Inf.
  const bool by_clamp = d.scale_encoding == ScaleEncoding::kClamp2m6 &&
                        d.tensor_scale == TensorScaleRule::kMultiplier &&
                        d.factor == Factor::kRcpTensorScaleOverScale && p.scale == ScalePlan{};
  return LeavesNoneAbove(p) || by_clamp ||
         (p.scale == ScalePlan{} && (by_rule || d.block_scale == BlockScale::kCeilLog2 ||
                                     d.block_scale == BlockScale::kCeilLog2Clamped ||
                                     d.block_scale == BlockScale::kCeilLog2Wrapped ||
                                     d.block_scale == BlockScale::kOverflowAware));
}

namespace {

// Whether t or v changes if `changed` replaces the tensor scale with S = 4, D = 1/4.
bool Uses(const KernelPlan& p, const TensorScale& changed) {
  const Dialect& d = p.kernel.dialect;
  if (!HasTensorScale(d)) return false;
  const TensorScale tensor{4.0f, 0.25f, 1.0f};
  const auto scaled = [&](const TensorScale& l) {
    return Scaled(d, 0.3f, FactorOf(d, 0.4f, 1.5f, std::uint8_t{0x3C}, l), l);
  };
  return ScaleBefore(d, 0.4f, tensor) != ScaleBefore(d, 0.4f, changed) ||
         (!Searches(p) && scaled(tensor) != scaled(changed));
}

}  // namespace

// `changed` also has the derived number of dialects that compute S from D, or D from S.
bool UsesEncodeScale(const KernelPlan& p) {
  const bool from_decode = IsDecodeFirst(p.kernel.dialect.tensor_scale);
  return Uses(p, {5.0f, from_decode ? 0.25f : 0.2f, 1.0f});
}
bool UsesDecodeScale(const KernelPlan& p) {
  const bool from_decode = IsDecodeFirst(p.kernel.dialect.tensor_scale);
  return Uses(p, {from_decode ? 5.0f : 4.0f, 0.2f, 1.0f});
}

bool ScaleFollowsAmax(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  return HasTensorScale(d) && HasScales(p) &&
         ScaleBefore(d, 0.4f, TensorScaleOf(d, 2.0f)) !=
             ScaleBefore(d, 0.4f, TensorScaleOf(d, 2.7f));
}
bool FactorFollowsAmax(const KernelPlan& p) {
  const Dialect& d = p.kernel.dialect;
  if (!HasTensorScale(d) || !HasScales(p) || Searches(p)) return false;
  const auto scaled = [&](float amax) {
    const TensorScale l = TensorScaleOf(d, amax);
    return Scaled(d, 0.3f, FactorOf(d, 0.4f, 1.5f, std::uint8_t{0x3C}, l), l);
  };
  return scaled(2.0f) != scaled(2.7f);
}

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
    for (const float scale : q.scale_values) {
      if (scale != scale) return true;
    }
  }
  return false;
}

bool ClampsEncodeScale(const KernelPlan& p) {
  constexpr float kLeast = 0x1p-149f;
  return HasTensorScale(p) && TensorScaleOf(p.kernel.dialect, kLeast).encode == kFloatMax;
}

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
    case Factor::kRcpTensorScaleOverScale:
    case Factor::kDivideByProductOrEpsilon:  // without a tensor scale, at least 2^-23
      return HasTensorScale(d);
    case Factor::kReciprocalPlain:  // S is at most 2.7e11 and s*D at most 2^126
      return d.tensor_scale != TensorScaleRule::kOverFloored && !HasFlooredScale(p);
    case Factor::kPowerOfTwo:  // only RCEIL has a scale of 2^127, for Inf; other rules end at 2^126
      return d.block_scale == BlockScale::kRceil && d.inf_scale == InfScale::kRule;
    case Factor::kDivideByScaleOrAmax:
      return d.block_scale != BlockScale::kCeilLog2;  // qwix has no tiny scale
    case Factor::kDivideByScale:
      return IsMx(p) && d.block_scale != BlockScale::kOverflowAware;  // others have no tiny scale
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
bool RoundsScales(KernelPlan& p, OtherEncoding encoding) {
  const ScaleEncoding own = p.kernel.dialect.scale_encoding;
  const bool is_own = encoding == OtherEncoding::kUp           ? own == ScaleEncoding::kUp
                      : encoding == OtherEncoding::kTowardZero ? own == ScaleEncoding::kDown
                                                               : false;
  return HasScaleBytes(p) && !is_own && Change(p.scale.encoding, encoding);
}
bool SetEncoding(KernelPlan& p, ScaleEncoding encoding) {
  const ScaleEncoding own = p.kernel.dialect.scale_encoding;
  const bool directed = own == ScaleEncoding::kUp || own == ScaleEncoding::kDown;
  return HasScaleBytes(p) && !directed && Change(p.kernel.dialect.scale_encoding, encoding);
}
bool SetFactor(KernelPlan& p, Factor factor) {
  if (!HasE4m3Scale(p) || Searches(p)) return false;
  if (SameFactor(p, factor) == SameFactor(p, p.kernel.dialect.factor)) return false;
  return Change(p.kernel.dialect.factor, factor);
}
bool SetRounding(KernelPlan& p, ElementRounding rounding) {
  return Change(p.kernel.dialect.rounding, rounding);
}
bool SetRule(KernelPlan& p, BlockScale rule) {
  return IsMx(p) && Change(p.kernel.dialect.block_scale, rule);
}
bool SetNan(KernelPlan& p, NanRule rule) {
  return HasScales(p) && Change(p.kernel.dialect.nan, rule);
}
bool SetConstant(KernelPlan& p, float scale_max) {
  return HasTensorScale(p) && HasScales(p) && Change(p.kernel.dialect.scale_max, scale_max);
}
bool SetTiles(KernelPlan& p, ScaleTiles tiles) {
  const ScaleOrder order = p.output.written.scales;
  const bool in_tiles = order == ScaleOrder::k128x4 || order == ScaleOrder::k8x4;
  // Tiles of 8x4 are stored row by row in any case.
  const bool as_it_is = order == ScaleOrder::k8x4 &&
                        (tiles == ScaleTiles::kRowByRow || tiles == ScaleTiles::kInnerTransposed);
  return HasScales(p) && in_tiles && !as_it_is && Change(p.output.scale_tiles, tiles);
}
bool SetWritten(KernelPlan& p, CodeOrder order) {
  return IsFp4(p) && Change(p.output.written.codes, order);
}
bool SetWritten(KernelPlan& p, ScaleOrder order) {
  return HasScales(p) && Change(p.output.written.scales, order);
}
bool SetScaleBytes(KernelPlan& p, std::string_view order) {
  return HasScales(p) && Change(p.output.scale_bytes, FindByteOrder(ScaleByteOrders(), order));
}
bool SetCodeBytes(KernelPlan& p, std::string_view order) {
  return Change(p.output.code_bytes, FindByteOrder(CodeByteOrders(), order));
}
bool SetWritten(KernelPlan& p, TensorScaleConvention convention) {
  return HasTensorScale(p) && p.kernel.layout.tensor_scale != TensorScaleConvention::kNone &&
         Change(p.output.written.tensor_scale, convention);
}

}  // namespace fp4lab
