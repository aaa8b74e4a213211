// Stochastic rounding of FP4 rows with AVX-512 (VBMI): random bits are added to binary16 numbers.
//
// v = fl(x * e) is carried as v * 2^-14 and converted to binary16 toward zero. 1 becomes the
// smallest normal number, so that bits 9 and up of the magnitude are E2M1's code, for numbers below
// 1 too. The nine bits below the code are the top of the discarded part. The nine upper random bits
// and 1 are added. If the low nine bits of the sum are then zero, once in 512 elements, the
// remaining bits of both decide whether the sum carries; else the 1 did not change the code.
#if defined(FP4LAB_BLOCK_FP4_RANDOM_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_FP4_RANDOM_INL_H_
#undef FP4LAB_BLOCK_FP4_RANDOM_INL_H_
#else
#define FP4LAB_BLOCK_FP4_RANDOM_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/fp4_elements-inl.h"
#include "fp4lab/block/kernels/random-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// The random bits of one row of a span of units.
class RowBits {
 public:
  // Makes the random bits of `count` elements from `first` on.
  template <int kBits>
  HWY_INLINE void Fill(const RandomStream& stream, std::uint64_t first, std::size_t count) {
    constexpr std::size_t kInBlock = 128 / kBits;
    const std::uint64_t block = first / kInBlock;
    skipped_ = static_cast<std::size_t>(first % kInBlock);
    const std::size_t blocks = DivideUp(skipped_ + count, kInBlock);
    if constexpr (kBits < 32) {
      FillBlocks(stream, block, blocks, fields_);
      return;
    }
    if (!ShareUpperWord(block, blocks + kBlocksAtOnce)) return FillPlainly(stream, block, blocks);
    const V64 order = hn::Iota(D64(), 0);
    ForEachPairs(stream, block, blocks, order, [&](std::size_t i, const PhiloxPairs& p) HWY_ATTR {
      _mm512_store_si512(words_[i / 8][0], p.w01.raw);
      _mm512_store_si512(words_[i / 8][1], p.w23.raw);
      // The upper halves of words 0, 2, 1, 3 of each block, then sorted into order.
      const __m512i upper = _mm512_ternarylogic_epi32(_mm512_set1_epi32(-0x10000), p.w23.raw,
                                                      _mm512_srli_epi32(p.w01.raw, 16), 0xCA);
      const __m512i sorted = _mm512_set4_epi32(0x0F0E0B0A, 0x0D0C0908, 0x07060302, 0x05040100);
      _mm512_store_si512(fields_ + 4 * i, _mm512_shuffle_epi8(upper, sorted));
    });
  }
  // The 16 bits, or the upper 16 of 32, of 32 elements from i on.
  HWY_INLINE __m512i Sixteen(std::size_t i) const {
    return _mm512_loadu_si512(fields_ + skipped_ + i);
  }
  std::uint32_t Bits16(std::size_t i) const { return fields_[skipped_ + i]; }
  std::uint32_t Bits32(std::size_t i) const {
    const std::size_t block = (skipped_ + i) / 4, word = (skipped_ + i) % 4;
    return words_[block / 8][word / 2][block % 8 * 2 + word % 2];
  }

 private:
  HWY_NOINLINE void FillPlainly(const RandomStream& stream, std::uint64_t first,
                                std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < 4; ++k) {
        const std::uint32_t word = stream.Block(first + i)[k];
        words_[i / 8][k / 2][i % 8 * 2 + k % 2] = word;
        fields_[4 * i + k] = static_cast<std::uint16_t>(word >> 16);
      }
    }
  }

  std::size_t skipped_ = 0;  // elements before the row's first
  // fields_: fields of 16 bits, or the upper halves of words. words_: the words, 8 blocks at a
  // time; words 0 and 1 first, then 2 and 3.
  alignas(64) std::uint16_t fields_[kMaxSpanBytes / 2 + 512];
  alignas(64) std::uint32_t words_[kMaxSpanBytes / 128 + 8][2][16];
};

