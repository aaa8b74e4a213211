// E2M1 elements with AVX-512 (VBMI): 64 at a time, their codes by a table.
//
// Rounding to nearest: an element's code is found from v = fl(x * e), carried as v * 2^-10:
//   1. The seven decision points of E2M1 lie at a significand of 1, 1.25, 1.5 or 1.75. Ties at 1
//      and 1.25 (bit 22 clear) go down, ties at 1.5 and 1.75 up. So where bit 22 is clear, v is
//      multiplied by 1 - 2^-24: a tie then lies just below its decision point, and no number above
//      a decision point crosses it.
//   2. Converted to binary16 toward zero, the upper byte is sign, exponent and two bits of the
//      significand. The factor 2^-10 gives 4 to 8 the exponent 7; tiny values become binary16's
//      subnormals.
//   3. The lower six bits index a table.
// Elements of 2^11 or more, NaN and Inf set bit 6 of the upper byte; the generic kernel then
// quantizes the unit again.
#if defined(FP4LAB_BLOCK_FP4_ELEMENTS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_FP4_ELEMENTS_INL_H_
#undef FP4LAB_BLOCK_FP4_ELEMENTS_INL_H_
#else
#define FP4LAB_BLOCK_FP4_ELEMENTS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#if HWY_TARGET <= HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// Tables indexed by four exponent bits and two significand bits of a binary16 number: the code of
// the magnitude, and twice its value.
struct Fp4Tables {
  alignas(64) std::uint8_t code[64];
  alignas(64) std::uint8_t twice[64];
};
constexpr Fp4Tables WithTwice(Fp4Tables t) {
  constexpr std::uint8_t kTwice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  for (int i = 0; i < 64; ++i) {
    if (i >= 32) t.code[i] = 7;  // 8 and above
    t.twice[i] = kTwice[t.code[i]];
  }
  return t;
}

// The upper bytes of 64 binary16 numbers; the bytes of the second 32 numbers lie between those of
// the first 32.
HWY_INLINE __m512i UpperBytes(const std::uint16_t* halves) {
  const auto* bytes = reinterpret_cast<const char*>(halves);
  const __m512i second = _mm512_loadu_si512(bytes + 64);
  return _mm512_mask_loadu_epi8(second, 0x5555555555555555u, bytes + 1);
}

// The base of rounders whose upper bytes are those of the binary16 numbers. Bit 6 of `seen` tells
// of elements that this file does not serve.
struct PlainHalves {
  static HWY_INLINE __m512i Upper(std::size_t /*c*/, const std::uint16_t* halves, __m512i* seen) {
    const __m512i upper = UpperBytes(halves);
    *seen = _mm512_or_si512(*seen, upper);
    return upper;
  }
};

// Rounds to nearest, ties to even.
struct NearestFp4 : PlainHalves {
  static constexpr float kFactor = 0x1p-10f;
  static constexpr Fp4Tables kTables =
      WithTwice({.code = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  // < 1/4
                          1, 1, 1, 1, 1, 1, 2, 2,              // < 1
                          2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7},
                 .twice = {}});
  // v = fl(x * e) * kFactor as binary16, with ties moved to the side they round to.
  HWY_INLINE __m256i Halves(std::size_t /*c*/, __m512 v) const {
    const __mmask16 even =
        _mm512_testn_epi32_mask(_mm512_castps_si512(v), _mm512_set1_epi32(1 << 22));
    const __m512 t = _mm512_mask_mul_ps(v, even, v, _mm512_set1_ps(1.0f - 0x1p-24f));
    return _mm512_cvt_roundps_ph(t, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  }
};

