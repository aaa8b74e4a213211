// Amaxes and scales of 16 FP4 blocks at a time, with AVX-512.
#if defined(FP4LAB_BLOCK_FP4_SCALES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_FP4_SCALES_INL_H_
#undef FP4LAB_BLOCK_FP4_SCALES_INL_H_
#else
#define FP4LAB_BLOCK_FP4_SCALES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/lanes-inl.h"
#include "fp4lab/block/kernels/scales-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

HWY_INLINE __mmask16 FirstLanes(std::size_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1u << count) - 1);
}

// The larger magnitude, lane by lane; a quiet NaN loses against a number.
HWY_INLINE __m512 LargerMagnitude(__m512 a, __m512 b) { return _mm512_range_ps(a, b, 0b1011); }

// max(|a|, |b|) over both halves of two blocks: 8 lanes of the first, 8 of the second.
HWY_INLINE __m512 TwoBlocks16(const float* x) {
  const __m512 low =
      _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(x)), _mm256_loadu_ps(x + 16), 1);
  const __m512 high = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(x + 8)),
                                         _mm256_loadu_ps(x + 24), 1);
  return LargerMagnitude(low, high);
}
HWY_INLINE __m512 TwoBlocks32(const float* x) {
  const __m512 a = LargerMagnitude(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16));
  const __m512 b = LargerMagnitude(_mm512_loadu_ps(x + 32), _mm512_loadu_ps(x + 48));
  return LargerMagnitude(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
}
template <std::size_t kBlock>
HWY_INLINE __m512 TwoBlocks(const float* x) {
  if constexpr (kBlock == 16) return TwoBlocks16(x);
  return TwoBlocks32(x);
}

// Blocks 0 and 2 beside each other in the lower 128-bit lanes, 1 and 3 in the upper.
HWY_INLINE __m512 FourBlocks(__m512 ab, __m512 cd) {
  return LargerMagnitude(_mm512_unpacklo_ps(ab, cd), _mm512_unpackhi_ps(ab, cd));
}
HWY_INLINE __m512 EightBlocks(__m512 a, __m512 b) {
  const __m512d p = _mm512_castps_pd(a), q = _mm512_castps_pd(b);
  return LargerMagnitude(_mm512_castpd_ps(_mm512_unpacklo_pd(p, q)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(p, q)));
}

// The amaxes of 16 blocks in a row, quiet NaN left out.
template <std::size_t kBlock>
HWY_INLINE __m512 SixteenAmaxes(const float* x) {
  constexpr std::size_t kTwo = 2 * kBlock;
  const auto four = [&](std::size_t i) HWY_ATTR {
    return FourBlocks(TwoBlocks<kBlock>(x + i * kTwo), TwoBlocks<kBlock>(x + (i + 1) * kTwo));
  };
  const __m512 a = EightBlocks(four(0), four(2)), b = EightBlocks(four(4), four(6));
  const __m512 max =
      LargerMagnitude(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  return _mm512_permutexvar_ps(order, max);
}

// Scales of 16 blocks: e times the factor that the rounding wants (a power of two), the bytes, and
// the scales' values.
struct SixteenScales {
  __m512 multiplier, value;
  __m512i byte;
};

// NVFP4 scales that are all normal E4M3 numbers, rounded with integer arithmetic.
HWY_INLINE SixteenScales NormalNvfp4Scales(const ScaleConstants& k, __m512i product, float factor) {
  const __mmask16 odd = _mm512_test_epi32_mask(product, _mm512_set1_epi32(1 << 20));
  const __m512i least = _mm512_add_epi32(product, _mm512_set1_epi32(0x7FFFF));
  const __m512i up = _mm512_mask_add_epi32(least, odd, least, _mm512_set1_epi32(1));
  const __m512 s = _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(-0x100000)));
  const __m512i byte = _mm512_srli_epi32(_mm512_sub_epi32(up, _mm512_set1_epi32(120 << 23)), 20);
  const __m512 decode = _mm512_mul_ps(s, _mm512_set1_ps(k.tensor.decode));
  // fl(factor / d) = factor * fl(1 / d): nothing overflows or is subnormal (HasFp4Units).
  return {_mm512_div_ps(_mm512_set1_ps(factor), decode), s, byte};
}

