#include "fp4lab/block/tuned.h"

#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

bool HasTunedRounding(const Dialect& d) {
  switch (d.rounding) {
    case ElementRounding::kNearestEven:
    case ElementRounding::kTowardZero:
    case ElementRounding::kStochastic16:
    case ElementRounding::kStochastic32:
      return true;
    case ElementRounding::kNearestEvenOpen:
    case ElementRounding::kTiesAway:
    case ElementRounding::kTiesToZero:
    case ElementRounding::kHalfAdded:
    case ElementRounding::kHalfAddedEven:
    case ElementRounding::kBf16First:
    case ElementRounding::kClosest:
    case ElementRounding::kClosestScaled:
    case ElementRounding::kComfyCentre:
    case ElementRounding::kStochastic8:
    case ElementRounding::kStochastic4:
      break;
  }
  return false;
}

bool HasTunedBlocks(const Dialect& d) {
  if (d.block_scale == BlockScale::kOneBlock) return true;
  const bool rule = d.block_scale == BlockScale::kFolded ? d.element == FormatId::kE2M1
                                                         : IsMicroscaling(d.block_scale);
  return rule && d.block_cols > 0 && d.block_cols % 8 == 0 && d.block_cols <= 128 &&
         d.block_rows > 0 && d.block_rows <= 128;
}

}  // namespace

std::string_view WhyNotTuned(const Dialect& d) {
  const IeeeArithmetic ieee;
  const Format element = FormatOf(d.element);
  if (element.bits > 8 || !element.is_signed) return "elements wider than 8 bits, or without sign";
  if (!HasTunedRounding(d)) return "a rounding of elements that no tuned kernel has";
  if (!HasTunedBlocks(d)) return "blocks or a scale rule that no tuned kernel has";
  const Dialect tuned = DialectUnder(d.block_scale, d.element, d.block_rows, d.block_cols);
  if (SameFormulas(WithRounding(tuned, d.rounding), d)) return {};
  return "formulas other than those that the tuned kernels are written for";
}

}  // namespace fp4lab
