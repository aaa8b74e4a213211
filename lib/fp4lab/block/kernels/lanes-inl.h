// The arithmetic of block quantization in lanes: roundings to an element format, codes, and block
// scales. Each function repeats one of formats/format.h or dialect/exponent_bytes.h, which define
// it.
#if defined(FP4LAB_BLOCK_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_LANES_INL_H_
#undef FP4LAB_BLOCK_LANES_INL_H_
#else
#define FP4LAB_BLOCK_LANES_INL_H_
#endif

#include <bit>
#include <cstdint>

#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;

inline constexpr std::int32_t kInfBits = 0x7F800000;

HWY_INLINE VI Bits(VF x) { return hn::BitCast(DI(), x); }
HWY_INLINE VF Float(VI x) { return hn::BitCast(DF(), x); }
HWY_INLINE VI AbsBits(VF x) { return hn::And(Bits(x), hn::Set(DI(), 0x7FFFFFFF)); }

// Rounds a magnitude a <= e.max to the nearest value of the format, ties to even codes. Adding
// 2^(exponent + 23 - m) leaves exactly the format's bits, rounded by the addition; below the
// smallest normal value the exponent stays that of the smallest normal.
HWY_INLINE VF RoundNearest(const ElementConstants& e, VF a) {
  const VI exponent =
      hn::And(Bits(hn::Max(a, hn::Set(DF(), e.min_normal))), hn::Set(DI(), kInfBits));
  const VF magic = Float(hn::Add(exponent, hn::Set(DI(), (23 - e.mantissa_bits) << 23)));
  return hn::Sub(hn::Add(a, magic), magic);
}

// Adds `added` to the bits of a magnitude a <= e.max and cuts off the bits below the format's.
// Below the smallest normal value, min_normal is added to a first, cut (not rounded) to 24 bits,
// and subtracted at the end; one formula then serves all magnitudes, because the result depends
// only on bits above the cut.
HWY_INLINE VF CutAfterAdding(const ElementConstants& e, VF a, VI added) {
  const DF d;
  const DI di;
  const int dropped = 23 - e.mantissa_bits;
  const VF min_normal = hn::Set(d, e.min_normal);
  const VF offset = hn::IfThenElseZero(hn::Lt(a, min_normal), min_normal);
  const VF sum = hn::Add(a, offset);
  const auto rounded_up = hn::Gt(hn::Sub(sum, offset), a);  // the difference is exact
  const VI cut = hn::Add(Bits(sum), hn::VecFromMask(di, hn::RebindMask(di, rounded_up)));
  const VI up = hn::And(hn::Add(cut, added), hn::Set(di, -(1 << dropped)));
  return hn::Sub(Float(up), offset);
}

// Encode's kTowardZero, and its kStochastic with 16 random bits, which are added at the top of the
// discarded bits.
HWY_INLINE VF RoundTowardZero(const ElementConstants& e, VF a) {
  return CutAfterAdding(e, a, hn::Zero(DI()));
}
HWY_INLINE VF RoundStochastic(const ElementConstants& e, VF a, VU random16) {
  const int shift = 23 - e.mantissa_bits - 16;
  return CutAfterAdding(e, a, hn::ShiftLeftSame(hn::BitCast(DI(), random16), shift));
}

// EncodeStochastic32. Below the smallest normal value a magnitude is k steps and a fraction of a
// step, of which 32 bits are used; above it all discarded bits are used.
HWY_INLINE VF RoundStochastic32(const ElementConstants& e, VF a, VU random) {
  const DF d;
  const DI di;
  const DU du;
  const int dropped = 23 - e.mantissa_bits;
  const VI placed = hn::BitCast(di, hn::ShiftRightSame(random, 32 - dropped));
  const VF normal = Float(hn::And(hn::Add(Bits(a), placed), hn::Set(di, -(1 << dropped))));
  const VF min_normal = hn::Set(d, e.min_normal);
  const auto subnormal = hn::Lt(a, min_normal);
  if (hn::AllFalse(d, subnormal)) return normal;
  const float steps = static_cast<float>(1 << e.mantissa_bits) / e.min_normal;  // 1 / (a step)
  const VF scaled = hn::Mul(hn::IfThenElseZero(subnormal, a), hn::Set(d, steps));
  const VF whole = hn::ConvertTo(d, hn::ConvertTo(di, scaled));
  const VF upper = hn::Mul(hn::Sub(scaled, whole), hn::Set(d, 65536.0f));
  const VI high = hn::ConvertTo(di, upper);
  const VF rest = hn::Sub(upper, hn::ConvertTo(d, high));
  const VI low = hn::ConvertTo(di, hn::Mul(rest, hn::Set(d, 65536.0f)));
  const VU fraction = hn::BitCast(du, hn::Or(hn::ShiftLeft<16>(high), low));
  const auto carry = hn::Gt(fraction, hn::Xor(random, hn::Set(du, 0xFFFFFFFFu)));
  const VF up = hn::IfThenElseZero(hn::RebindMask(d, carry), hn::Set(d, 1.0f));
  const VF least = hn::Mul(hn::Add(whole, up), hn::Set(d, 1.0f / steps));
  return hn::IfThenElse(subnormal, least, normal);
}

