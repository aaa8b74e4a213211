// The scalar definition of block quantization, to be read beside the equations of quantize.h and
// replay.h.
#include <algorithm>
#include <cmath>

#include "fp4lab/block/layout.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/block/replay.h"
#include "fp4lab/block/scale_rules.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/formats/stochastic32.h"

namespace fp4lab::reference {
namespace {

float Amax(MatrixView<const float> x) {
  float amax = 0.0f;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const float magnitude = std::fabs(x(r, c));
      if (magnitude > amax) amax = magnitude;  // false for NaN
    }
  }
  return amax;
}

void StoreCode(QuantizedMatrix* q, std::size_t r, std::size_t c, std::uint32_t code) {
  const CodeLayout layout(q->format, q->cols);
  std::uint8_t& byte = q->codes[layout.Byte(r, c)];
  byte = static_cast<std::uint8_t>(byte | code << layout.Shift(c));
}

std::uint32_t LoadCode(const QuantizedMatrix& q, std::size_t r, std::size_t c) {
  const CodeLayout layout(q.format, q.cols);
  return (q.codes[layout.Byte(r, c)] >> layout.Shift(c)) & layout.mask;
}

// out(r, c) = value of the code * factor(scale byte of its block).
template <class Factor>
void Decoded(const QuantizedMatrix& q, MatrixView<float> out, Factor factor) {
  Expects(out.rows == q.rows && out.cols == q.cols, "out has the shape of q");
  const ScaleLayout scales(q.format, q.rows, q.cols);
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t c = 0; c < q.cols; ++c) {
      const std::uint8_t byte = q.scales.empty() ? std::uint8_t{0} : q.scales[scales.Index(r, c)];
      out(r, c) = Decode(q.format.element, LoadCode(q, r, c)) * factor(byte);
    }
  }
}

// code_of(r, c, v): the code of element (r, c), whose scaled value is v.
template <class CodeOf>
QuantizedMatrix QuantizeWith(MatrixView<const float> x, QuantizeOptions options, CodeOf code_of) {
  if (!options.amax) options.amax = Amax(x);
  QuantizedMatrix q = EmptyQuantizedMatrix(x.rows, x.cols, options);
  const TensorScale tensor = TensorScaleOf(q.format, q.amax);
  const ScaleLayout scales(q.format, x.rows, x.cols);
  for (std::size_t i = 0; i < scales.rows; ++i) {
    for (std::size_t j = 0; j < scales.cols; ++j) {
      const std::size_t r0 = i * scales.block_rows, c0 = j * scales.block_cols;
      const std::size_t r1 = std::min(r0 + scales.block_rows, x.rows);
      const std::size_t c1 = std::min(c0 + scales.block_cols, x.cols);
      const float amax = Amax(x.Block(r0, c0, r1 - r0, c1 - c0));
      const std::uint8_t byte = ScaleByte(q.format, amax, tensor);
      if (!q.scales.empty()) q.scales[i * scales.cols + j] = byte;
      const float e = Multiplier(q.format, byte, tensor);
      for (std::size_t r = r0; r < r1; ++r) {
        for (std::size_t c = c0; c < c1; ++c) StoreCode(&q, r, c, code_of(r, c, x(r, c) * e));
      }
    }
  }
  return q;
}

}  // namespace

float TensorAmax(MatrixView<const float> x) { return Amax(x); }

QuantizedMatrix Quantize(MatrixView<const float> x, const QuantizeOptions& options) {
  return QuantizeWith(x, options, [&](std::size_t r, std::size_t c, float v) {
    const FormatId element = options.format.element;
    if (options.rounding != Rounding::kStochastic) return Encode(element, v, options.rounding);
    const std::uint64_t i = r * x.cols + c;
    const RandomStream& random = options.random;
    if (options.random_bits == 32) {
      return EncodeStochastic32(FormatOf(element), v, random.Bits32(i));
    }
    const std::uint32_t random16 =
        options.random_bits == 8 ? random.Bits8(i) << 8 : random.Bits16(i);
    return Encode(element, v, Rounding::kStochastic, random16);
  });
}

QuantizedMatrix QuantizeReplayed(MatrixView<const float> x, const QuantizeOptions& options,
                                 RandomForm form, std::span<const std::uint32_t> words) {
  const FormatId element = options.format.element;
  Expects(options.rounding == Rounding::kStochastic, "random words are for stochastic rounding");
  Expects(TakesForm(element, form), "random bits in a form that the element format takes");
  const std::size_t n = ElementsAWord(element, form);
  const std::size_t row_words = (x.cols + n - 1) / n;
  Expects(words.size() == x.rows * row_words, "one word for n elements of a row");
  return QuantizeWith(x, options, [&](std::size_t r, std::size_t c, float v) {
    const std::uint32_t word = words[r * row_words + c / n];
    return EncodeWithField(element, form, v, RandomField(element, form, word, c % n));
  });
}

Matrix<float> ScaledElements(MatrixView<const float> x, const QuantizedMatrix& q) {
  Expects(x.rows == q.rows && x.cols == q.cols, "x has the shape of q");
  const TensorScale tensor = TensorScaleOf(q.format, q.amax);
  const ScaleLayout scales(q.format, q.rows, q.cols);
  Matrix<float> v(x.rows, x.cols);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const std::uint8_t byte = q.scales.empty() ? std::uint8_t{0} : q.scales[scales.Index(r, c)];
      v(r, c) = x(r, c) * Multiplier(q.format, byte, tensor);
    }
  }
  return v;
}

void UnscaledValues(const QuantizedMatrix& q, MatrixView<float> out) {
  Decoded(q, out, [&](std::uint8_t byte) { return ScaleValue(q.format, byte); });
}

void Dequantize(const QuantizedMatrix& q, MatrixView<float> out) {
  Decoded(q, out, [&](std::uint8_t byte) { return DecodeFactor(q.format, byte, q.amax); });
}

}  // namespace fp4lab::reference
