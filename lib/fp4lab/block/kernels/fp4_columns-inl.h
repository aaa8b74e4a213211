// FP4 blocks along the memory's columns, with AVX-512: 64 columns by the rows of a block at a time,
// rounded to the nearest, packed and transposed.
#if defined(FP4LAB_BLOCK_FP4_COLUMNS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_FP4_COLUMNS_INL_H_
#undef FP4LAB_BLOCK_FP4_COLUMNS_INL_H_
#else
#define FP4LAB_BLOCK_FP4_COLUMNS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/fp4_elements-inl.h"
#include "fp4lab/block/kernels/fp4_scales-inl.h"
#include "fp4lab/block/kernels/scales-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// Transposes eight rows of 64 bytes: qword 2 l + h of vector i of the result holds the bytes at
// place 16 l + 2 i + h. Vector i goes to out + i * stride bytes.
HWY_INLINE void TurnBytes(const __m512i* a, std::uint8_t* out, std::size_t stride) {
  __m512i b[8], c[8];
  for (std::size_t i = 0; i < 8; i += 2) {
    b[i / 2] = _mm512_unpacklo_epi8(a[i], a[i + 1]);
    b[4 + i / 2] = _mm512_unpackhi_epi8(a[i], a[i + 1]);
  }
  for (std::size_t i = 0; i < 8; i += 2) {
    c[i] = _mm512_unpacklo_epi16(b[i], b[i + 1]);
    c[i + 1] = _mm512_unpackhi_epi16(b[i], b[i + 1]);
  }
  // Places within each 128-bit lane: c[0], c[2] have 0-3, c[1], c[3] 4-7, c[4], c[6] 8-11, c[5],
  // c[7] 12-15.
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t j = i / 2 * 4 + i % 2;
    _mm512_store_si512(out + 2 * i * stride, _mm512_unpacklo_epi32(c[j], c[j + 2]));
    _mm512_store_si512(out + (2 * i + 1) * stride, _mm512_unpackhi_epi32(c[j], c[j + 2]));
  }
}

// Transposes eight rows of eight qwords: row j of the result goes to put(j, row).
template <class Put>
HWY_INLINE void TurnQwords(const std::uint8_t* rows, const Put& put) {
  __m512i a[8], b[8];
  for (std::size_t i = 0; i < 8; ++i) a[i] = _mm512_load_si512(rows + 64 * i);
  for (std::size_t i = 0; i < 8; i += 2) {  // qwords of rows i, i + 1: 0, 2, 4, 6 and 1, 3, 5, 7
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 1]);
  }
  for (std::size_t i = 0; i < 8; i += 4) {  // of four rows: qwords 0 and 4, 2 and 6
    for (std::size_t h = 0; h < 2; ++h) {
      a[i + h] = _mm512_shuffle_i32x4(b[i + h], b[i + 2 + h], 0x88);
      a[i + 2 + h] = _mm512_shuffle_i32x4(b[i + h], b[i + 2 + h], 0xDD);
    }
  }
  for (std::size_t h = 0; h < 4; ++h) {
    put(h, _mm512_shuffle_i32x4(a[h], a[4 + h], 0x88));
    put(4 + h, _mm512_shuffle_i32x4(a[h], a[4 + h], 0xDD));
  }
}

// The codes of two rows of 64 elements in UpperBytes' order, one row per nibble: the second row's
// codes are the upper nibbles.
HWY_INLINE __m512i JoinedCodes(const Fp4Tables& tables, __m512i first, __m512i second) {
  const __m512i table = _mm512_load_si512(tables.code);
  const __m512i low = _mm512_permutexvar_epi8(first, table);
  const __m512i high =
      _mm512_permutexvar_epi8(second, _mm512_slli_epi16(table, 4));  // codes are below 16
  const __m512i a = _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(first, 4), _mm512_set1_epi8(8),
                                              0xF8);  // a | (b & c)
  const __m512i b =
      _mm512_ternarylogic_epi32(high, second, _mm512_set1_epi8(static_cast<char>(0x80)), 0xF8);
  return _mm512_or_si512(a, b);
}

// The codes of 64 columns of 128 rows, transposed: qword 2 l + h of bytes[i][k] has the codes of
// rows [16 k, 16 k + 16) of column 8 l + i + 32 h.
struct TurnedCodes {
  alignas(64) std::uint8_t bytes[8][8][64];
  // Calls put(column, the 64 bytes of the column).
  template <class Put>
  HWY_INLINE void ForEachColumn(const Put& put) const {
    for (std::size_t i = 0; i < 8; ++i) {
      TurnQwords(bytes[i][0], [&](std::size_t j, __m512i codes)
                                  HWY_ATTR { put(j / 2 * 8 + i + j % 2 * 32, codes); });
    }
  }
};

// The buffers of 64 columns between the steps of QuantizeFp4Columns.
template <std::size_t kRows>
struct ColumnStep {
  static constexpr std::size_t kColumns = 64;
  alignas(64) float x[kRows][kColumns];
  alignas(64) float multiplier[kColumns];
  alignas(64) std::uint16_t halves[kRows][kColumns];