// The code of a magnitude that is a value of the format.
HWY_INLINE VI MagnitudeCode(const ElementConstants& e, VF a) {
  const DF d;
  const DI di;
  const int dropped = 23 - e.mantissa_bits;
  const VF min_normal = hn::Set(d, e.min_normal);
  const auto subnormal = hn::Lt(a, min_normal);
  const VF shifted = hn::Add(a, hn::IfThenElseZero(subnormal, min_normal));
  const VI significand = hn::ShiftRightSame(Bits(shifted), dropped);
  const int base = std::bit_cast<std::int32_t>(e.min_normal) >> dropped;
  const VI first = hn::IfThenElse(hn::RebindMask(di, subnormal), hn::Set(di, -base),
                                  hn::Set(di, (1 << e.mantissa_bits) - base));
  return hn::Add(significand, first);
}

// 2^(byte - 127) and its reciprocal, for E8M0 bytes.
HWY_INLINE VF E8m0Value(VI byte) {
  const DI di;
  const VI bits = hn::ShiftLeft<23>(byte);
  const VI low = hn::IfThenElse(hn::Eq(byte, hn::Zero(di)), hn::Set(di, 0x00400000), bits);
  return Float(hn::IfThenElse(hn::Eq(byte, hn::Set(di, 255)), hn::Set(di, 0x7FC00000), low));
}

HWY_INLINE VF E8m0Multiplier(VI byte) {
  const DI di;
  const VI nan = hn::Set(di, 255);
  const VI opposite = hn::Sub(hn::Set(di, 254), hn::IfThenZeroElse(hn::Eq(byte, nan), byte));
  return hn::IfThenElse(hn::RebindMask(DF(), hn::Eq(byte, nan)), E8m0Value(nan),
                        E8m0Value(opposite));
}

// The E8M0 byte of kFloor, kCeil and kEven.
HWY_INLINE VI ExponentByte(const ScaleConstants& k, VF amax) {
  const DI di;
  const VI bits = Bits(amax);
  const VI up = hn::Add(bits, hn::Set(di, static_cast<std::int32_t>(k.rounding)));
  const VI e = hn::Sub(hn::ShiftRight<23>(up), hn::Set(di, k.max_exponent));
  return hn::IfThenElse(hn::Eq(bits, hn::Set(di, kInfBits)), hn::Set(di, 255),
                        hn::Max(e, hn::Zero(di)));
}

// kRceil: the exponent of the product, rounded up, at most 254.
HWY_INLINE VI RceilByte(const ScaleConstants& k, VF amax) {
  const DI di;
  const VI bits = Bits(hn::Mul(amax, hn::Set(DF(), k.reciprocal)));
  const auto subnormal = hn::Lt(bits, hn::Set(di, 0x00800000));
  const VI add = hn::IfThenElse(subnormal, hn::Set(di, 0x3FFFFF), hn::Set(di, 0x7FFFFF));
  return hn::Min(hn::ShiftRight<23>(hn::Add(bits, add)), hn::Set(di, 254));
}

// The scales of blocks whose amaxes are the lanes of `amax` (never NaN).
struct BlockScales {
  VF multiplier, value;
  VI byte;
};

HWY_INLINE BlockScales Nvfp4Scales(const ScaleConstants& k, VF amax) {
  constexpr ElementConstants kE4m3 = {.max = 448.0f,
                                      .min_normal = 0x1p-6f,
                                      .mantissa_bits = 3,
                                      .nan = 0.0f,
                                      .nan_code = 0x7F,
                                      .sign_code = 0x80};
  const DF d;
  const VF product = hn::Mul(amax, hn::Set(d, k.per_amax));
  const VF s = RoundNearest(kE4m3, hn::Min(product, hn::Set(d, kE4m3.max)));
  const VF reciprocal = hn::Div(hn::Set(d, 1.0f), hn::Mul(s, hn::Set(d, k.tensor.decode)));
  return {hn::Min(reciprocal, hn::Set(d, kFloatMax)), s, MagnitudeCode(kE4m3, s)};
}

HWY_INLINE BlockScales ScalesOf(const ScaleConstants& k, VF amax) {
  if (k.rule == BlockScale::kFolded) return Nvfp4Scales(k, amax);
  if (k.rule == BlockScale::kOneBlock) {
    return {hn::Set(DF(), k.tensor.encode), hn::Set(DF(), 1.0f), hn::Zero(DI())};
  }
  const VI byte = k.rule == BlockScale::kRceil ? RceilByte(k, amax) : ExponentByte(k, amax);
  return {E8m0Multiplier(byte), E8m0Value(byte), byte};
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BLOCK_LANES_INL_H_
