// Alpha: the factor of a GEMM that its operands' tensor scales make. constexpr and free of macros:
// host and device share it.
#pragma once

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/level_two.h"

namespace fp4lab {

// Whether level 2 is Transformer Engine's kind, S = C / amax.
constexpr bool HasEncodeScale(const Dialect& d) {
  switch (d.level_two) {
    case LevelTwo::kEncodeScale:
    case LevelTwo::kEncodeFused:
    case LevelTwo::kEncodeApproximate:
    case LevelTwo::kEncodePartial:
    case LevelTwo::kEncodeJax:
    case LevelTwo::kEncodePlain:
      return true;
    case LevelTwo::kNone:
    case LevelTwo::kMultiplier:
    case LevelTwo::kTwoDivisions:
    case LevelTwo::kDivisor:
    case LevelTwo::kDivisorOrOne:
    case LevelTwo::kTensorFp8:
      break;
  }
  return false;
}

// The factor of one operand's tensor scale in a GEMM whose other operand has no encode scale:
// fl(amax / C) where level 2 is an encode scale, D elsewhere, 1 without a level 2; over the
// prescale.
constexpr float OperandDecode(const Dialect& dialect, float amax) {
  const float decode =
      HasEncodeScale(dialect) ? amax / LevelTwoConstant(dialect) : LevelOf(dialect, amax).decode;
  return dialect.prescale == 1.0f ? decode : decode / dialect.prescale;
}

// The alpha of a GEMM. Two encode scales: fl(fl(amax_a * amax_b) / (C_a * C_b)), as in Transformer
// Engine's reference_nvfp4.py. Any other pair: the product of the two decode scales.
constexpr float GemmAlpha(const Dialect& a, float amax_a, const Dialect& b, float amax_b) {
  if (HasEncodeScale(a) && HasEncodeScale(b)) {
    const float alpha = amax_a * amax_b / (LevelTwoConstant(a) * LevelTwoConstant(b));
    const float prescale = a.prescale * b.prescale;
    return prescale == 1.0f ? alpha : alpha / prescale;
  }
  return OperandDecode(a, amax_a) * OperandDecode(b, amax_b);
}

}  // namespace fp4lab
