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

// Transforms no group on the scalar target: the caller transforms them all.
std::size_t Groups16(const float* /*x*/, std::size_t /*groups*/, const HadamardFactors& /*factors*/,
                     float* /*out*/) {
  return 0;
}

#else

// Loads groups of 16, 4 lanes a group: vectors a, b, c, e hold elements 4 i, 4 i + 1, 4 i + 2,
// 4 i + 3 of each group in lane i of the group's 128-bit part.
HWY_INLINE Four LoadFour(const float* x) {
  Four y;
  hn::LoadInterleaved4(DF(), x, y.a, y.b, y.c, y.e);
  return y;
}

// Lane i becomes the sum of lanes i and i ^ 1 (Across2: i ^ 2), or their difference if that bit of
// i is set.
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

// The range of each group, in all lanes of the group.
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

// Transforms a vector of groups, some of which need two sums.
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

// Transforms the groups that two sums cannot cover (split.two is false), by HadamardWideGroup.
void TransformExactly(const Four& x, const Split& split, const HadamardSigns& signs, float* out) {
  constexpr std::size_t kLanes = hn::MaxLanes(DF());
  HWY_ALIGN float groups[4 * kLanes];
  HWY_ALIGN float exact[kLanes];
  hn::StoreInterleaved4(x.a, x.b, x.c, x.e, DF(), groups);
  hn::Store(hn::IfThenZeroElse(split.two, hn::Set(DF(), 1.0f)), DF(), exact);
  for (std::size_t lane = 0; lane < hn::Lanes(DF()); lane += 4) {
    if (exact[lane] == 0.0f) continue;
    HadamardWideGroup(MatrixView<const float>(groups + 4 * lane, 1, 16), signs,
                      MatrixView<float>(out + 4 * lane, 1, 16));
  }
}

// Transforms groups from the first on, a vector of groups at a time; returns the number
// transformed.
std::size_t GroupsByVectors(const float* x, std::size_t groups, const HadamardFactors& factors,
                            float* out) {
  const std::size_t step = 4 * hn::Lanes(DF());  // elements at a time
  HWY_ALIGN float repeated[4 * hn::MaxLanes(DF())];
  for (std::size_t i = 0; i < step; ++i) repeated[i] = factors.of_elements[i % 16];
  const Four factor = LoadFour(repeated);
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
    if (hn::AllTrue(DF(), split.two)) continue;
    TransformExactly(group, split, factors.transform.signs, out + i);
  }
  return i / 16;
}

#if HWY_TARGET <= HWY_AVX3

constexpr std::size_t kBatch = 8;  // groups that share one check of exactness

// -1 in the lanes whose index has this bit set, else 1.
HWY_INLINE __m512 OnesOfLanes(int bit) {
  const __mmask16 set = _mm512_test_epi32_mask(hn::Iota(DI(), 0).raw, _mm512_set1_epi32(bit));
  return _mm512_mask_mov_ps(_mm512_set1_ps(1.0f), set, _mm512_set1_ps(-1.0f));
}

// The Hadamard transform of one group in a vector. A stage permutes the lanes and adds them with
// the lanes' signs; the results are never -0.
struct LaneSigns {
  __m512 factors, one = OnesOfLanes(1), two = OnesOfLanes(2), four = OnesOfLanes(4),
                  eight = OnesOfLanes(8);
  HWY_INLINE __m512 Hadamard16(__m512 x) const {
    const __m512 t = _mm512_fmadd_ps(x, factors, _mm512_setzero_ps());
    const __m512 a = _mm512_fmadd_ps(t, one, _mm512_permute_ps(t, 0xB1));
    const __m512 b = _mm512_fmadd_ps(a, two, _mm512_permute_ps(a, 0x4E));
    const __m512 c = _mm512_fmadd_ps(b, four, _mm512_shuffle_f32x4(b, b, 0xB1));
    return _mm512_fmadd_ps(c, eight, _mm512_shuffle_f32x4(c, c, 0x4E));
  }
};

