// E2M1 with AVX-512 (VBMI): 64 elements at a time, rounded to nearest by a table.
//
// An element's code is found from v = fl(x * e), carried as v * 2^-10:
//   1. The seven decision points of E2M1 lie at a significand of 1, 1.25, 1.5 or 1.75. Of the ties,
//      those at 1 and 1.25 (bit 22 clear) go down, those at 1.5 and 1.75 up. So where bit 22 is
//      clear, v is multiplied by 1 - 2^-24: a tie then lies just below its decision point, and what
//      lay above a decision point does not cross it.
//   2. Converted to binary16 toward zero, the upper byte is sign, exponent and two bits of the
//      significand. The factor 2^-10 makes the exponent of 4 to 8 the largest of three bits, so
//      bits 5 and 6 of the byte are 0 below 8; tiny values become binary16's subnormals.
//   3. The lower six bits index a table.
// What is not below 8, NaN and Inf show in bits 5 and 6. Then the generic kernel does the work
// anew.
#if defined(FP4LAB_BLOCK_FP4_AVX512_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_FP4_AVX512_INL_H_
#undef FP4LAB_BLOCK_FP4_AVX512_INL_H_
#else
#define FP4LAB_BLOCK_FP4_AVX512_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

#include "fp4lab/block/lanes-inl.h"
#include "fp4lab/block/scales-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

inline constexpr float kHalfScale = 0x1p-10f;

// ---- Scales
// --------------------------------------------------------------------------------------

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

// Scales of 16 blocks: e * 2^-10, the bytes, and the scales' values.
struct SixteenScales {
  __m512 multiplier, value;
  __m512i byte;
};

// NVFP4 where every scale is a normal E4M3 number: rounded by integers.
HWY_INLINE SixteenScales NormalNvfp4Scales(const ScaleConstants& k, __m512i product) {
  const __mmask16 odd = _mm512_test_epi32_mask(product, _mm512_set1_epi32(1 << 20));
  const __m512i least = _mm512_add_epi32(product, _mm512_set1_epi32(0x7FFFF));
  const __m512i up = _mm512_mask_add_epi32(least, odd, least, _mm512_set1_epi32(1));
  const __m512 s = _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(-0x100000)));
  const __m512i byte = _mm512_srli_epi32(_mm512_sub_epi32(up, _mm512_set1_epi32(120 << 23)), 20);
  const __m512 decode = _mm512_mul_ps(s, _mm512_set1_ps(k.tensor.decode));
  // fl(2^-10 / d) = 2^-10 fl(1 / d): nothing overflows or is subnormal (HasFp4Units).
  return {_mm512_div_ps(_mm512_set1_ps(kHalfScale), decode), s, byte};
}

HWY_INLINE SixteenScales SixteenScalesOf(const ScaleConstants& k, __m512 amax) {
  if (k.rule == ScaleRule::kNvfp4) {
    const __m512i product =
        _mm512_castps_si512(_mm512_mul_ps(amax, _mm512_set1_ps(k.tensor.per_amax)));
    constexpr int kLeast = 121 << 23, kLargest = 0x43E00000;  // 2^-6, 448
    const __mmask16 other = _mm512_cmpgt_epu32_mask(
        _mm512_sub_epi32(product, _mm512_set1_epi32(kLeast)), _mm512_set1_epi32(kLargest - kLeast));
    if (HWY_LIKELY(other == 0)) return NormalNvfp4Scales(k, product);
  }
  const BlockScales s = ScalesOf(k, VF{amax});
  return {_mm512_mul_ps(s.multiplier.raw, _mm512_set1_ps(kHalfScale)), s.value.raw, s.byte.raw};
}

// ---- Elements
// ------------------------------------------------------------------------------------