// Rounds stochastically. v = 2 fl(x * e), so that bit 30 tells whether the element is 1 or more.
// Below 1, 2 is added to v, cut to 24 bits; the step between elements is then bit 22, as above 1,
// and 16 random bits below carry into it (lanes-inl.h: CutAfterAdding). The exponent is then
// lowered by 11, and by 4 more below 1, where the table has separate entries.
struct StochasticFp4 : PlainHalves {
  static constexpr float kFactor = 2.0f;
  static constexpr Fp4Tables kTables =
      WithTwice({.code = {0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2,  // 2 + v
                          0, 0, 0, 0, 0, 0, 0, 0,              //
                          2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7},
                 .twice = {}});
  static constexpr int kDown = 11 << 23, kDownBelowOne = 4 << 23;
  // The random bits at their place, with -kDown added in the upper bits.
  static HWY_INLINE __m512i Placed(__m512i bits, int mask = 0x3FFFC0) {
    return _mm512_ternarylogic_epi32(bits, _mm512_set1_epi32(mask), _mm512_set1_epi32(-kDown),
                                     0xEA);  // (a & b) | c
  }
  static HWY_INLINE __mmask16 Below(__m512i bits) {
    return _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(1 << 30));
  }
  // 2 with the sign of v, or 0.
  static HWY_INLINE __m512 OffsetOf(__m512i bits, __mmask16 below) {
    const __m512i two = _mm512_castps_si512(_mm512_set1_ps(2.0f));
    const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000));
    return _mm512_castsi512_ps(_mm512_maskz_ternarylogic_epi32(below, bits, two, sign, 0xEC));
  }
  static HWY_INLINE __m256i Finish(__m512i carried, __mmask16 below) {
    const __m512i t =
        _mm512_mask_sub_epi32(carried, below, carried, _mm512_set1_epi32(kDownBelowOne));
    return _mm512_cvt_roundps_ph(_mm512_castsi512_ps(t), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  }
  static HWY_INLINE __m256i Halves(__m512 v, __m512i placed) {
    const __m512i bits = _mm512_castps_si512(v);
    const __mmask16 below = Below(bits);
    const __m512 sum =
        _mm512_add_round_ps(v, OffsetOf(bits, below), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    return Finish(_mm512_add_epi32(_mm512_castps_si512(sum), placed), below);
  }
};
// Stochastic rounding with 16 random bits per element, two memory rows per word.
struct StochasticFp4Column : StochasticFp4 {
  const std::uint32_t* words = nullptr;  // of column 0
  int rotation = 0;                      // to the left; moves the field's top bit to bit 21
  HWY_INLINE __m256i Halves(std::size_t c, __m512 v) const {
    const __m512i word =
        _mm512_rolv_epi32(_mm512_loadu_si512(words + c), _mm512_set1_epi32(rotation));
    return StochasticFp4::Halves(v, Placed(word, 0x3FFFC0));
  }
};
// Stochastic rounding with 32 random bits per element. Below 1 the fraction of a step is compared
// with the random word in 32 bits.
struct StochasticFp4Whole : StochasticFp4 {
  const std::uint32_t* words;  // of column 0
  HWY_INLINE __m256i Halves(std::size_t c, __m512 v) const {
    const __m512i random = _mm512_loadu_si512(words + c), bits = _mm512_castps_si512(v);
    const __mmask16 below = Below(bits);
    const __m512 offset = OffsetOf(bits, below);
    const __m512i sum =
        _mm512_castps_si512(_mm512_add_round_ps(v, offset, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
    const __m512i cut = _mm512_and_si512(sum, _mm512_set1_epi32(-0x400000));
    const __m512 whole = _mm512_sub_ps(_mm512_castsi512_ps(cut), offset);
    const __m512 part = _mm512_abs_ps(_mm512_sub_ps(v, whole));  // below 1 in steps of a half
    const __m512i fraction =
        _mm512_maskz_cvttps_epu32(below, _mm512_mul_ps(part, _mm512_set1_ps(0x1p32f)));
    const __mmask16 carry =
        _mm512_mask_cmplt_epu32_mask(below, _mm512_add_epi32(fraction, random), fraction);
    const __m512i added = _mm512_maskz_mov_epi32(carry, _mm512_set1_epi32(0x400000));
    const __m512i placed = _mm512_mask_srli_epi32(added, _knot_mask16(below), random, 10);
    const __m512i base = _mm512_mask_mov_epi32(sum, below, cut);
    return Finish(_mm512_add_epi32(_mm512_add_epi32(base, placed), _mm512_set1_epi32(-kDown)),
                  below);
  }
};

struct ByteOrder {
  alignas(64) std::uint8_t from[64];
};
// Moves even bytes first, then odd bytes.
constexpr ByteOrder EvenThenOdd() {
  ByteOrder order{};
  for (int i = 0; i < 64; ++i)
    order.from[i] = static_cast<std::uint8_t>(i < 32 ? 2 * i : 2 * i - 63);
  return order;
}
// Moves bytes 0 of 16 32-bit lanes first, then bytes 1.
constexpr ByteOrder FirstThenSecond() {
  ByteOrder order{};
  for (int i = 0; i < 32; ++i)
    order.from[i] = static_cast<std::uint8_t>(i < 16 ? 4 * i : 4 * i - 63);
  return order;
}
inline constexpr ByteOrder kEvenThenOdd = EvenThenOdd(), kFirstThenSecond = FirstThenSecond();

// The codes, in the order of the upper bytes.
HWY_INLINE __m512i CodesOf(const std::uint8_t* table, __m512i upper) {
  const __m512i magnitude = _mm512_permutexvar_epi8(upper, _mm512_load_si512(table));
  const __m512i sign = _mm512_srli_epi32(upper, 4);  // magnitude | (sign & 8)
  return _mm512_ternarylogic_epi32(magnitude, sign, _mm512_set1_epi8(8), 0xF8);
}

// Sinks take the upper bytes of 64 elements from column c on, of which `count` exist.
struct PackedFp4Sink {
  std::uint8_t* out;  // of column 0
  HWY_INLINE void Put(const Fp4Tables& tables, std::size_t c, std::size_t count,
                      __m512i upper) const {
    // Bytes 2 and 3 of a 32-bit lane become the upper nibbles of bytes 0 and 1.
    const __m512i joined =
        _mm512_madd_epi16(CodesOf(tables.code, upper), _mm512_set1_epi32(0x00100001));
    const __m512i order = _mm512_load_si512(kFirstThenSecond.from);
    const __m256i packed = _mm512_castsi512_si256(_mm512_permutexvar_epi8(order, joined));
    if (HWY_LIKELY(count >= 64)) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + c / 2), packed);
    } else {
      _mm256_mask_storeu_epi8(out + c / 2, 0xFFFFFFFFu >> (32 - (count + 1) / 2), packed);
    }
  }
};