template <int kBits>
struct StochasticFp4Row {
  static constexpr float kFactor = 0x1p-14f;
  static constexpr Fp4Tables kTables =
      WithTwice({.code = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7,  //
                          7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7},
                 .twice = {}});
  const RowBits* random;
  const float *x, *multiplier;  // of column 0
  std::size_t cols, block;

  HWY_INLINE __m256i Halves(std::size_t /*c*/, __m512 v) const {
    return _mm512_cvt_roundps_ph(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  }
  // The upper bytes of 64 numbers from column c on after the random bits carried.
  HWY_INLINE __m512i Upper(std::size_t c, const std::uint16_t* halves, __m512i* seen) const {
    const __m512i first = _mm512_load_si512(halves), second = _mm512_load_si512(halves + 32);
    const __m512i one = _mm512_set1_epi16(1), rest = _mm512_set1_epi16(0x1FF);
    __m512i low =
        _mm512_add_epi16(_mm512_add_epi16(first, one), _mm512_srli_epi16(random->Sixteen(c), 7));
    __m512i high = _mm512_add_epi16(_mm512_add_epi16(second, one),
                                    _mm512_srli_epi16(random->Sixteen(c + 32), 7));
    const __mmask32 open = _mm512_testn_epi16_mask(low, rest);
    const __mmask32 open_high = _mm512_testn_epi16_mask(high, rest);
    if (HWY_UNLIKELY(!_kortestz_mask32_u8(open, open_high))) {
      low = Decided(c, low, open);
      high = Decided(c + 32, high, open_high);
    }
    // Bit 6 is checked before and after the addition, because a NaN may have carried into its sign.
    const __m512i before =
        _mm512_ternarylogic_epi32(first, second, _mm512_set1_epi16(0x4000), 0xA8);  // (a | b) & c
    const __m512i upper =
        _mm512_ternarylogic_epi32(_mm512_set1_epi16(-0x100), high, _mm512_srli_epi16(low, 8), 0xCA);
    *seen = _mm512_ternarylogic_epi32(*seen, before, upper, 0xFE);
    return upper;
  }

 private:
  // Subtracts the 1 again from those open elements, from column c on, that do not carry.
  HWY_NOINLINE __m512i Decided(std::size_t c, __m512i sums, __mmask32 open) const {
    __mmask32 back = 0;
    for (std::uint32_t left = open; left != 0; left &= left - 1) {
      const int i = std::countr_zero(left);
      const std::size_t at = c + static_cast<std::size_t>(i);
      if (at < cols && !Carries(at)) back |= 1u << i;
    }
    return _mm512_mask_sub_epi16(sums, back, sums, _mm512_set1_epi16(1));
  }
  // Whether an element carries, by the definition: the discarded part, cut to kBits bits (above 1
  // and with 32 bits: to the 22 bits that exist), plus the random bits reach a step.
  bool Carries(std::size_t at) const {
    const float v = std::fabs(x[at] * multiplier[at / block]);
    const auto bits = std::bit_cast<std::uint32_t>(v);
    if (v >= kFactor) {
      return kBits == 16 ? (bits >> 6 & 0xFFFFu) + random->Bits16(at) >= 0x10000u
                         : (bits & 0x3FFFFFu) + (random->Bits32(at) >> 10) >= 0x400000u;
    }
    const auto steps = static_cast<std::uint64_t>(static_cast<double>(v) * 0x1p47);  // 2^-32 of one
    const std::uint64_t part = steps & 0xFFFFFFFFu;
    return kBits == 16 ? (part >> 16) + random->Bits16(at) >= 0x10000u
                       : part + random->Bits32(at) >= std::uint64_t{1} << 32;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#endif  // FP4LAB_BLOCK_FP4_RANDOM_INL_H_
