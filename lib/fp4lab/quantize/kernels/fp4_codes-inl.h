// Codes of E2M1 elements under the factors of any dialect's block stage, by the element kernels of
// block/: 64 at a time, with AVX-512.
#if defined(FP4LAB_QUANTIZE_FP4_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_QUANTIZE_FP4_CODES_INL_H_
#undef FP4LAB_QUANTIZE_FP4_CODES_INL_H_
#else
#define FP4LAB_QUANTIZE_FP4_CODES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/dialect/stages.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/fp4_units-inl.h"
#include "fp4lab/quantize/kernels/element_stage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3_DL

// Stores one code per byte, in element order.
struct OrderedFp4Sink {
  std::uint8_t* out;
  HWY_INLINE void Put(const Fp4Tables& tables, std::size_t c, std::size_t count,
                      __m512i upper) const {
    const __m512i order = _mm512_load_si512(kEvenThenOdd.from);
    const __m512i codes = _mm512_permutexvar_epi8(order, CodesOf(tables.code, upper));
    if (HWY_LIKELY(count >= 64)) {
      _mm512_storeu_si512(out + c, codes);
    } else {
      _mm512_mask_storeu_epi8(out + c, (std::uint64_t{1} << count) - 1, codes);
    }
  }
};

// The scalings and roundings that FastFp4Codes serves, each with NearestFp4's table. The last four
// roundings are those of published dialects that divide.
constexpr bool HasFastFp4Codes(ElementScaling scaling, ElementRounding rounding) {
  switch (rounding) {
    case ElementRounding::kNearestEven:
    case ElementRounding::kTiesAway:
    case ElementRounding::kHalfAdded:
    case ElementRounding::kBf16First:
      return scaling != ElementScaling::kDivideOrZero;
    case ElementRounding::kHalfAddedEven:
    case ElementRounding::kTiesToZero:
    case ElementRounding::kClosestScaled:
    case ElementRounding::kComfyCentre:
      return scaling == ElementScaling::kDivide;
    default:
      return false;
  }
}
constexpr bool AddsHalf(ElementRounding rounding) {
  return rounding == ElementRounding::kHalfAdded || rounding == ElementRounding::kHalfAddedEven;
}