// Stores one code per byte, whole vectors in the order of the upper bytes.
struct ByteFp4Sink {
  std::uint8_t* out;
  HWY_INLINE void Put(const Fp4Tables& tables, std::size_t c, std::size_t /*count*/,
                      __m512i upper) const {
    _mm512_store_si512(out + c, CodesOf(tables.code, upper));
  }
};

struct IntegerFp4Sink {
  std::uint8_t* out;
  HWY_INLINE void Put(const Fp4Tables& tables, std::size_t c, std::size_t count,
                      __m512i upper) const {
    const __m512i twice = _mm512_permutexvar_epi8(upper, _mm512_load_si512(tables.twice));
    const __m512i zero = _mm512_set1_epi8(12);
    const __m512i integers =
        _mm512_mask_sub_epi8(_mm512_add_epi8(zero, twice), _mm512_movepi8_mask(upper), zero, twice);
    const __m512i order = _mm512_load_si512(kEvenThenOdd.from);
    const __m512i sorted = _mm512_permutexvar_epi8(order, integers);
    if (HWY_LIKELY(count >= 64)) {
      _mm512_storeu_si512(out + c, sorted);
    } else {
      _mm512_mask_storeu_epi8(out + c, (std::uint64_t{1} << count) - 1, sorted);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#endif  // FP4LAB_BLOCK_FP4_ELEMENTS_INL_H_
