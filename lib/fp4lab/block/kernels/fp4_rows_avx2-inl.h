// FP4 rows with AVX2 (and F16C), rounded to the nearest: the steps of fp4_elements-inl.h, 8
// elements to binary16 and 32 to codes at a time.
#if defined(FP4LAB_BLOCK_FP4_ROWS_AVX2_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_FP4_ROWS_AVX2_INL_H_
#undef FP4LAB_BLOCK_FP4_ROWS_AVX2_INL_H_
#else
#define FP4LAB_BLOCK_FP4_ROWS_AVX2_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/scales-inl.h"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

inline constexpr float kHalfFactor = 0x1p-10f;

// fl(x * e) of 8 elements as binary16; e includes the factor 2^-10. Ties with bit 22 clear go down.
HWY_INLINE __m128i EightHalves(const float* x, __m256 e) {
  const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x), e);
  const __m256i odd =
      _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(v), 22), _mm256_set1_epi32(1));
  // 1 - 2^-24 or 1.
  const __m256 nudge = _mm256_castsi256_ps(_mm256_add_epi32(odd, _mm256_set1_epi32(0x3F7FFFFF)));
  return _mm256_cvtps_ph(_mm256_mul_ps(v, nudge), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

// The upper bytes of 32 binary16 numbers, in order.
HWY_INLINE __m256i ThirtyTwoUpperBytes(__m128i a, __m128i b, __m128i c, __m128i e) {
  const __m256i first = _mm256_inserti128_si256(_mm256_castsi128_si256(a), c, 1);
  const __m256i second = _mm256_inserti128_si256(_mm256_castsi128_si256(b), e, 1);
  return _mm256_packus_epi16(_mm256_srli_epi16(first, 8), _mm256_srli_epi16(second, 8));
}

// The codes of upper bytes, by their lower six bits: below 12 code 0, 12 to 17 code 1, from 29 on
// code 7.
HWY_INLINE __m256i CodesOfUpperBytes(__m256i upper) {
  const __m256i from16 =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7));
  const __m256i index = _mm256_and_si256(upper, _mm256_set1_epi8(0x3F));
  const __m256i place =
      _mm256_min_epu8(_mm256_subs_epu8(index, _mm256_set1_epi8(16)), _mm256_set1_epi8(15));
  const __m256i least =
      _mm256_and_si256(_mm256_cmpgt_epi8(index, _mm256_set1_epi8(11)), _mm256_set1_epi8(1));
  const __m256i magnitude = _mm256_max_epu8(_mm256_shuffle_epi8(from16, place), least);
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi16(upper, 4), _mm256_set1_epi8(8));
  return _mm256_or_si256(magnitude, sign);
}

// Packs 64 elements from x on; multiplier: of their first block.
HWY_INLINE __m256i PackSixtyFour(const float* x, const float* multiplier, std::size_t block_cols,
                                 __m256i* seen) {
  __m256i words[2];
  for (std::size_t h = 0; h < 2; ++h, x += 32) {
    const std::size_t block = 32 * h / block_cols;
    const __m256 e = _mm256_set1_ps(multiplier[block] * kHalfFactor);
    const __m256 f = _mm256_set1_ps(multiplier[block + 16 / block_cols] * kHalfFactor);
    const __m256i upper = ThirtyTwoUpperBytes(EightHalves(x, e), EightHalves(x + 8, e),
                                              EightHalves(x + 16, f), EightHalves(x + 24, f));
    *seen = _mm256_or_si256(*seen, upper);
    words[h] = _mm256_maddubs_epi16(CodesOfUpperBytes(upper), _mm256_set1_epi16(0x1001));
  }
  return _mm256_permute4x64_epi64(_mm256_packus_epi16(words[0], words[1]), 0xD8);
}

// Whether the kernels of this file serve a plan: rows of 1x16 or 1x32 blocks.
HWY_INLINE bool HasFp4Rows(const QuantizePlan& plan) {
  const float encode = plan.scale.tensor.encode;  // its range keeps NVFP4's e moderate
  const bool scale =
      plan.scale.rule != BlockScale::kOneBlock &&
      (plan.scale.rule != BlockScale::kFolded || (encode > 0x1p-90f && encode < 0x1p90f));
  const bool block = plan.block_rows == 1 && (plan.block_cols == 16 || plan.block_cols == 32);
  return plan.element.max == 6.0f && scale && block && !plan.transposed &&
         plan.rounding == Rounding::kNearestEven;
}

// Packs one row under scales that were computed before. Returns false, with undefined output, if
// the row has NaN, Inf or elements of 2^11 or more after scaling.
HWY_INLINE bool PackFp4Row(const Tile& x, std::size_t block_cols, const UnitScales& s,
                           std::uint8_t* out) {
  __m256i seen = _mm256_setzero_si256();
  std::size_t c = 0;
  for (; c + 64 <= x.cols; c += 64) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(out + c / 2),
        PackSixtyFour(x.data + c, s.multiplier + c / block_cols, block_cols, &seen));
  }
  if (c < x.cols) {
    alignas(32) float rest[64] = {}, multiplier[4] = {};
    alignas(32) std::uint8_t codes[32];
    std::copy(x.data + c, x.data + x.cols, rest);
    std::copy_n(s.multiplier + c / block_cols, DivideUp(x.cols - c, block_cols), multiplier);
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes),
                       PackSixtyFour(rest, multiplier, block_cols, &seen));
    std::copy_n(codes, (x.cols - c + 1) / 2, out + c / 2);
  }
  return _mm256_testz_si256(seen, _mm256_set1_epi8(0x40)) != 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#endif  // FP4LAB_BLOCK_FP4_ROWS_AVX2_INL_H_
