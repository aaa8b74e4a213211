// RandomHadamard with groups along the memory rows.
#include <algorithm>
#include <cstddef>

#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/transform/hadamard_rows.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/transform/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

// How many groups from the first on were transformed.
std::size_t Groups16(const float* /*x*/, std::size_t /*groups*/, const HadamardSigns& /*signs*/,
                     float* /*out*/) {
  return 0;
}

#else

// A vector has 4 lanes a group: vectors a, b, c, e hold elements 4 i, 4 i + 1, 4 i + 2, 4 i + 3 of
// each group in the lanes i of its 128-bit part.
HWY_INLINE Four LoadFour(const float* x) {
  Four y;
  hn::LoadInterleaved4(DF(), x, y.a, y.b, y.c, y.e);
  return y;
}

// Lane i becomes the sum of lanes i and i ^ 1 (i ^ 2), the difference where that bit of i is set.
HWY_INLINE VF Across1(VF x, VF odd_sign) {
  return hn::Add(hn::Shuffle2301(x), hn::Xor(x, odd_sign));
}
HWY_INLINE VF Across2(VF x, VF upper_sign) {
  return hn::Add(hn::Shuffle1032(x), hn::Xor(x, upper_sign));
}

// -0 in the lanes whose index has this bit set.
HWY_INLINE VF SignOfLanes(int bit) {
  const DI d;
  const VI set = hn::And(hn::Iota(d, 0), hn::Set(d, bit));
  return hn::BitCast(DF(), hn::IfThenZeroElse(hn::Eq(set, hn::Zero(d)),
                                              hn::Set(d, static_cast<std::int32_t>(0x80000000))));
}

HWY_INLINE VF AcrossLanes(VF x, VF odd_sign, VF upper_sign) {
  return Across2(Across1(x, odd_sign), upper_sign);
}

HWY_INLINE Four Hadamard16(const Four& x) {
  const VF odd = SignOfLanes(1), upper = SignOfLanes(2);
  const Four y = Hadamard4(x);
  return {AcrossLanes(y.a, odd, upper), AcrossLanes(y.b, odd, upper), AcrossLanes(y.c, odd, upper),
          AcrossLanes(y.e, odd, upper)};
}

// Every lane gets its group's range.
HWY_INLINE Range RangeOfGroups(const Four& x) {
  const DF d;
  const DI di;
  Range r = Widen(Widen(Widen(Widen(EmptyRange(), x.a), x.b), x.c), x.e);
  const auto shuffled = [&](VI v, bool far) HWY_ATTR {
    const VF f = hn::BitCast(d, v);
    return hn::BitCast(di, far ? hn::Shuffle1032(f) : hn::Shuffle2301(f));
  };
  for (const bool far : {false, true}) {
    r = {hn::Max(r.largest, shuffled(r.largest, far)),
         hn::Min(r.smallest, shuffled(r.smallest, far))};
  }
  return r;
}

HWY_INLINE Four SignedTerms(const Four& x, const Four& factors) {
  return {hn::Mul(x.a, factors.a), hn::Mul(x.b, factors.b), hn::Mul(x.c, factors.c),
          hn::Mul(x.e, factors.e)};
}

HWY_INLINE void StoreRounded(const Four& y, float* out) {
  hn::StoreInterleaved4(RoundLanesToBf16(y.a), RoundLanesToBf16(y.b), RoundLanesToBf16(y.c),
                        RoundLanesToBf16(y.e), DF(), out);
}

// Groups of which some need two sums.
void TransformSplit(const Four& x, const Four& terms, const Split& split, float* out) {
  const auto high = [&](VF v, VF term)
                        HWY_ATTR { return hn::IfThenElseZero(IsHigh(split, v), term); };
  const auto low = [&](VF v, VF term)
                       HWY_ATTR { return hn::IfThenZeroElse(IsHigh(split, v), term); };
  const Four h =
      Hadamard16({high(x.a, terms.a), high(x.b, terms.b), high(x.c, terms.c), high(x.e, terms.e)});
  const Four l =
      Hadamard16({low(x.a, terms.a), low(x.b, terms.b), low(x.c, terms.c), low(x.e, terms.e)});
  StoreRounded({hn::Add(h.a, l.a), hn::Add(h.b, l.b), hn::Add(h.c, l.c), hn::Add(h.e, l.e)}, out);
}

// The groups that `split` leaves over.
void TransformExactly(const Four& x, const Split& split, std::uint32_t sign_mask, float* out) {
  constexpr std::size_t kLanes = hn::MaxLanes(DF());
  HWY_ALIGN float groups[4 * kLanes];
  HWY_ALIGN float exact[kLanes];
  hn::StoreInterleaved4(x.a, x.b, x.c, x.e, DF(), groups);
  hn::Store(hn::IfThenZeroElse(split.two, hn::Set(DF(), 1.0f)), DF(), exact);
  for (std::size_t lane = 0; lane < hn::Lanes(DF()); lane += 4) {
    if (exact[lane] == 0.0f) continue;
    HadamardWideGroup(MatrixView<const float>(groups + 4 * lane, 1, 16), sign_mask,
                      MatrixView<float>(out + 4 * lane, 1, 16));
  }
}

// How many groups from the first on were transformed. out may be x.
std::size_t Groups16(const float* x, std::size_t groups, const HadamardSigns& signs, float* out) {
  const std::size_t step = 4 * hn::Lanes(DF());  // elements at a time
  HWY_ALIGN float factors[4 * hn::MaxLanes(DF())];
  for (std::size_t i = 0; i < step; ++i) factors[i] = signs.factors[i % 16];
  const Four factor = LoadFour(factors);
  std::size_t i = 0;
  for (; i + step <= groups * 16; i += step) {
    const Four group = LoadFour(x + i);
    const Four terms = SignedTerms(group, factor);
    const Split split = SplitOf(RangeOfGroups(group), 16);
    if (HWY_LIKELY(hn::AllTrue(DF(), split.one))) {
      StoreRounded(Hadamard16(terms), out + i);
      continue;
    }
    TransformSplit(group, terms, split, out + i);
    if (!hn::AllTrue(DF(), split.two)) TransformExactly(group, split, signs.mask, out + i);
  }
  return i / 16;
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(Groups16);

// Groups through a tile in which they lie down the columns.
void TurnedGroups(const float* x, std::size_t groups, const HadamardSigns& signs, float* out) {
  constexpr std::size_t kColumns = 16;
  const auto size = static_cast<std::size_t>(signs.size);
  float tile[32 * kColumns];
  for (std::size_t g = 0; g < groups; g += kColumns) {
    const std::size_t n = std::min(kColumns, groups - g);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < size; ++k) tile[k * kColumns + i] = x[(g + i) * size + k];
    }
    HadamardColumns(tile, kColumns, n, signs, tile, kColumns);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < size; ++k) out[(g + i) * size + k] = tile[k * kColumns + i];
    }
  }
}

}  // namespace

void HadamardRow(const float* x, std::size_t groups, const HadamardSigns& signs, float* out) {
  const std::size_t done =
      signs.size == 16 ? HWY_DYNAMIC_DISPATCH(Groups16)(x, groups, signs, out) : 0;
  const std::size_t offset = done * static_cast<std::size_t>(signs.size);
  TurnedGroups(x + offset, groups - done, signs, out + offset);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
