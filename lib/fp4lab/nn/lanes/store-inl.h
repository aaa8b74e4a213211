// Stores for a kernel's results: unchanged, or rounded to BF16 with their amax kept.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_NN_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_NN_STORE_INL_H_
#undef FP4LAB_NN_STORE_INL_H_
#else
#define FP4LAB_NN_STORE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstdint>

#include "fp4lab/formats/format.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

struct StoreAsIs {
  template <class D>
  HWY_INLINE void operator()(D d, hwy::HWY_NAMESPACE::Vec<D> x, float* to) {
    hwy::HWY_NAMESPACE::StoreU(x, d, to);
  }
  float Amax() const { return 0.0f; }
};

// Stores values rounded as RoundBf16 (nn/round_bf16.h) rounds them.
class StoreBf16 {
 public:
  HWY_INLINE StoreBf16() : largest_(hwy::HWY_NAMESPACE::Zero(Lanes())) {}

  template <class D>
  HWY_INLINE void operator()(D d, hwy::HWY_NAMESPACE::Vec<D> x, float* to) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(di, x);
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
    const auto nan = hn::Gt(magnitude, hn::Set(di, 0x7F800000));
    const auto odd = hn::And(hn::BitCast(di, hn::ShiftRight<16>(bits)), hn::Set(di, 1));
    const auto up = hn::Add(hn::Add(bits, hn::Set(di, 0x7FFF)), odd);
    const auto cut = hn::And(up, hn::Set(di, -0x10000));
    const auto rounded = hn::IfThenElse(nan, hn::Set(di, 0x7FC00000), cut);
    hn::StoreU(hn::BitCast(d, rounded), d, to);
    Keep(di, hn::IfThenZeroElse(nan, magnitude));
  }

  // The largest magnitude after rounding, NaN left out.
  HWY_INLINE float Amax() const {
    namespace hn = hwy::HWY_NAMESPACE;
    const std::int32_t lanes = hn::GetLane(hn::MaxOfLanes(Lanes(), largest_));
    return RoundToBf16(std::bit_cast<float>(std::max(lanes, single_)));  // rounding is monotonic
  }

 private:
  using Lanes = hwy::HWY_NAMESPACE::ScalableTag<std::int32_t>;

  template <class D>
  HWY_INLINE void Keep(D d, hwy::HWY_NAMESPACE::Vec<D> magnitude) {
    namespace hn = hwy::HWY_NAMESPACE;
    if constexpr (hn::MaxLanes(D()) == hn::MaxLanes(Lanes())) {
      largest_ = hn::Max(largest_, magnitude);
    } else {
      single_ = std::max(single_, hn::GetLane(magnitude));
    }
    static_cast<void>(d);
  }

  hwy::HWY_NAMESPACE::Vec<Lanes> largest_;  // as bits
  std::int32_t single_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_NN_STORE_INL_H_
