// Rows of FP8 elements (E4M3, E5M2) with AVX-512 (VBMI), rounded to the nearest: 64 at a time.
//
// v = fl(x * e) is carried as v * kFactor, so that the code's exponent field is that of binary16.
//   1. Where the lowest bit of the code is 0 (bit kEvenBit of v clear), a tie goes down: v is
//      multiplied by 1 - 2^-24, which puts a tie just below its decision point and moves nothing
//      across one (as in fp4_elements-inl.h).
//   2. Converted to binary16 toward zero, the 8 bits from kRoundBit on are a byte u: the rounding
//      bit below the code. The code is (u + 1) / 2.
//   3. The lowest bit of a subnormal code is another bit of v. Where a tie between subnormal codes
//      is possible (0 < u < 2^(mantissa bits + 1)), FixSubnormals rounds the small ones of the 64
//      elements again.
// Elements that are too large, NaN and Inf are detected; the generic kernel then quantizes the unit
// again.
#if defined(FP4LAB_BLOCK_FP8_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_FP8_UNITS_INL_H_
#undef FP4LAB_BLOCK_FP8_UNITS_INL_H_
#else
#define FP4LAB_BLOCK_FP8_UNITS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/fp4_elements-inl.h"
#include "fp4lab/block/kernels/fp4_scales-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

struct E4m3Elements {
  static constexpr float kFactor = 0x1p-8f, kMinNormal = 0x1p-6f;
  static constexpr int kMantissaBits = 3, kRoundBit = 6;
  static constexpr std::uint8_t kLargest = 0x7E;
  // Collects bit 14 of binary16, which 512 and above, NaN and Inf have.
  static HWY_INLINE __m512i See(__m512i seen, __m512i upper, __m512i /*u*/) {
    return _mm512_or_si512(seen, upper);
  }
  static HWY_INLINE bool Serves(__m512i seen) {
    return _mm512_test_epi8_mask(seen, _mm512_set1_epi8(0x40)) == 0;
  }
};

struct E5m2Elements {
  static constexpr float kFactor = 1.0f, kMinNormal = 0x1p-14f;
  static constexpr int kMantissaBits = 2, kRoundBit = 7;
  static constexpr std::uint8_t kLargest = 0x7B;
  // Collects the largest u, which tells of NaN and Inf. Finite elements that are too large become
  // binary16's largest number.
  static HWY_INLINE __m512i See(__m512i seen, __m512i /*upper*/, __m512i u) {
    return _mm512_max_epu8(seen, u);
  }
  static HWY_INLINE bool Serves(__m512i seen) {
    return _mm512_cmpge_epu8_mask(seen, _mm512_set1_epi8(static_cast<char>(0xF8))) == 0;
  }
};

// The multiplier at column c, which includes kFactor: one for the row (kBlock = 0), or one for each
// kBlock elements.
template <std::size_t kBlock>
HWY_INLINE __m512 MultiplierAt(const float* multiplier, std::size_t c) {
  if constexpr (kBlock == 0) return _mm512_set1_ps(*multiplier);
  return _mm512_set1_ps(multiplier[c / kBlock]);
}

// Rounds 64 elements from column c on to binary16.
template <class Elements, std::size_t kBlock>
HWY_INLINE void Fp8Halves(const float* x, std::size_t c, const float* multiplier,
                          std::uint16_t* halves) {
  constexpr int kEvenBit = 1 << (23 - Elements::kMantissaBits);
  for (std::size_t i = 0; i < 64; i += 16) {
    const __m512 v =
        _mm512_mul_ps(_mm512_loadu_ps(x + c + i), MultiplierAt<kBlock>(multiplier, c + i));
    const __mmask16 even =
        _mm512_testn_epi32_mask(_mm512_castps_si512(v), _mm512_set1_epi32(kEvenBit));
    const __m512 t = _mm512_mask_mul_ps(v, even, v, _mm512_set1_ps(1.0f - 0x1p-24f));
    _mm256_store_si256(reinterpret_cast<__m256i*>(halves + i),
                       _mm512_cvt_roundps_ph(t, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
  }
}

// Bits [kRoundBit, kRoundBit + 8) of 64 binary16 numbers, in UpperBytes' order.
template <int kRoundBit>
HWY_INLINE __m512i RoundedBytes(const std::uint16_t* halves) {
  constexpr std::int64_t kBit = kRoundBit,
                         kBits = kBit | (kBit + 16) << 16 | (kBit + 32) << 32 | (kBit + 48) << 48;
  const __m512i even = _mm512_set1_epi64(kBits), odd = _mm512_slli_epi64(even, 8);
  const __m512i first = _mm512_multishift_epi64_epi8(even, _mm512_loadu_si512(halves));
  return _mm512_mask_multishift_epi64_epi8(first, 0xAAAAAAAAAAAAAAAAu, odd,
                                           _mm512_loadu_si512(halves + 32));
}

// Rounds again those of 64 elements from column c on that are below the smallest normal number:
// adding 2^23 steps leaves the number of steps, rounded by the addition.
template <class Elements, std::size_t kBlock>
HWY_NOINLINE void FixSubnormals(const float* x, std::size_t c, const float* multiplier,
                                std::uint8_t* out) {
  constexpr float kScaledMin = Elements::kMinNormal * Elements::kFactor;
  const __m512 magic =
      _mm512_set1_ps(kScaledMin * static_cast<float>(1 << (23 - Elements::kMantissaBits)));
  for (std::size_t i = c; i < c + 64; i += 16) {
    const __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x + i), MultiplierAt<kBlock>(multiplier, i));
    const __m512 a = _mm512_abs_ps(v);
    const __mmask16 small = _mm512_cmp_ps_mask(a, _mm512_set1_ps(kScaledMin), _CMP_LT_OQ);
    const __m512i steps = _mm512_castps_si512(_mm512_add_ps(a, magic));
    const __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(v), 24);
    // 0x80 ? sign : steps
    const __m512i code = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x80), sign, steps, 0xCA);
    _mm512_mask_cvtepi32_storeu_epi8(out + i, small, code);
  }
}

