// Philox4x32 in lanes: one block a 64-bit lane, each of its four words in the low half. The high
// halves hold leftovers, which no product reads. There is none on the scalar target, whose one
// 32-bit lane cannot hold a 64-bit product: Philox4x32 (base/random.h) serves there.
#if defined(FP4LAB_BASE_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BASE_PHILOX_INL_H_
#undef FP4LAB_BASE_PHILOX_INL_H_
#else
#define FP4LAB_BASE_PHILOX_INL_H_
#endif

#include <cstdint>

#include "fp4lab/base/random.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

using D64 = hn::ScalableTag<std::uint64_t>;
using V64 = hn::Vec<D64>;

struct PhiloxLanes {
  V64 w0, w1, w2, w3;
};

// The 64-bit products of the lanes' low halves.
HWY_INLINE V64 MulLow32(V64 a, V64 b) {
  const hn::Repartition<std::uint32_t, D64> d32;
  return hn::BitCast(D64(), hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b)));
}

// The upper 32 bits of each lane moved to the lower, by a shuffle, which runs on another port than
// shifts.
HWY_INLINE V64 UpperHalves(V64 x) {
#if HWY_TARGET <= HWY_AVX3
  return V64{_mm512_shuffle_epi32(x.raw, _MM_PERM_DDBB)};
#else
  return hn::ShiftRight<32>(x);
#endif
}

// One round, with its keys (RoundKeys of base/random.h) in all lanes.
HWY_INLINE PhiloxLanes PhiloxRound(const PhiloxLanes& c, V64 k0, V64 k1) {
  const D64 d;
  const V64 p0 = MulLow32(c.w0, hn::Set(d, kPhiloxMultipliers[0]));
  const V64 p1 = MulLow32(c.w2, hn::Set(d, kPhiloxMultipliers[1]));
  return {hn::Xor3(UpperHalves(p1), c.w1, k0), p1, hn::Xor3(hn::ShiftRight<32>(p0), c.w3, k1), p0};
}

// All rounds.
HWY_INLINE PhiloxLanes Philox(const PhiloxKeys& keys, PhiloxLanes c) {
  const D64 d;
  for (const PhiloxKey& key : keys) {
    c = PhiloxRound(c, hn::Set(d, std::uint64_t{key[0]}), hn::Set(d, std::uint64_t{key[1]}));
  }
  return c;
}

// Lanes with the low halves of `low` below and the low halves of `high` above.
HWY_INLINE V64 JoinHalves(V64 low, V64 high) {
#if HWY_TARGET <= HWY_AVX3
  return V64{_mm512_mask_shuffle_epi32(low.raw, 0xAAAA, high.raw, _MM_PERM_CCAA)};
#else
  return hn::Or(hn::And(low, hn::Set(D64(), 0xFFFFFFFFu)), hn::ShiftLeft<32>(high));
#endif
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BASE_PHILOX_INL_H_
