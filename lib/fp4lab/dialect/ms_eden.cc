#include "fp4lab/dialect/ms_eden.h"

#include <algorithm>
#include <array>

#include "fp4lab/base/error.h"
#include "fp4lab/base/reduce.h"

namespace fp4lab {
namespace {

// Of one group of at most kMsEdenGroup elements.
float CorrectionOf(const Dialect& d, const Level& level, const MsEdenRow& row, std::size_t first,
                   std::size_t count) {
  std::array<float, kMsEdenGroup> squares, products;
  for (std::size_t i = 0; i < count; ++i) {
    const float x = row.x[first + i];
    const float value =
        Decode(d.element, row.codes[first + i]) * row.scales[(first + i) / row.block_cols];
    squares[i] = x * x;
    products[i] = x * (value * level.decode);
  }
  const float f =
      SumInOrder(std::span(squares).first(count)) / SumInOrder(std::span(products).first(count));
  return f > 0.0f && f <= kFloatMax ? f : 1.0f;
}

}  // namespace

void CorrectScales(const Dialect& d, const Level& level, const DialectOptions& options,
                   const MsEdenRow& row) {
  Expects(options.source.has_value(), "MS-EDEN takes a source of random bits");
  Expects(d.block_rows == 1 && kMsEdenGroup % row.block_cols == 0,
          "MS-EDEN's groups are whole blocks of a row");
  RandomSource source = *options.source;
  source.stream.tensor += 1u << 30;
  for (std::size_t first = 0; first < row.x.size(); first += kMsEdenGroup) {
    const std::size_t count = std::min(kMsEdenGroup, row.x.size() - first);
    const float f = CorrectionOf(d, level, row, first, count);
    for (std::size_t c = first; c < first + count; c += row.block_cols) {
      const std::size_t block = c / row.block_cols;
      const std::uint32_t bits = source.Bits(16, row.first_block + block, 1);
      row.bytes[block] = static_cast<std::uint8_t>(
          Encode(d.scale, row.scales[block] * f, Rounding::kStochastic, bits));
      row.scales[block] = ScaleValueOf(d, row.bytes[block]);
    }
  }
}

}  // namespace fp4lab
