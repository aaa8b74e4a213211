// Predicates on a KernelPlan, and edits of it, for the rows of the table of deviations.
#pragma once

#include "fp4lab/judge/kernels/kernel_plan.h"

namespace fp4lab {

// Assigns; returns false if the field already had the value.
template <class T, class U>
bool Change(T& field, U value) {
  if (field == T(value)) return false;
  field = value;
  return true;
}

bool HasTensorScale(const KernelPlan& p);
bool IsMx(const KernelPlan& p);
bool HasScales(const KernelPlan& p);
// Whether the scales of blocks are no powers of two by their format: bytes with a fraction, or
// numbers; and each of the two.
bool HasE4m3Scale(const KernelPlan& p);
bool HasScaleBytes(const KernelPlan& p);
bool HasScaleNumbers(const KernelPlan& p);
// Whether 8-bit elements have one power of two for more than 32 columns.
bool HasWideFp8Blocks(const KernelPlan& p);
// The type in which the kernel writes its block scales.
ScaleType ScaleTypeOf(const KernelPlan& p);
// Whether t is a BF16 number, as under BF16 input without a tensor scale (nvfp4.qwix.bf16-input).
bool HasBf16Scale(const KernelPlan& p);
bool IsFp4(const KernelPlan& p);
bool IsStochastic(const KernelPlan& p);

// Whether codes are searched for with the element and the stored scale, without a factor and a
// scaled element.
bool Searches(const KernelPlan& p);
// One representative of the factors that are equal for this plan: without a tensor scale (S = D =
// 1), and the exact factor for an approximate one.
Factor SameFactor(const KernelPlan& p, Factor factor);

// Whether the dialect never stores a scale of 0.
// Whether no code is -0: a search takes the first of the two zeros.
bool WritesNoNegativeZero(const KernelPlan& p);
// Whether every element under a scale of 0 has the code 0.
bool ZeroScaleGivesZeros(const KernelPlan& p);
// Whether a block of subnormals has the bytes of a block of zeros.
bool SubnormalsVanish(const KernelPlan& p);
// Whether the rule itself lets no amax fall below a number (DeepGEMM's).
bool HasFlooredScale(const KernelPlan& p);
bool HasNoZeroScale(const KernelPlan& p);

// Whether the scales leave no scaled element beyond the largest; whether they leave none that
// rounds beyond it.
bool LeavesNoneAbove(const KernelPlan& p);
bool LeavesNoneToWrap(const KernelPlan& p);

// Whether a byte depends on S, or on D.
bool UsesEncodeScale(const KernelPlan& p);
bool UsesDecodeScale(const KernelPlan& p);

// Whether block scales, or scaled elements under a given scale, depend on the tensor's amax.
bool ScaleFollowsAmax(const KernelPlan& p);
bool FactorFollowsAmax(const KernelPlan& p);

// Whether S is clamped to FLT_MAX under a tiny amax.
bool ClampsEncodeScale(const KernelPlan& p);

// Whether the dialect ever stores a NaN scale byte.
bool StoresNanScales(const Dialect& dialect);

// Whether the formulas have an intermediate number whose flushing may change a byte. S/s, S and
// scaled elements never do.
bool MayFlush(const KernelPlan& p);

// Edits of one part of the plan; each returns false if it changes nothing or does not apply.
bool SetFormula(KernelPlan& p, BlockScale formula);
// For dialects that round scales to nearest: the deviations say nothing of directed rounding.
bool SetEncoding(KernelPlan& p, ScaleEncoding encoding);
// Another rounding of E4M3 scales than the dialect's own.
bool RoundsScales(KernelPlan& p, OtherEncoding encoding);
bool SetFactor(KernelPlan& p, Factor factor);
bool SetRounding(KernelPlan& p, ElementRounding rounding);
bool SetRule(KernelPlan& p, BlockScale rule);
bool SetNan(KernelPlan& p, NanRule rule);
bool SetConstant(KernelPlan& p, float scale_max);
// Applies if the kernel's scales are stored in tiles.
bool SetTiles(KernelPlan& p, ScaleTiles tiles);
bool SetWritten(KernelPlan& p, CodeOrder order);
bool SetWritten(KernelPlan& p, ScaleOrder order);
bool SetWritten(KernelPlan& p, TensorScaleConvention convention);
// Sets an order of bytes by its name (exchange/order/byte_order.h).
bool SetScaleBytes(KernelPlan& p, std::string_view order);
bool SetCodeBytes(KernelPlan& p, std::string_view order);

}  // namespace fp4lab