// v * 2^-10 with ties moved to their side, as binary16.
HWY_INLINE __m256i NearestHalves(__m512 v) {
  const __mmask16 even =
      _mm512_testn_epi32_mask(_mm512_castps_si512(v), _mm512_set1_epi32(1 << 22));
  const __m512 t = _mm512_mask_mul_ps(v, even, v, _mm512_set1_ps(1.0f - 0x1p-24f));
  return _mm512_cvt_roundps_ph(t, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

// The upper bytes of 64 binary16 numbers, those of the second 32 between those of the first.
HWY_INLINE __m512i UpperBytes(const std::uint16_t* halves) {
  const auto* bytes = reinterpret_cast<const char*>(halves);
  const __m512i second = _mm512_loadu_si512(bytes + 64);
  return _mm512_mask_loadu_epi8(second, 0x5555555555555555u, bytes + 1);
}

// Of each exponent from that of 1/16 on, four quarters of a binade.
alignas(64) inline constexpr std::uint8_t kMagnitudeCodes[64] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  // below 1/4
    1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7};
alignas(64) inline constexpr std::uint8_t kTwiceMagnitudes[64] = {0, 0, 0, 0, 0, 0, 0, 0,  0,  0, 0,
                                                                  0, 1, 1, 1, 1, 1, 1, 2,  2,  2, 3,
                                                                  3, 4, 4, 6, 6, 8, 8, 12, 12, 12};

struct ByteOrder {
  alignas(64) std::uint8_t from[64];
};
// Even bytes, then odd ones.
constexpr ByteOrder EvenThenOdd() {
  ByteOrder order{};
  for (int i = 0; i < 64; ++i)
    order.from[i] = static_cast<std::uint8_t>(i < 32 ? 2 * i : 2 * i - 63);
  return order;
}
// Bytes 0 of 16 32-bit lanes, then bytes 1.
constexpr ByteOrder FirstThenSecond() {
  ByteOrder order{};
  for (int i = 0; i < 32; ++i)
    order.from[i] = static_cast<std::uint8_t>(i < 16 ? 4 * i : 4 * i - 63);
  return order;
}
inline constexpr ByteOrder kEvenThenOdd = EvenThenOdd(), kFirstThenSecond = FirstThenSecond();

HWY_INLINE __mmask16 FirstLanes(std::size_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1u << count) - 1);
}

// ---- Units
// ---------------------------------------------------------------------------------------

// How far ahead of the scales memory is asked for: the hardware does not keep up with the bursts.
inline constexpr std::size_t kPrefetchAhead = 2048;  // elements

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

// The scales of `cols` elements in a row, whose first block is block b.
template <std::size_t kBlock>
HWY_INLINE void FindFp4ScalesOfRow(const ScaleConstants& k, const float* x, std::size_t cols,
                                   std::size_t b, Fp4Scales* s) {
  constexpr std::size_t kSixteen = 16 * kBlock;
  std::size_t c = 0;
  for (; c + kSixteen <= cols; c += kSixteen, b += 16) {
    for (std::size_t i = 0; i < kSixteen; i += 16) {
      _mm_prefetch(reinterpret_cast<const char*>(x + c + i + kPrefetchAhead), _MM_HINT_T0);
    }
    StoreScales(SixteenScalesOf(k, SixteenAmaxes<kBlock>(x + c)), b, s);
  }
  if (c == cols) return;
  alignas(64) float rest[kSixteen] = {};
  std::copy_n(x + c, cols - c, rest);
  StoreScales(SixteenScalesOf(k, SixteenAmaxes<kBlock>(rest)), b, s);
}

// The largest magnitudes of up to 16 columns; asks for the memory of the next unit.
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

// The scales of a unit. kBlock columns a block, 1 if blocks stand in the memory's columns.
template <std::size_t kBlock>
HWY_INLINE void FindFp4Scales(const ScaleConstants& k, const Tile& x, Fp4Scales* s) {
  if constexpr (kBlock == 1) {
    for (std::size_t c = 0; c < x.cols; c += 16) {
      StoreScales(SixteenScalesOf(k, AmaxesOfColumns(x, c)), c, s);
    }
  } else {
    alignas(64) float largest[kMaxChunk];
    for (std::size_t c = 0; c < x.cols; c += 16) {
      _mm512_store_ps(largest + c, AmaxesOfColumns(x, c));
    }
    FindFp4ScalesOfRow<kBlock>(k, largest, x.cols, 0, s);
  }
}

// One row as binary16, with zeros up to a multiple of 64.
template <std::size_t kBlock>
HWY_INLINE void HalvesOfRow(const float* x, std::size_t cols, const float* multiplier,
                            std::uint16_t* halves) {
  const auto put = [&](std::size_t c, __m512 v) HWY_ATTR {
    const __m512 e =
        kBlock == 1 ? _mm512_load_ps(multiplier + c) : _mm512_set1_ps(multiplier[c / kBlock]);
    _mm256_store_si256(reinterpret_cast<__m256i*>(halves + c), NearestHalves(_mm512_mul_ps(v, e)));
  };
  std::size_t c = 0;
  for (; c + 64 <= cols; c += 64) {
    for (std::size_t i = c; i < c + 64; i += 16) put(i, _mm512_loadu_ps(x + i));
  }
  for (; c < cols; c += 16) put(c, _mm512_maskz_loadu_ps(FirstLanes(cols - c), x + c));
  for (; c % 64 != 0; c += 16) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(halves + c), _mm256_setzero_si256());
  }
}