  // Copies the elements (rows that lie a power of two apart displace each other from the
  // first-level cache), finds the scales and stores their bytes; prefetches the rows below.
  HWY_INLINE void FindScales(const ScaleConstants& k, const Tile& from, std::size_t c,
                             std::uint8_t* bytes) {
    const std::size_t left = from.cols - c;
    if (HWY_LIKELY(left >= kColumns)) {
      return FindScales(
          k, from, c,
          [](const float* row, std::size_t i) HWY_ATTR { return _mm512_loadu_ps(row + i); }, bytes);
    }
    const auto load = [left](const float* row, std::size_t i) HWY_ATTR {
      return _mm512_maskz_loadu_ps(i < left ? FirstLanes(left - i) : 0, row + i);
    };
    FindScales(k, from, c, load, bytes);
  }
  template <class Load>
  HWY_INLINE void FindScales(const ScaleConstants& k, const Tile& from, std::size_t c,
                             const Load& load, std::uint8_t* bytes) {
    __m512 amax0 = _mm512_setzero_ps(), amax1 = amax0, amax2 = amax0, amax3 = amax0;
    const float* row = from.data + c;
    for (std::size_t r = 0; r < kRows; ++r, row += from.stride) {
      const auto copied = [&](std::size_t i, __m512 amax) HWY_ATTR {
        const __m512 v = load(row, i);
        _mm512_store_ps(&x[r][i], v);
        _mm_prefetch(reinterpret_cast<const char*>(row + kRows * from.stride + i), _MM_HINT_T1);
        return LargerMagnitude(amax, v);
      };
      amax0 = copied(0, amax0);
      amax1 = copied(16, amax1);
      amax2 = copied(32, amax2);
      amax3 = copied(48, amax3);
    }
    const auto scales = [&](std::size_t i, __m512 amax) HWY_ATTR {
      const SixteenScales s = SixteenScalesOf(k, amax, NearestFp4::kFactor);
      _mm512_store_ps(multiplier + i, s.multiplier);
      _mm_store_si128(reinterpret_cast<__m128i*>(bytes + c + i), _mm512_cvtepi32_epi8(s.byte));
    };
    scales(0, amax0);
    scales(16, amax1);
    scales(32, amax2);
    scales(48, amax3);
  }
  // Rounds the columns to binary16; prefetches the columns at `next`, one cache line after the
  // other, meanwhile.
  HWY_INLINE void Round(const float* next, std::size_t stride) {
    const __m512 e0 = _mm512_load_ps(multiplier), e1 = _mm512_load_ps(multiplier + 16);
    const __m512 e2 = _mm512_load_ps(multiplier + 32), e3 = _mm512_load_ps(multiplier + 48);
    for (std::size_t r = 0; r < kRows; ++r, next += stride) {
      const auto round = [&](std::size_t i, __m512 e) HWY_ATTR {
        _mm_prefetch(reinterpret_cast<const char*>(next + i), _MM_HINT_T0);
        const __m512 v = _mm512_mul_ps(_mm512_load_ps(&x[r][i]), e);
        _mm256_store_si256(reinterpret_cast<__m256i*>(&halves[r][i]), NearestFp4{}.Halves(0, v));
      };
      round(0, e0);
      round(16, e1);
      round(32, e2);
      round(48, e3);
    }
  }
  // Puts the codes into `out`, transposed, 16 rows at a time. Returns `seen` with bit 6 of all
  // upper bytes.
  HWY_INLINE __m512i Put(TurnedCodes* out, std::size_t sixteen, __m512i seen) const {
    for (std::size_t r = 0; r < kRows; r += 16) {
      __m512i pairs[8];
      for (std::size_t i = 0; i < 8; ++i) {
        const __m512i first = UpperBytes(halves[r + 2 * i]);
        const __m512i second = UpperBytes(halves[r + 2 * i + 1]);
        seen = _mm512_ternarylogic_epi32(seen, first, second, 0xFE);
        pairs[i] = JoinedCodes(NearestFp4::kTables, first, second);
      }
      TurnBytes(pairs, out->bytes[0][sixteen + r / 16], sizeof(out->bytes[0]));
    }
    return seen;
  }
};

// Quantizes a unit of whole blocks kRows high into `out` (one for each 64 columns), from row 16 *
// `sixteen` on; scale bytes go to `bytes`, for a multiple of 64 columns. Returns false for elements
// that these kernels do not serve: see QuantizeFp4Blocks.
template <std::size_t kRows>
HWY_INLINE bool QuantizeFp4Columns(const ScaleConstants& k, const Tile& x, std::size_t sixteen,
                                   TurnedCodes* out, std::uint8_t* bytes) {
  using Step = ColumnStep<kRows>;
  constexpr std::size_t kColumns = Step::kColumns;
  Step steps[2];
  __m512i seen = _mm512_setzero_si512();
  const std::size_t count = DivideUp(x.cols, kColumns);
  steps[0].FindScales(k, x, 0, bytes);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + 1 < count) steps[(i + 1) % 2].FindScales(k, x, (i + 1) * kColumns, bytes);
    steps[i % 2].Round(x.data + (i + 2) * kColumns, x.stride);
    seen = steps[i % 2].Put(out + i, sixteen, seen);
  }
  return _mm512_test_epi8_mask(seen, _mm512_set1_epi8(0x40)) == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#endif  // FP4LAB_BLOCK_FP4_COLUMNS_INL_H_