// v * 2^-10 as a binary16 number, whose upper byte indexes NearestFp4's table.
template <ElementRounding kRounding>
HWY_INLINE __m256i HalvesOf(__m512 v) {
  if constexpr (kRounding == ElementRounding::kNearestEven ||
                kRounding == ElementRounding::kHalfAddedEven ||
                kRounding == ElementRounding::kComfyCentre) {
    return NearestFp4{}.Halves(0, v);
  }
  if constexpr (kRounding == ElementRounding::kBf16First) {
    return NearestFp4{}.Halves(0, Bf16Lanes(VF{v}).raw);
  }
  // A tie equals its decision point, so it rounds up (ties away from zero), or down from just
  // below.
  if constexpr (kRounding == ElementRounding::kTiesToZero ||
                kRounding == ElementRounding::kClosestScaled) {
    v = _mm512_mul_ps(v, _mm512_set1_ps(1.0f - 0x1p-24f));
  }
  return _mm512_cvt_roundps_ph(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

// Factors of a row's blocks times 2^-10, or divisors times 2^10 with their reciprocals.
struct Fp4Factors {
  alignas(64) float value[kMaxChunk / 16 + 64];
  alignas(64) float reciprocal[kMaxChunk / 16 + 64];
};

// The sign of a v of zero.
enum class ZeroSign {
  kKept,
  kOfElement,  // that of x + 0
  kDropped     // that of v + 0
};

// fl(x / c) with the sign of x, under FastFp4Codes' conditions. If x is so small that the remainder
// is inexact, the quotient is below 1/4 anyway.
HWY_INLINE __m512 Divided(__m512 x, const DivisionByReciprocal& over_c) {
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(  // quotient | sign bit of x
      _mm512_castps_si512(over_c(VF{x}).raw), _mm512_castps_si512(x),
      _mm512_set1_epi32(static_cast<int>(0x80000000)), 0xF8));
}

// v * 2^-10 of 16 elements.
template <ElementScaling kScaling, ZeroSign kZero>
HWY_INLINE __m512 ScaledFp4(__m512 x, const DivisionByReciprocal& e,
                            const DivisionByReciprocal& decode) {
  if constexpr (kZero == ZeroSign::kOfElement) x = _mm512_add_ps(x, _mm512_setzero_ps());
  if constexpr (kScaling == ElementScaling::kTwoSteps) x = Divided(x, decode);
  const __m512 v = kScaling == ElementScaling::kDivide ? Divided(x, e) : _mm512_mul_ps(x, e.c.raw);
  if constexpr (kZero == ZeroSign::kDropped) return _mm512_add_ps(v, _mm512_setzero_ps());
  return v;
}

// The codes of a row in blocks of kBlock columns. Returns false, with undefined codes, if some
// element is 2^11 or more, NaN or Inf, equals the float whose sum rounds up (AddsHalf), has no
// nearest code (kComfyCentre), or is so small that its v * 2^-10 is 0 where v may not be (kDropped,
// kTiesToZero).
template <ElementScaling kScaling, ElementRounding kRounding, ZeroSign kZero, std::size_t kBlock>
HWY_INLINE bool NearestFp4Codes(const float* x, const Fp4Factors& factors,
                                const DivisionByReciprocal& decode, std::size_t cols,
                                std::uint8_t* codes) {
  alignas(64) std::uint16_t halves[kMaxChunk + 64];
  const __m512i tiny = _mm512_set1_epi32(0x1C000000);  // twice the bits of 2^-99
  __mmask16 other = 0;
  const auto put = [&](std::size_t c, __m512 element) HWY_ATTR {
    const VF factor = hn::Set(DF(), factors.value[c / kBlock]);
    const DivisionByReciprocal e{factor, kScaling == ElementScaling::kDivide
                                             ? hn::Set(DF(), factors.reciprocal[c / kBlock])
                                             : hn::Zero(DF())};
    if constexpr (kZero == ZeroSign::kDropped || kRounding == ElementRounding::kTiesToZero) {
      const __m512i twice = _mm512_slli_epi32(_mm512_castps_si512(element), 1);
      other |= _mm512_cmplt_epu32_mask(_mm512_sub_epi32(twice, _mm512_set1_epi32(1)), tiny);
    }
    const __m512 v = ScaledFp4<kScaling, kZero>(element, e, decode);
    if constexpr (AddsHalf(kRounding)) {  // one float below 1/4 rounds up
      const __m512 lifted = _mm512_set1_ps((0.25f - 0x1p-26f) * 0x1p-10f);
      other |= _mm512_cmp_ps_mask(_mm512_abs_ps(v), lifted, _CMP_EQ_OQ);
    }
    if constexpr (kRounding == ElementRounding::kComfyCentre) {
      const __m512 a = _mm512_abs_ps(v);
      const auto at_least = [&](float bound) HWY_ATTR {
        return _mm512_cmp_ps_mask(a, _mm512_set1_ps(bound * 0x1p-10f), _CMP_GE_OQ);
      };
      other |= at_least(7.0f) | (at_least(1.75f) & ~at_least(kComfyThresholds[1]));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(halves + c), HalvesOf<kRounding>(v));
  };
  std::size_t c = 0;
  for (; c + 16 <= cols; c += 16) put(c, _mm512_loadu_ps(x + c));
  if (c < cols) {
    put(c, _mm512_maskz_loadu_ps(FirstLanes(cols - c), x + c));
    c += 16;
  }
  for (; c % 64 != 0; c += 16) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(halves + c), _mm256_setzero_si256());
  }
  const __m512i seen =
      PutColumns(NearestFp4{}, halves, 0, cols, OrderedFp4Sink{codes}, _mm512_setzero_si512());
  return other == 0 && _mm512_test_epi8_mask(seen, _mm512_set1_epi8(0x40)) == 0;
}

// Replaces the codes of -0 by +0.
HWY_INLINE void DropZeroSigns(std::size_t cols, std::uint8_t* codes) {
  const __m512i negative_zero = _mm512_set1_epi8(8);
  for (std::size_t c = 0; c < cols; c += 64) {
    const std::uint64_t inside =
        cols - c >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (cols - c)) - 1;
    const __m512i some = _mm512_maskz_loadu_epi8(inside, codes + c);
    const __mmask64 zeros = _mm512_cmpeq_epi8_mask(some, negative_zero) & inside;
    _mm512_mask_storeu_epi8(codes + c, zeros, _mm512_setzero_si512());
  }
}

// Gives zeros the code of -0, as EncodeTiesToZero does.
HWY_INLINE void SetZeroSigns(const float* x, std::size_t cols, std::uint8_t* codes) {
  for (std::size_t c = 0; c < cols; c += 16) {
    const __mmask16 inside = cols - c >= 16 ? __mmask16{0xFFFF} : FirstLanes(cols - c);
    const __m512 some = _mm512_maskz_loadu_ps(inside, x + c);
    const __mmask16 zeros = _mm512_mask_cmp_ps_mask(inside, some, _mm512_setzero_ps(), _CMP_EQ_OQ);
    _mm_mask_storeu_epi8(codes + c, zeros, _mm_set1_epi8(8));
  }
}

// Whether factors are in [least, largest], where products and quotients of all elements that matter
// are exact; for divisors also whether the significand is not all ones.
struct Moderate {
  float least, largest;
  bool divides;
  HWY_INLINE hn::Mask<DF> operator()(VF e) const {
    const DF d;
    const DI di;
    const auto inside = hn::And(hn::Ge(e, hn::Set(d, least)), hn::Le(e, hn::Set(d, largest)));
    if (!divides) return inside;
    const VI ones = hn::Set(di, 0x7FFFFF);
    return hn::AndNot(hn::RebindMask(d, hn::Eq(hn::And(Bits(e), ones), ones)), inside);
  }
};

