// The scalar definition of block quantization, to be read beside the equations of quantize.h.
#include <algorithm>
#include <cmath>

#include "fp4lab/block/layout.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/block/scale_rules.h"
#include "fp4lab/formats/format.h"

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

}  // namespace

float TensorAmax(MatrixView<const float> x) { return Amax(x); }

QuantizedMatrix Quantize(MatrixView<const float> x, const QuantizeOptions& options) {
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
        for (std::size_t c = c0; c < c1; ++c) {
          const std::uint32_t random16 = options.rounding == Rounding::kStochastic
                                             ? options.random.Bits16(r * x.cols + c)
                                             : 0u;
          const float v = x(r, c) * e;
          StoreCode(&q, r, c, Encode(q.format.element, v, options.rounding, random16));
        }
      }
    }
  }
  return q;
}

void UnscaledValues(const QuantizedMatrix& q, MatrixView<float> out) {
  Decoded(q, out, [&](std::uint8_t byte) { return ScaleValue(q.format, byte); });
}

void Dequantize(const QuantizedMatrix& q, MatrixView<float> out) {
  Decoded(q, out, [&](std::uint8_t byte) { return DecodeFactor(q.format, byte, q.amax); });
}

}  // namespace fp4lab::reference