HWY_INLINE SixteenScales SixteenScalesOf(const ScaleConstants& k, __m512 amax, float factor) {
  if (k.rule == BlockScale::kFolded) {
    const __m512i product = _mm512_castps_si512(_mm512_mul_ps(amax, _mm512_set1_ps(k.per_amax)));
    constexpr int kLeast = 121 << 23, kLargest = 0x43E00000;  // 2^-6, 448
    const __mmask16 other = _mm512_cmpgt_epu32_mask(
        _mm512_sub_epi32(product, _mm512_set1_epi32(kLeast)), _mm512_set1_epi32(kLargest - kLeast));
    if (HWY_LIKELY(other == 0)) return NormalNvfp4Scales(k, product, factor);
  }
  const BlockScales s = ScalesOf(k, VF{amax});
  // Where e * factor overflows: a block of zeros gets its codes under any multiplier (1 here); for
  // other blocks a NaN multiplier makes the caller use the generic kernel.
  const __m512 e = _mm512_mul_ps(s.multiplier.raw, _mm512_set1_ps(factor));
  const __mmask16 overflow = _mm512_cmp_ps_mask(e, _mm512_set1_ps(kFloatMax), _CMP_GT_OQ);
  const __mmask16 zeros = _mm512_mask_cmp_ps_mask(overflow, amax, _mm512_setzero_ps(), _CMP_EQ_OQ);
  const __m512 safe = _mm512_mask_mov_ps(e, overflow, _mm512_castsi512_ps(_mm512_set1_epi32(-1)));
  return {_mm512_mask_mov_ps(safe, zeros, _mm512_set1_ps(1.0f)), s.value.raw, s.byte.raw};
}

// The prefetch distance: the hardware prefetcher does not keep up with the bursts. Into the
// second-level cache, which has more loads in flight than the first: on a Zen 4 1.7 times as fast
// from DRAM on one thread as 2048 elements ahead into the first.
inline constexpr std::size_t kPrefetchAhead = 8192;  // elements

struct Fp4Scales {
  static constexpr std::size_t kMax = kMaxSpan * kMaxChunk / 16 + 16;
  alignas(64) float multiplier[kMax];
  alignas(64) float value[kMax];
  alignas(64) std::uint8_t byte[kMax];
};

HWY_INLINE void StoreScales(const SixteenScales& scales, std::size_t b, Fp4Scales* s) {
  _mm512_store_ps(s->multiplier + b, scales.multiplier);
  _mm512_store_ps(s->value + b, scales.value);
  _mm_store_si128(reinterpret_cast<__m128i*>(s->byte + b), _mm512_cvtepi32_epi8(scales.byte));
}

// Finds the scales of `cols` elements in a row, whose first block is block b.
template <std::size_t kBlock>
HWY_INLINE void FindFp4ScalesOfRow(const ScaleConstants& k, const float* x, std::size_t cols,
                                   std::size_t b, float factor, Fp4Scales* s) {
  constexpr std::size_t kSixteen = 16 * kBlock;
  std::size_t c = 0;
  for (; c + kSixteen <= cols; c += kSixteen, b += 16) {
    for (std::size_t i = 0; i < kSixteen; i += 16) {
      _mm_prefetch(reinterpret_cast<const char*>(x + c + i + kPrefetchAhead), _MM_HINT_T1);
    }
    StoreScales(SixteenScalesOf(k, SixteenAmaxes<kBlock>(x + c), factor), b, s);
  }
  if (c == cols) return;
  alignas(64) float rest[kSixteen] = {};
  std::copy_n(x + c, cols - c, rest);
  StoreScales(SixteenScalesOf(k, SixteenAmaxes<kBlock>(rest), factor), b, s);
}

// The largest magnitudes of up to 16 columns; prefetches the memory of the next unit.
HWY_INLINE __m512 AmaxesOfColumns(const Tile& x, std::size_t c) {
  const __mmask16 lanes = FirstLanes(x.cols - c);
  __m512 max = _mm512_setzero_ps();
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* from = x.data + r * x.stride + c;
    _mm_prefetch(reinterpret_cast<const char*>(from + x.cols), _MM_HINT_T0);
    max = LargerMagnitude(max, _mm512_maskz_loadu_ps(lanes, from));
  }
  return max;
}

// Finds the scales of a unit. kBlock: columns of a block, 1 if blocks lie along the memory's
// columns.
template <std::size_t kBlock>
HWY_INLINE void FindFp4Scales(const ScaleConstants& k, const Tile& x, float factor, Fp4Scales* s) {
  if constexpr (kBlock == 1) {
    for (std::size_t c = 0; c < x.cols; c += 16) {
      StoreScales(SixteenScalesOf(k, AmaxesOfColumns(x, c), factor), c, s);
    }
  } else if (x.rows == 1) {
    FindFp4ScalesOfRow<kBlock>(k, x.data, x.cols, 0, factor, s);
  } else {
    alignas(64) float largest[kMaxChunk];
    for (std::size_t c = 0; c < x.cols; c += 16) {
      _mm512_store_ps(largest + c, AmaxesOfColumns(x, c));
    }
    FindFp4ScalesOfRow<kBlock>(k, largest, x.cols, 0, factor, s);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#endif  // FP4LAB_BLOCK_FP4_SCALES_INL_H_