// Fills `out` with the scaled factors of `count` blocks. `drops`: -0 becomes +0. Returns false if a
// factor is too extreme, or is 0 where that means more than v = 0.
HWY_INLINE bool ScaledFactors(const ByBlock& blocks, std::size_t count, ElementScaling scaling,
                              bool drops, Fp4Factors* out) {
  const DF d;
  const bool divides = scaling == ElementScaling::kDivide;
  const VF power = hn::Set(d, divides ? 0x1p10f : 0x1p-10f);
  // If signs of zeros are dropped, elements of at least 2^-99 must not underflow to 0.
  const Moderate moderate = divides ? Moderate{0x1p-60f, 0x1p20f, true}
                            : scaling == ElementScaling::kTwoSteps
                                ? Moderate{0x1p-20f, 0x1p40f, false}
                            : drops ? Moderate{0x1p-20f, 0x1p100f, false}
                                    : Moderate{0x1p-100f, 0x1p100f, false};
  auto bad = hn::Lt(hn::Zero(d), hn::Zero(d));
  for (std::size_t j = 0; j < count; j += hn::Lanes(d)) {
    const VF e = j + hn::Lanes(d) <= count ? hn::LoadU(d, blocks.factor + j)
                                           : LoadPart(blocks.factor + j, count - j);
    const auto exists = hn::Lt(hn::ConvertTo(d, hn::Iota(DI(), static_cast<int>(j))),
                               hn::Set(d, static_cast<float>(count)));
    // Under a factor of 0, v is a zero; its sign has no effect if signs of zeros are dropped.
    const auto zero = hn::Eq(e, hn::Zero(d));
    const bool takes_zero =
        drops && scaling != ElementScaling::kDivide && scaling != ElementScaling::kTwoSteps;
    const auto good = takes_zero ? hn::Or(moderate(e), zero) : moderate(e);
    bad = hn::Or(bad, hn::AndNot(good, exists));
    const VF scaled = hn::Mul(e, power);
    hn::Store(scaled, d, out->value + j);
    if (divides) hn::Store(hn::Div(hn::Set(d, 1.0f), scaled), d, out->reciprocal + j);
  }
  return hn::AllFalse(d, bad);
}

// CodesOfRow for E2M1 in blocks of 16 or 32. Returns false if CodesOfRow must compute the row.
template <ElementScaling kScaling, ElementRounding kRounding>
HWY_INLINE bool FastFp4Codes(const ElementRow& row, bool keeps_negative_zero, const float* x,
                             const ByBlock& blocks, std::size_t cols, std::uint8_t* codes) {
  if (!row.is_e2m1 || (blocks.width != 16 && blocks.width != 32) || cols > kMaxChunk) return false;
  Fp4Factors factors;
  const std::size_t count = DivideUp(cols, blocks.width);
  if (!ScaledFactors(blocks, count, kScaling, !keeps_negative_zero, &factors)) return false;
  const VF tensor = hn::Set(DF(), row.decode);
  const DivisionByReciprocal decode(tensor);
  if constexpr (kScaling == ElementScaling::kTwoSteps) {
    const float largest = keeps_negative_zero ? 0x1p40f : 0x1p10f;  // as in ScaledFactors
    if (!hn::AllTrue(DF(), Moderate{0x1p-40f, largest, true}(tensor))) return false;
  }
  const auto run = [&](auto zero) HWY_ATTR {
    constexpr ZeroSign kZero = decltype(zero)::value;
    return blocks.width == 16
               ? NearestFp4Codes<kScaling, kRounding, kZero, 16>(x, factors, decode, cols, codes)
               : NearestFp4Codes<kScaling, kRounding, kZero, 32>(x, factors, decode, cols, codes);
  };
  bool done = false;
  if (!keeps_negative_zero) {
    done = run(std::integral_constant<ZeroSign, ZeroSign::kDropped>());
  } else if constexpr (kScaling == ElementScaling::kFused) {
    done = run(std::integral_constant<ZeroSign, ZeroSign::kOfElement>());
  } else {
    done = run(std::integral_constant<ZeroSign, ZeroSign::kKept>());
  }
  if (done && kRounding == ElementRounding::kTiesToZero) SetZeroSigns(x, cols, codes);
  if (done && (row.never_negative_zero || kRounding == ElementRounding::kClosestScaled)) {
    DropZeroSigns(cols, codes);
  }
  return done;
}

#else

constexpr bool HasFastFp4Codes(ElementScaling, ElementRounding) { return false; }

template <ElementScaling kScaling, ElementRounding kRounding>
HWY_INLINE bool FastFp4Codes(const ElementRow&, bool, const float*, const ByBlock&, std::size_t,
                             std::uint8_t*) {
  return false;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_FP4_CODES_INL_H_