// Stores the codes of 64 elements from column c on.
template <class Elements, std::size_t kBlock>
HWY_INLINE __m512i PutFp8(const float* x, std::size_t c, const float* multiplier,
                          const std::uint16_t* halves, std::uint8_t* out, __m512i seen) {
  const __m512i upper = UpperBytes(halves);
  const __m512i u = RoundedBytes<Elements::kRoundBit>(halves);
  const __m512i limited = _mm512_min_epu8(
      u, _mm512_set1_epi8(static_cast<char>(static_cast<unsigned char>(2 * Elements::kLargest))));
  const __m512i magnitude = _mm512_avg_epu8(limited, _mm512_setzero_si512());
  // magnitude | (upper & 0x80)
  const __m512i code =
      _mm512_ternarylogic_epi32(magnitude, upper, _mm512_set1_epi8(static_cast<char>(0x80)), 0xF8);
  _mm512_storeu_si512(out + c, _mm512_permutexvar_epi8(_mm512_load_si512(kEvenThenOdd.from), code));
  constexpr char kNoTies = (2 << Elements::kMantissaBits) - 1;
  const __mmask64 ties =
      _mm512_cmplt_epu8_mask(_mm512_sub_epi8(u, _mm512_set1_epi8(1)), _mm512_set1_epi8(kNoTies));
  if (HWY_UNLIKELY(ties != 0)) FixSubnormals<Elements, kBlock>(x, c, multiplier, out);
  return Elements::See(seen, upper, u);
}

// One step of QuantizeFp8Row: 512 consecutive elements, step number `step` of the row x.
template <class Elements, std::size_t kBlock>
struct Fp8Step {
  static constexpr std::size_t kElements = 512;
  static HWY_INLINE const float* Multiplier(const Fp4Scales& s, std::size_t step) {
    return kBlock == 0 ? s.multiplier : s.multiplier + step * 16;
  }
  static HWY_INLINE void FindScales(const ScaleConstants& k, const float* x, std::size_t step,
                                    Fp4Scales* s) {
    const float* from = x + step * kElements;
    for (std::size_t i = 0; i < kElements; i += 16) {
      _mm_prefetch(reinterpret_cast<const char*>(from + i + kPrefetchAhead), _MM_HINT_T1);
    }
    if constexpr (kBlock != 0) {
      StoreScales(SixteenScalesOf(k, SixteenAmaxes<kBlock>(from), Elements::kFactor), step * 16, s);
    }
  }
  static HWY_INLINE void Round(const float* x, std::size_t step, const Fp4Scales& s,
                               std::uint16_t* halves) {
    for (std::size_t c = 0; c < kElements; c += 64) {
      Fp8Halves<Elements, kBlock>(x + step * kElements, c, Multiplier(s, step), halves + c);
    }
  }
  static HWY_INLINE __m512i Put(const float* x, std::size_t step, const Fp4Scales& s,
                                const std::uint16_t* halves, std::uint8_t* out, __m512i seen) {
    for (std::size_t c = 0; c < kElements; c += 64) {
      seen = PutFp8<Elements, kBlock>(x + step * kElements, c, Multiplier(s, step), halves + c,
                                      out + step * kElements, seen);
    }
    return seen;
  }
};

