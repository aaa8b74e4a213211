// Codes of E4M3 and E5M2 elements under the factors of any dialect's block stage, by the element
// kernels of block/: 64 at a time, with AVX-512.
#if defined(FP4LAB_QUANTIZE_FP8_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_QUANTIZE_FP8_CODES_INL_H_
#undef FP4LAB_QUANTIZE_FP8_CODES_INL_H_
#else
#define FP4LAB_QUANTIZE_FP8_CODES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/divide_up.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/fp8_units-inl.h"
#include "fp4lab/quantize/kernels/element_stage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

#if HWY_TARGET <= HWY_AVX3_DL

// The scalings and roundings that FastFp8Codes serves.
template <ElementScaling kScaling, ElementRounding kRounding>
constexpr bool HasFastFp8Codes() {
  return kScaling == ElementScaling::kMultiply && kRounding == ElementRounding::kNearestEven;
}

// Factors times `power`, a power of two, in whole vectors with zeros at the end. Returns false if a
// product is NaN or inexact.
HWY_INLINE bool ScaledExactly(const float* factor, std::size_t count, float power, float* out) {
  const DF d;
  auto bad = hn::Lt(hn::Zero(d), hn::Zero(d));
  for (std::size_t j = 0; j < count; j += hn::Lanes(d)) {
    const VF e =
        j + hn::Lanes(d) <= count ? hn::LoadU(d, factor + j) : LoadPart(factor + j, count - j);
    const VF scaled = hn::Mul(e, hn::Set(d, power));
    bad = hn::Or(bad, hn::Not(hn::Eq(hn::Mul(scaled, hn::Set(d, 1.0f / power)), e)));
    hn::Store(scaled, d, out + j);
  }
  return hn::AllFalse(d, bad);
}

// The codes of a row in blocks of 32 columns. Returns false, with undefined codes, if an element is
// too large, NaN or Inf.
template <class Elements>
HWY_INLINE bool NearestFp8Codes(const float* x, const float* multiplier, std::size_t cols,
                                std::uint8_t* codes) {
  constexpr std::size_t kBlock = 32;
  alignas(64) std::uint16_t halves[kMaxChunk];
  const std::size_t whole = cols / 64 * 64;
  for (std::size_t c = 0; c < whole; c += 64) {
    Fp8Halves<Elements, kBlock>(x, c, multiplier, halves + c);
  }
  __m512i seen = _mm512_setzero_si512();
  for (std::size_t c = 0; c < whole; c += 64) {
    seen = PutFp8<Elements, kBlock>(x, c, multiplier, halves + c, codes, seen);
  }
  if (whole < cols) {
    alignas(64) float rest[64] = {};
    alignas(64) std::uint8_t rest_codes[64];
    std::copy(x + whole, x + cols, rest);
    Fp8Halves<Elements, kBlock>(rest, 0, multiplier + whole / kBlock, halves);
    seen = PutFp8<Elements, kBlock>(rest, 0, multiplier + whole / kBlock, halves, rest_codes, seen);
    std::copy_n(rest_codes, cols - whole, codes + whole);
  }
  return Elements::Serves(seen);
}

// CodesOfRow for E4M3 and E5M2 in blocks of 32. Returns false if CodesOfRow must compute the row.
HWY_INLINE bool FastFp8Codes(const ElementRow& row, const float* x, const ByBlock& blocks,
                             std::size_t cols, std::uint8_t* codes) {
  const bool is_e4m3 = row.element.max == 448.0f, is_e5m2 = row.element.max == 57344.0f;
  const bool keeps_signs = std::signbit(row.zero) && !row.never_negative_zero;
  if ((!is_e4m3 && !is_e5m2) || !keeps_signs || blocks.width != 32 || cols > kMaxChunk) {
    return false;
  }
  alignas(64) float multiplier[kMaxChunk / 32 + 16];
  const float power = is_e4m3 ? E4m3Elements::kFactor : E5m2Elements::kFactor;
  if (!ScaledExactly(blocks.factor, DivideUp(cols, 32), power, multiplier)) return false;
  return is_e4m3 ? NearestFp8Codes<E4m3Elements>(x, multiplier, cols, codes)
                 : NearestFp8Codes<E5m2Elements>(x, multiplier, cols, codes);
}

#else

template <ElementScaling kScaling, ElementRounding kRounding>
constexpr bool HasFastFp8Codes() {
  return false;
}
HWY_INLINE bool FastFp8Codes(const ElementRow&, const float*, const ByBlock&, std::size_t,
                             std::uint8_t*) {
  return false;
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_FP8_CODES_INL_H_
