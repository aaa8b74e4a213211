// Blocks of E2M1 rounded to nearest, in registers: two elements at a time, without arithmetic on
// them (e2m1_pairs.cuh).
#pragma once

#include "fp4lab/cuda/quantize/values/block_registers.cuh"
#include "fp4lab/cuda/quantize/values/e2m1_pairs.cuh"

namespace fp4lab::cuda {

// Whether E2m1Pairs serves a block without NaN: BF16 holds the values, with the elements' signs.
__device__ inline bool HasPairs(const Dialect& d, const BlockNumbers& n) {
  return n.factor >= 0x1p-100f && n.factor <= 0x1p100f && n.scale >= 0x1p-100f &&
         n.scale <= 0x1p100f && d.scale_encoding != ScaleEncoding::kBinary32 &&
         d.keeps_negative_zero && !d.never_negative_zero;
}

// The sum of errors, or the largest one, that ErrorOfWords has for a block whose magnitudes are
// rounded to `rounded` and whose amax `constant` divides by its constant. No element is NaN.
template <int kWords>
__device__ float ErrorOfPairs(const Dialect& d, const BlockNumbers& n, const TensorScale& l,
                              const Divisor& constant, const std::uint32_t (&words)[kWords],
                              const std::uint32_t (&rounded)[kWords]) {
  float error = 0.0f;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {  // an element and its value have one sign
    const std::uint32_t products = AsWord(__hmul2(AsPair(rounded[i]), PairOf(n.scale)));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float value = constant.QuotientOfMagnitude(HalfOf(products, half) * l.amax);
      const float difference = value - fabsf(HalfOf(words[i], half));
      const float of_element = WithFormula<float>(d.adaptive, ElementErrorOf{difference});
      error = WithFormula<float>(d.adaptive, CombinedErrorOf{error, of_element});
    }
  }
  return error;
}

// ChosenOfWords, which also rounds the elements: their values before they are multiplied by the
// block's scale. False, and nothing done, for blocks that need more arithmetic.
template <class Pairs, int kBlock, bool kAdaptive>
__device__ bool RoundsPairs(const Dialect& d, const TensorScale& l,
                            const std::uint32_t (&words)[kBlock / 2], BlockNumbers* chosen,
                            std::uint32_t (&rounded)[kBlock / 2]) {
  if (HasNan(words)) return false;
  const float b = AmaxOfWords(words), t = ScaleBefore(d, b, l);
  const Divisor constant(TensorScaleConstant(d), l.amax >= 0x1p-50f ? l.amax * 0x1p12f : INFINITY);
  if (kAdaptive && (d.adaptive_fp16 || d.adaptive_decode || !constant.CorrectsOnce())) return false;
  float least = 0.0f;
#pragma unroll 1
  for (int candidate = 0; candidate < (kAdaptive ? 2 : 1); ++candidate) {
    const BlockNumbers n = NumbersWithoutByte(d, b, candidate == 0 ? t : t * 1.5f, l);
    if (!HasPairs(d, n)) return false;
    const Pairs pairs(n.factor);
    std::uint32_t own[kBlock / 2];
#pragma unroll
    for (int i = 0; i < kBlock / 2; ++i) {
      own[i] = AsWord(pairs.Rounded(AsPair(words[i] & 0x7FFF7FFFu)));
    }
    float error = 0.0f;
    if constexpr (kAdaptive) error = ErrorOfPairs(d, n, l, constant, words, own);
    if (candidate == 0 || error < least) {
      *chosen = n;
      least = error;
#pragma unroll
      for (int i = 0; i < kBlock / 2; ++i) rounded[i] = own[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) rounded[i] |= words[i] & 0x80008000u;
  return true;
}

// RoundsPairs for any block, out of line: the rare case would need registers.
template <class Values, int kBlock, bool kAdaptive>
__device__ __noinline__ void RoundAnyWords(const Dialect& d, TensorScale l,
                                           const std::uint32_t (&words)[kBlock / 2],
                                           BlockNumbers* chosen,
                                           std::uint32_t (&rounded)[kBlock / 2]) {
  *chosen = ChosenOfWords<Values, kBlock, kAdaptive, false>(d, l, words);
  const Values values(d, *chosen);
#pragma unroll 1
  for (int i = 0; i < kBlock / 2; ++i) {
    rounded[i] =
        Bf16Pair(values.Of(HalfOf(words[i], 0), 0, 0), values.Of(HalfOf(words[i], 1), 0, 0));
  }
}

// Two values of RoundWords times the block's scale. BF16 holds a scale of a few bits.
__device__ inline std::uint32_t TimesScale(const Dialect& d, std::uint32_t rounded, float scale) {
  if (d.scale_encoding != ScaleEncoding::kBinary32) {
    return AsWord(__hmul2(AsPair(rounded), PairOf(scale)));
  }
  return Bf16Pair(HalfOf(rounded, 0) * scale, HalfOf(rounded, 1) * scale);
}

// Rounds the elements of a block: their values before they are multiplied by the block's scale.
// d.rounding must be kRounding, kNearestEven or kTiesAway. `argument`: d as an argument of the
// kernel, which has an address without a copy.
template <ElementRounding kRounding, bool kDivides, int kBlock, bool kAdaptive>
__device__ BlockNumbers RoundWords(const Dialect& d, const Dialect& argument, const TensorScale& l,
                                   const std::uint32_t (&words)[kBlock / 2],
                                   std::uint32_t (&rounded)[kBlock / 2]) {
  using Values = ElementValues<FormatId::kE2M1, kRounding, kDivides>;
  using Pairs = E2m1Pairs<kRounding, kDivides>;
  BlockNumbers chosen;
  if (RoundsPairs<Pairs, kBlock, kAdaptive>(d, l, words, &chosen, rounded)) return chosen;
  // Copies, because arguments of a call lie in memory.
  std::uint32_t from[kBlock / 2], to[kBlock / 2];
  BlockNumbers numbers;
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) from[i] = words[i];
  RoundAnyWords<Values, kBlock, kAdaptive>(argument, l, from, &numbers, to);
#pragma unroll
  for (int i = 0; i < kBlock / 2; ++i) rounded[i] = to[i];
  return numbers;
}

}  // namespace fp4lab::cuda