// Quantizes the rest of a row, less than a step, in a buffer of a whole step.
template <class Elements, std::size_t kBlock>
HWY_NOINLINE __m512i QuantizeFp8Rest(const ScaleConstants& k, const float* x, std::size_t begin,
                                     std::size_t cols, Fp4Scales* s, std::uint8_t* out,
                                     __m512i seen) {
  using Step = Fp8Step<Elements, kBlock>;
  alignas(64) float rest[Step::kElements] = {};
  alignas(64) std::uint16_t halves[Step::kElements];
  alignas(64) std::uint8_t codes[Step::kElements];
  std::copy(x + begin, x + cols, rest);
  Fp4Scales scales;
  scales.multiplier[0] = s->multiplier[0];
  if constexpr (kBlock != 0) {
    StoreScales(SixteenScalesOf(k, SixteenAmaxes<kBlock>(rest), Elements::kFactor), 0, &scales);
    std::copy_n(scales.byte, 16, s->byte + begin / kBlock);
  }
  Step::Round(rest, 0, scales, halves);
  seen = Step::Put(rest, 0, scales, halves, codes, seen);
  std::copy_n(codes, cols - begin, out + begin);
  return seen;
}

// Quantizes a row: codes at `out`, block scales in *s. Three steps are in flight at once, as in
// QuantizeFp4Row.
template <class Elements, std::size_t kBlock>
HWY_INLINE __m512i QuantizeFp8Row(const ScaleConstants& k, const float* x, std::size_t cols,
                                  Fp4Scales* s, std::uint8_t* out) {
  using Step = Fp8Step<Elements, kBlock>;
  alignas(64) std::uint16_t halves[2][Step::kElements];
  __m512i seen = _mm512_setzero_si512();
  if constexpr (kBlock == 0) s->multiplier[0] = k.tensor.encode * Elements::kFactor;
  const std::size_t steps = cols / Step::kElements;
  if (steps > 0) {
    Step::FindScales(k, x, 0, s);
    for (std::size_t i = 0; i + 1 < steps; ++i) {
      Step::FindScales(k, x, i + 1, s);
      Step::Round(x, i, *s, halves[i % 2]);
      if (i > 0) seen = Step::Put(x, i - 1, *s, halves[(i - 1) % 2], out, seen);
    }
    Step::Round(x, steps - 1, *s, halves[(steps - 1) % 2]);
    if (steps > 1) seen = Step::Put(x, steps - 2, *s, halves[steps % 2], out, seen);
    seen = Step::Put(x, steps - 1, *s, halves[(steps - 1) % 2], out, seen);
  }
  const std::size_t done = steps * Step::kElements;
  if (done == cols) return seen;
  return QuantizeFp8Rest<Elements, kBlock>(k, x, done, cols, s, out, seen);
}

// Whether the kernels of this file serve a plan: rows with one scale per tensor or per 32 elements.
HWY_INLINE bool HasFp8Units(const QuantizePlan& plan) {
  const bool element = plan.element.max == 448.0f || plan.element.max == 57344.0f;
  const float encode = plan.scale.tensor.encode;  // its range keeps e moderate
  const bool scale = plan.scale.rule == BlockScale::kOneBlock
                         ? encode > 0x1p-90f && encode < 0x1p90f
                         : plan.scale.rule != BlockScale::kFolded && plan.block_cols == 32;
  return element && scale && plan.block_rows == 1 && plan.rounding == Rounding::kNearestEven;
}

template <class Elements>
HWY_INLINE bool QuantizeFp8Blocks(const QuantizePlan& plan, const Tile& x, Fp4Scales* s,
                                  std::uint8_t* out) {
  const bool one_scale = plan.scale.rule == BlockScale::kOneBlock;
  const __m512i seen = one_scale ? QuantizeFp8Row<Elements, 0>(plan.scale, x.data, x.cols, s, out)
                                 : QuantizeFp8Row<Elements, 32>(plan.scale, x.data, x.cols, s, out);
  return Elements::Serves(seen);
}

// Quantizes one unit. Returns false if the unit has elements that this file does not serve.
HWY_INLINE bool QuantizeFp8Unit(const QuantizePlan& plan, const Tile& x, Fp4Scales* s,
                                std::uint8_t* out) {
  return plan.element.max == 448.0f ? QuantizeFp8Blocks<E4m3Elements>(plan, x, s, out)
                                    : QuantizeFp8Blocks<E5m2Elements>(plan, x, s, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#endif  // FP4LAB_BLOCK_FP8_UNITS_INL_H_