// Codes, in the order of the upper bytes.
HWY_INLINE __m512i CodesOf(__m512i upper) {
  const __m512i magnitude = _mm512_permutexvar_epi8(upper, _mm512_load_si512(kMagnitudeCodes));
  const __m512i sign = _mm512_srli_epi32(upper, 4);  // magnitude | (sign & 8)
  return _mm512_ternarylogic_epi32(magnitude, sign, _mm512_set1_epi8(8), 0xF8);
}

// Sinks take the upper bytes of 64 elements from column c on, of which `count` exist.
struct PackedFp4Sink {
  std::uint8_t* out;  // of column 0
  HWY_INLINE void Put(std::size_t c, std::size_t count, __m512i upper) const {
    // Bytes 0 and 1 of a 32-bit lane take those of 2 and 3 as their upper halves.
    const __m512i joined = _mm512_madd_epi16(CodesOf(upper), _mm512_set1_epi32(0x00100001));
    const __m512i order = _mm512_load_si512(kFirstThenSecond.from);
    const __m256i packed = _mm512_castsi512_si256(_mm512_permutexvar_epi8(order, joined));
    if (HWY_LIKELY(count >= 64)) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + c / 2), packed);
    } else {
      _mm256_mask_storeu_epi8(out + c / 2, 0xFFFFFFFFu >> (32 - (count + 1) / 2), packed);
    }
  }
};

// One code a byte, whole vectors.
struct ByteFp4Sink {
  std::uint8_t* out;
  HWY_INLINE void Put(std::size_t c, std::size_t /*count*/, __m512i upper) const {
    const __m512i order = _mm512_load_si512(kEvenThenOdd.from);
    _mm512_store_si512(out + c, _mm512_permutexvar_epi8(order, CodesOf(upper)));
  }
};

