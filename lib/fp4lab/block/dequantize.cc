// UnscaledValues and Dequantize: a product of two table entries an element.
#include <algorithm>
#include <array>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/block/scale_rules.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

// What every element code and every scale byte stands for.
struct DecodeTables {
  std::array<float, 256> value, factor;
};

void DecodeRow(const QuantizedMatrix& q, const DecodeTables& tables, std::size_t r,
               MatrixView<float> out) {
  const CodeLayout codes(q.format, q.cols);
  const ScaleLayout scales(q.format, q.rows, q.cols);
  const std::uint8_t* row = q.codes.data() + codes.Byte(r, 0);
  float* to = &out(r, 0);
  for (std::size_t j = 0; j < scales.cols; ++j) {
    const std::size_t c0 = j * scales.block_cols;
    const std::size_t c1 = std::min(c0 + scales.block_cols, q.cols);
    const float factor = tables.factor[q.scales.empty() ? 0 : q.scales[scales.Index(r, c0)]];
    for (std::size_t c = c0; c < c1; ++c) {
      const unsigned code = codes.packed ? row[c / 2] >> (c % 2 * 4) & 0xFu : row[c];
      to[c * out.col_stride] = tables.value[code] * factor;
    }
  }
}

// Rows in groups of about 16384 elements.
void Decode(const QuantizedMatrix& q, const DecodeTables& tables, MatrixView<float> out) {
  Expects(out.rows == q.rows && out.cols == q.cols, "out has the shape of q");
  if (out.size() == 0) return;
  const std::size_t group = 1 + 16384 / q.cols;
  ParallelFor((q.rows + group - 1) / group, [&](std::size_t i) {
    for (std::size_t r = i * group; r < std::min((i + 1) * group, q.rows); ++r) {
      DecodeRow(q, tables, r, out);
    }
  });
}

// `factor_of` maps a scale byte to its block's factor.
template <class FactorOf>
DecodeTables MakeTables(const QuantizedMatrix& q, FactorOf factor_of) {
  DecodeTables tables{};
  for (std::uint32_t code = 0; code < (1u << FormatOf(q.format.element).bits); ++code) {
    tables.value[code] = Decode(q.format.element, code);
  }
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    tables.factor[byte] = factor_of(static_cast<std::uint8_t>(byte));
  }
  return tables;
}

}  // namespace

void UnscaledValues(const QuantizedMatrix& q, MatrixView<float> out) {
  Decode(q, MakeTables(q, [&](std::uint8_t byte) { return ScaleValue(q.format, byte); }), out);
}

void Dequantize(const QuantizedMatrix& q, MatrixView<float> out) {
  const auto factor = [&](std::uint8_t byte) { return DecodeFactor(q.format, byte, q.amax); };
  Decode(q, MakeTables(q, factor), out);
}

}  // namespace fp4lab
