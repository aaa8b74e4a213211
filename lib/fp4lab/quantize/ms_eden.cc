#include "fp4lab/quantize/ms_eden.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

// f of one group of at most kMsEdenGroup elements.
float CorrectionOf(const Dialect& d, const TensorScale& tensor, const MsEdenRow& row,
                   std::size_t first, std::size_t count) {
  MsEdenSums sums;
  for (std::size_t i = first; i < first + count; ++i) {
    sums.Add(row.x[i], Decode(d.element, row.codes[i]) * row.scales[i / row.block_cols], tensor);
  }
  return sums.Correction();
}

}  // namespace

void CorrectScales(const Dialect& d, const TensorScale& tensor, const DialectOptions& options,
                   const MsEdenRow& row) {
  const IeeeArithmetic ieee;
  Expects(options.source.has_value(), "MS-EDEN takes a source of random bits");
  Expects(d.block_rows == 1 && kMsEdenGroup % row.block_cols == 0,
          "MS-EDEN's groups are whole blocks of a row");
  const RandomSource source = ScaleSource(*options.source);
  for (std::size_t first = 0; first < row.x.size(); first += kMsEdenGroup) {
    const std::size_t count = std::min(kMsEdenGroup, row.x.size() - first);
    const float f = CorrectionOf(d, tensor, row, first, count);
    for (std::size_t c = first; c < first + count; c += row.block_cols) {
      const std::size_t block = c / row.block_cols;
      row.bytes[block] =
          CorrectedScaleByte(d, row.scales[block], f, ScaleBits(source, row.first_block + block));
      row.scales[block] = ScaleValueOf(d, row.bytes[block]);
    }
  }
}

}  // namespace fp4lab