// Whether the sums of a batch were exact and finite (lanes-inl.h). smallest: 16-bit lanes with the
// smallest upper half of a nonzero term's magnitude, minus one; largest: 32-bit lanes with the bits
// of the largest magnitude of an output.
HWY_INLINE bool BatchIsExact(__m512i smallest, __m512i largest) {
  // Each lane of `both`: the smallest half in the lower 16 bits, the complement of the largest
  // output's upper half in the upper 16 bits, so that one minimum reduces the two.
  const __m512i halves = _mm512_min_epu16(smallest, _mm512_srli_epi32(smallest, 16));
  const __m512i both = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xFFFF), halves, largest, 0xC5);
  const __m256i m8 =
      _mm256_min_epu16(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
  const __m128i m4 = _mm_min_epu16(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
  const __m128i m2 = _mm_min_epu16(m4, _mm_shuffle_epi32(m4, 0x4E));
  const __m128i m1 = _mm_min_epu16(m2, _mm_shuffle_epi32(m2, 0xB1));
  const auto least = static_cast<std::uint32_t>(_mm_cvtsi128_si32(m1));
  const std::uint32_t output = (~least >> 16) >> 7;  // exponent field of the largest output
  const std::uint32_t term = std::min((least & 0xFFFFu) + 1, 0x7F80u) >> 7;
  return output < std::min(std::max(term, 1u) + 14, 250u);
}

// Transforms kBatch groups. Returns false, without writing `out`, if some sum may be inexact.
HWY_INLINE bool TransformBatch(const float* x, const LaneSigns& signs, float* out) {
  alignas(64) float y[kBatch * 16];
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF), halves = _mm512_set1_epi16(0x7FFF);
  __m512i smallest = _mm512_set1_epi32(-1), largest = _mm512_setzero_si512();
  const auto transform = [&](std::size_t i) HWY_ATTR {
    const __m512 terms = _mm512_loadu_ps(x + i);
    const __m512 sums = signs.Hadamard16(terms);
    _mm512_store_ps(y + i, sums);
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(sums), magnitude));
    return _mm512_castps_si512(terms);
  };
  for (std::size_t i = 0; i < kBatch * 16; i += 32) {
    const __m512i a = transform(i), b = transform(i + 16);
    const __m512i words = _mm512_ternarylogic_epi32(a, _mm512_srli_epi32(b, 16), halves, 0xA8);
    smallest = _mm512_min_epu16(smallest, _mm512_sub_epi16(words, _mm512_set1_epi16(1)));
  }
  if (HWY_UNLIKELY(!BatchIsExact(smallest, largest))) return false;
  for (std::size_t i = 0; i < kBatch * 16; i += 16) {
    hn::StoreU(RoundPositiveZeroToBf16(hn::Load(DF(), y + i)), DF(), out + i);
  }
  return true;
}

// Transforms groups from the first on; returns the number transformed. out may be x.
std::size_t Groups16(const float* x, std::size_t groups, const HadamardFactors& factors,
                     float* out) {
  const LaneSigns lane_signs{.factors = _mm512_loadu_ps(factors.of_elements)};
  std::size_t done = 0;
  for (; done + kBatch <= groups; done += kBatch, x += 16 * kBatch, out += 16 * kBatch) {
    if (!TransformBatch(x, lane_signs, out)) GroupsByVectors(x, kBatch, factors, out);
  }
  return done + GroupsByVectors(x, groups - done, factors, out);
}

#else

// Transforms groups from the first on; returns the number transformed. out may be x.
std::size_t Groups16(const float* x, std::size_t groups, const HadamardFactors& factors,
                     float* out) {
  return GroupsByVectors(x, groups, factors, out);
}

#endif

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(Groups16);

// Transforms groups by way of a transposed tile, in which a cache line or two of groups run down
// the columns.
template <int kSize>
void TurnedGroups(const float* x, std::size_t groups, const HadamardFactors& factors, float* out) {
  constexpr std::size_t kColumns = kSize < 16 ? 32 : 16;
  float tile[kSize * kColumns];
  for (std::size_t g = 0; g < groups; g += kColumns) {
    const std::size_t n = std::min(kColumns, groups - g);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < kSize; ++k) tile[k * kColumns + i] = x[(g + i) * kSize + k];
    }
    HadamardColumns(tile, kColumns, n, factors, tile, kColumns);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < kSize; ++k) out[(g + i) * kSize + k] = tile[k * kColumns + i];
    }
  }
}

}  // namespace

void HadamardRow(const float* x, std::size_t groups, const HadamardFactors& factors, float* out) {
  switch (factors.transform.size) {
    case 2:
      return TurnedGroups<2>(x, groups, factors, out);
    case 4:
      return TurnedGroups<4>(x, groups, factors, out);
    case 8:
      return TurnedGroups<8>(x, groups, factors, out);
    case 16: {
      const std::size_t done = HWY_DYNAMIC_DISPATCH(Groups16)(x, groups, factors, out);
      return TurnedGroups<16>(x + done * 16, groups - done, factors, out + done * 16);
    }
    case 32:
      return TurnedGroups<32>(x, groups, factors, out);
    case 64:
      return TurnedGroups<64>(x, groups, factors, out);
    default:
      return TurnedGroups<128>(x, groups, factors, out);
  }
}

}  // namespace fp4lab
#endif  // HWY_ONCE
