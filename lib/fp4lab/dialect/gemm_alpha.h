// Alpha: the factor of a GEMM's result that stands for the tensor scales of both operands. The
// functions are constexpr and free of macros, because host and device share them.
#pragma once

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/tensor_scale_stage.h"

namespace fp4lab {

// Whether the tensor scale is Transformer Engine's kind, S = C / amax.
constexpr bool HasEncodeScale(const Dialect& d) {
  return WithFormula<bool>(d.tensor_scale, AlphaHasAmaxOf{});
}

// The decode factor of one operand's tensor scale, for a GEMM whose other operand has no encode
// scale: fl(amax / C) where the tensor scale is an encode scale, D elsewhere, 1 without a tensor
// scale; divided by the prescale.
constexpr float OperandDecode(const Dialect& dialect, float amax) {
  const float decode = HasEncodeScale(dialect) ? amax / TensorScaleConstant(dialect)
                                               : TensorScaleOf(dialect, amax).decode;
  return dialect.prescale == 1.0f ? decode : decode / dialect.prescale;
}

// The alpha of a GEMM. Two encode scales: fl(fl(amax_a * amax_b) / (C_a * C_b)), as in Transformer
// Engine's reference_nvfp4.py. Any other pair: the product of the two decode scales.
constexpr float GemmAlpha(const Dialect& a, float amax_a, const Dialect& b, float amax_b) {
  if (HasEncodeScale(a) && HasEncodeScale(b)) {
    const float alpha = amax_a * amax_b / (TensorScaleConstant(a) * TensorScaleConstant(b));
    const float prescale = a.prescale * b.prescale;
    return prescale == 1.0f ? alpha : alpha / prescale;
  }
  return OperandDecode(a, amax_a) * OperandDecode(b, amax_b);
}

}  // namespace fp4lab
