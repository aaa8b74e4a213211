// Codes of E2M1 in lanes, by additions: to nearest even, and by Transformer Engine's stochastic
// rounding (formats/te_stochastic.h). The lanes of any format are in lanes-inl.h.
#if defined(FP4LAB_BLOCK_E2M1_LANES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_E2M1_LANES_INL_H_
#undef FP4LAB_BLOCK_E2M1_LANES_INL_H_
#else
#define FP4LAB_BLOCK_E2M1_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include "fp4lab/block/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// The code of a magnitude a, truncated to E2M1's grid: 0 to 7.
HWY_INLINE VI E2m1Truncated(VF a) {
  const DF d;
  const DI di;
  const VI bits = hn::ShiftRight<22>(Bits(a));
  const VI normal = hn::Sub(bits, hn::Set(di, 252));
  const auto half = hn::RebindMask(di, hn::Ge(a, hn::Set(d, 0.5f)));
  const VI small = hn::IfThenElseZero(half, hn::Set(di, 1));
  const auto one = hn::RebindMask(di, hn::Ge(a, hn::Set(d, 1.0f)));
  return hn::Min(hn::IfThenElse(one, normal, small), hn::Set(di, 7));
}

// The grid's step at a magnitude.
HWY_INLINE VF E2m1StepAt(VF a) {
  const DF d;
  return hn::IfThenElse(
      hn::Lt(a, hn::Set(d, 2.0f)), hn::Set(d, 0.5f),
      hn::IfThenElse(hn::Lt(a, hn::Set(d, 4.0f)), hn::Set(d, 1.0f), hn::Set(d, 2.0f)));
}

// The code of v with the magnitude of `code`; 7 for NaN.
HWY_INLINE VI E2m1Signed(VF v, VI code) {
  const VI sign =
      hn::And(hn::BitCast(DI(), hn::ShiftRight<28>(hn::BitCast(DU(), v))), hn::Set(DI(), 8));
  return hn::IfThenElse(hn::RebindMask(DI(), hn::IsNaN(v)), hn::Set(DI(), 7), hn::Or(code, sign));
}

// The E2M1 code of v with magnitude a, to nearest even.
HWY_INLINE VI E2m1Nearest(VF v, VF a) {
  // Beyond 6 the result is cut to 7; up to there the addition rounds to a multiple of the step.
  const VF magic = hn::Mul(E2m1StepAt(a), hn::Set(DF(), 0x1.8p23f));
  return E2m1Signed(v, E2m1Truncated(hn::Sub(hn::Add(a, magic), magic)));
}

// EncodeTransformerEngineStochastic with 8 random bits.
HWY_INLINE VI E2m1TeStochastic(VF v, VF a, VI random) {
  const DF d;
  const VF up = hn::Mul(hn::ConvertTo(d, random), hn::Set(d, 0x1p-8f));
  return E2m1Signed(v, E2m1Truncated(hn::Add(hn::Mul(up, E2m1StepAt(a)), a)));
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BLOCK_E2M1_LANES_INL_H_
