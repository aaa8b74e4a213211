// Four over six: the error of a block under one of its two candidate scales. Host and device share
// these functions.
#pragma once

#include <bit>
#include <cstddef>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/stages.h"

namespace fp4lab {

inline constexpr std::size_t kMostAdaptiveLines = 32;  // largest block_rows

// What the error of element x is made from; product = value * s, exact, in FP16 as well.
constexpr float AdaptiveDifference(const Dialect& d, const TensorScale& l, float product, float x) {
  if (d.adaptive_fp16) return product - x * l.encode;
  if (d.adaptive_decode) return product * l.decode - x;
  return product * l.amax / TensorScaleConstant(d) - x;
}

// The number that v, of this code, is rounded to before it is stored: kNearestEvenOpen may go
// beyond the numbers that have codes, and has NaN for NaN and Inf (0 * Inf in fouroversix's masks).
constexpr float RoundedElement(const Dialect& d, float v, std::uint32_t code) {
  if (d.rounding == ElementRounding::kNearestEvenOpen) {
    if (!(Magnitude(v) <= kFloatMax)) return std::bit_cast<float>(0x7FC00000u);
    if (RoundsBeyondLargest(d.element, v)) {
      return v < 0.0f ? -NextAfterLargest(d.element) : NextAfterLargest(d.element);
    }
  }
  return Decode(d.element, code);
}

// The error of one element, as four over six counts it (TE quantize_4over6_nvfp4.cuh; FlashInfer
// quantization_utils.cuh).
constexpr float AdaptiveElementError(const Dialect& d, const BlockNumbers& n, const TensorScale& l,
                                     float x) {
  const float v = Scaled(d, x, n.factor, l);
  const float value = RoundedElement(d, v, CodeOf(d, x, n.scale, v, 0));
  const float product = value * n.scale;
  return WithFormula<float>(d.adaptive, ElementErrorOf{AdaptiveDifference(d, l, product, x)});
}

// The error of two parts together: their sum, or the larger one for kAbsMax; NaN if one is NaN.
constexpr float CombinedError(const Dialect& d, float a, float b) {
  if (b != b) return b;
  return WithFormula<float>(d.adaptive, CombinedErrorOf{a, b});
}

// The error of a block from those of its lines, in a tree: line i and i + 8, then 4, 2, 1. `lines`
// has kMostAdaptiveLines entries, 0 where the block has no line; it is overwritten.
constexpr float CombinedLines(const Dialect& d, float* lines) {
  for (std::size_t half = std::bit_ceil(static_cast<unsigned>(d.block_rows)) / 2; half > 0;
       half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lines[i] = CombinedError(d, lines[i], lines[i + half]);
  }
  return lines[0];
}

// The error of a block of rows x cols elements; at(r, c) returns an element. The errors of a line
// are combined in column order, then the lines by CombinedLines. rows <= d.block_rows <=
// kMostAdaptiveLines.
template <class At>
constexpr float AdaptiveBlockError(const Dialect& d, const BlockNumbers& n, const TensorScale& l,
                                   std::size_t rows, std::size_t cols, At&& at) {
  float lines[kMostAdaptiveLines] = {};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      lines[r] = CombinedError(d, lines[r], AdaptiveElementError(d, n, l, at(r, c)));
    }
  }
  return CombinedLines(d, lines);
}

}  // namespace fp4lab
