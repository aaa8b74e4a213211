// What the table of deviations asks of a KernelPlan, and the edits that its rows are made of.
#pragma once

#include "fp4lab/judge/kernel_plan.h"

namespace fp4lab {

// Assigns; false where the value stood there already.
template <class T, class U>
bool Change(T& field, U value) {
  if (field == T(value)) return false;
  field = value;
  return true;
}

bool HasLevelTwo(const KernelPlan& p);
bool IsMx(const KernelPlan& p);
bool HasScales(const KernelPlan& p);
bool HasE4m3Scale(const KernelPlan& p);
bool IsFp4(const KernelPlan& p);
bool IsStochastic(const KernelPlan& p);

// Codes are searched for with the element and the stored scale: no factor, no scaled element.
bool Searches(const KernelPlan& p);
// One formula for all that are the same here: where S = D = 1, and for an approximate one.
Factor SameFactor(const KernelPlan& p, Factor factor);

// A scale of 0 is never stored.
bool HasNoZeroScale(const KernelPlan& p);

// E8M0 rules that leave no scaled element beyond the largest; that leave none that rounds beyond.
bool LeavesNoneAbove(const KernelPlan& p);
bool LeavesNoneToWrap(const KernelPlan& p);

// Whether S, or D, matters to a byte.
bool UsesEncodeScale(const KernelPlan& p);
bool UsesDecodeScale(const KernelPlan& p);

// Whether a NaN ever becomes a scale byte of the dialect.
bool StoresNanScales(const Dialect& dialect);

// Whether an intermediate may be subnormal that is more than a rounding to zero away from its use:
// S/s, S and scaled elements never are.
bool MayFlush(const KernelPlan& p);

// Edits of one part each; false where they change nothing or do not apply.
bool SetFormula(KernelPlan& p, BlockScale formula);
bool SetEncoding(KernelPlan& p, ScaleEncoding encoding);
bool SetFactor(KernelPlan& p, Factor factor);
bool SetRounding(KernelPlan& p, ElementRounding rounding);
bool SetRule(KernelPlan& p, ScaleRule rule);
bool SetNan(KernelPlan& p, NanRule rule);
bool SetConstant(KernelPlan& p, float scale_max);
// Where the kernel's scales lie in tiles.
bool SetTiles(KernelPlan& p, ScaleTiles tiles);
bool SetWritten(KernelPlan& p, CodeOrder order);
bool SetWritten(KernelPlan& p, ScaleOrder order);
bool SetWritten(KernelPlan& p, LevelTwoConvention convention);

}  // namespace fp4lab