struct IntegerFp4Sink {
  std::uint8_t* out;
  HWY_INLINE void Put(std::size_t c, std::size_t count, __m512i upper) const {
    const __m512i twice = _mm512_permutexvar_epi8(upper, _mm512_load_si512(kTwiceMagnitudes));
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

// Columns [begin, end) of a row from `halves` into `sink`; returns `seen` with bits 5 and 6 of all
// upper bytes.
template <class Sink>
HWY_INLINE __m512i PutColumns(const std::uint16_t* halves, std::size_t begin, std::size_t end,
                              const Sink& sink, __m512i seen) {
  for (std::size_t c = begin; c < end; c += 64) {
    const __m512i upper = UpperBytes(halves + c - begin);
    seen = _mm512_or_si512(seen, upper);
    sink.Put(c, end - c, upper);
  }
  return seen;
}

// A row under scales that were found before.
template <std::size_t kBlock, class Sink>
HWY_INLINE __m512i RoundFp4Row(const float* x, std::size_t cols, const float* multiplier,
                               const Sink& sink, __m512i seen) {
  alignas(64) std::uint16_t halves[kMaxChunk + 64];
  HalvesOfRow<kBlock>(x, cols, multiplier, halves);
  return PutColumns(halves, 0, cols, sink, seen);
}

// Sixteen blocks in a row, `step` of them from x on: their scales, binary16 numbers and codes.
template <std::size_t kBlock>
struct Fp4Step {
  static constexpr std::size_t kElements = 16 * kBlock;
  static HWY_INLINE void FindScales(const ScaleConstants& k, const float* x, std::size_t step,
                                    Fp4Scales* s) {
    const float* from = x + step * kElements;
    for (std::size_t i = 0; i < kElements; i += 16) {
      _mm_prefetch(reinterpret_cast<const char*>(from + i + kPrefetchAhead), _MM_HINT_T0);
    }
    StoreScales(SixteenScalesOf(k, SixteenAmaxes<kBlock>(from)), step * 16, s);
  }
  static HWY_INLINE void Round(const float* x, std::size_t step, const Fp4Scales& s,
                               std::uint16_t* halves) {
    HalvesOfRow<kBlock>(x + step * kElements, kElements, s.multiplier + step * 16, halves);
  }
  template <class Sink>
  static HWY_INLINE __m512i Put(const std::uint16_t* halves, std::size_t step, const Sink& sink,
                                __m512i seen) {
    for (std::size_t c = 0; c < kElements; c += 64) {
      const __m512i upper = UpperBytes(halves + c);
      seen = _mm512_or_si512(seen, upper);
      sink.Put(step * kElements + c, 64, upper);
    }
    return seen;
  }
};

// What is left of a row after whole steps.
template <std::size_t kBlock, class Sink>
HWY_NOINLINE __m512i QuantizeFp4Rest(const ScaleConstants& k, const float* x, std::size_t begin,
                                     std::size_t cols, Fp4Scales* s, const Sink& sink,
                                     __m512i seen) {
  alignas(64) std::uint16_t halves[16 * kBlock];
  FindFp4ScalesOfRow<kBlock>(k, x + begin, cols - begin, begin / kBlock, s);
  HalvesOfRow<kBlock>(x + begin, cols - begin, s->multiplier + begin / kBlock, halves);
  return PutColumns(halves, begin, cols, sink, seen);
}

// A row of blocks, its scales too. Three steps are under way at once, as each waits long for its
// own: the scales of a step, the rounding of the one before, the codes of the one before that.
template <std::size_t kBlock, class Sink>
HWY_INLINE __m512i QuantizeFp4Row(const ScaleConstants& k, const float* x, std::size_t cols,
                                  Fp4Scales* s, const Sink& sink, __m512i seen) {
  using Step = Fp4Step<kBlock>;
  alignas(64) std::uint16_t halves[2][Step::kElements];
  const std::size_t steps = cols / Step::kElements;
  if (steps > 0) {
    Step::FindScales(k, x, 0, s);
    for (std::size_t i = 0; i + 1 < steps; ++i) {
      Step::FindScales(k, x, i + 1, s);
      Step::Round(x, i, *s, halves[i % 2]);
      if (i > 0) seen = Step::Put(halves[(i - 1) % 2], i - 1, sink, seen);
    }
    Step::Round(x, steps - 1, *s, halves[(steps - 1) % 2]);
    if (steps > 1) seen = Step::Put(halves[steps % 2], steps - 2, sink, seen);
    seen = Step::Put(halves[(steps - 1) % 2], steps - 1, sink, seen);
  }
  const std::size_t done = steps * Step::kElements;
  return done == cols ? seen : QuantizeFp4Rest<kBlock>(k, x, done, cols, s, sink, seen);
}

// Whether this file's arithmetic serves a plan.
HWY_INLINE bool HasFp4Units(const QuantizePlan& plan) {
  const bool element = plan.element.max == 6.0f && plan.element.mantissa_bits == 1;
  const float encode = plan.scale.tensor.encode;  // of NVFP4: e is not extreme then
  const bool scale =
      plan.scale.rule != ScaleRule::kTensor &&
      (plan.scale.rule != ScaleRule::kNvfp4 || (encode > 0x1p-90f && encode < 0x1p90f));
  const auto fits = [](std::size_t n) { return n == 16 || n == 32; };
  const bool block = fits(plan.block_cols) || (plan.block_cols == 1 && fits(plan.block_rows));
  return element && scale && block && plan.rounding == Rounding::kNearestEven;
}

// Quantizes one unit: fills `s` and calls sinks.Row(r).Put(...). False: elements that this file
// does not serve (beyond 8 after scaling, NaN, Inf) are among them, and nothing is promised.
template <std::size_t kBlock, class Sinks>
HWY_INLINE bool QuantizeFp4Blocks(const QuantizePlan& plan, const Tile& x, Fp4Scales* s,
                                  const Sinks& sinks) {
  __m512i seen = _mm512_setzero_si512();
  if (kBlock != 1 && x.rows == 1) {
    seen = QuantizeFp4Row<kBlock>(plan.scale, x.data, x.cols, s, sinks.Row(0), seen);
  } else {
    FindFp4Scales<kBlock>(plan.scale, x, s);
    for (std::size_t r = 0; r < x.rows; ++r) {
      seen = RoundFp4Row<kBlock>(x.data + r * x.stride, x.cols, s->multiplier, sinks.Row(r), seen);
    }
  }
  return _mm512_test_epi8_mask(seen, _mm512_set1_epi8(0x60)) == 0;
}

template <class Sinks>
HWY_INLINE bool QuantizeFp4Unit(const QuantizePlan& plan, const Tile& x, Fp4Scales* s,
                                const Sinks& sinks) {
  if (plan.block_cols == 1) return QuantizeFp4Blocks<1>(plan, x, s, sinks);
  return plan.block_cols == 16 ? QuantizeFp4Blocks<16>(plan, x, s, sinks)
                               : QuantizeFp4Blocks<32>(plan, x, s, sinks);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#endif  // FP4LAB_BLOCK_FP4_AVX512_INL_H_
