// Whether bytes lie in the set of answers of an approximate dialect.
#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/kernels/match.h"

namespace fp4lab {
namespace {

// The first `rows` rows of an answer, with their scales.
Quantized FirstRows(const Quantized& q, std::size_t rows, std::size_t scale_rows) {
  Quantized first = q;
  first.rows = rows;
  first.codes.resize(rows * q.cols);
  first.scale_rows = std::min(scale_rows, q.scale_rows);
  first.scales.resize(first.scale_rows * q.scale_cols);
  return first;
}

// IsAllowed, tried on the first rows first, which refuse most answers outside the set. Under one
// the tensor scale, blocks do not depend on each other, so every part of an allowed answer is
// allowed.
bool IsAllowedByParts(const Dialect& d, MatrixView<const float> x, const Quantized& q,
                      DialectOptions options) {
  options.amax = TensorAmaxes(d, x, options);
  const std::size_t block_rows = BlockGrid(d, x.rows, x.cols).block_rows;
  if (!d.row_scaled) {
    for (const std::size_t blocks : {std::size_t{1}, std::size_t{16}}) {
      const std::size_t rows = blocks * block_rows;
      if (rows >= x.rows) break;
      const Quantized first = FirstRows(q, rows, blocks);
      if (!IsAllowed(d, x.Block(0, 0, rows, x.cols), first, options).ok) return false;
    }
  }
  return IsAllowed(d, x, q, options).ok;
}

}  // namespace

bool BlocksLieInSet(const Kernel& kernel, MatrixView<const float> x, const StoredMatrix& got,
                    const DialectOptions& options) {
  const Dialect& d = kernel.dialect;
  if (kernel.hadamard != 0 || got.scales.empty()) return false;
  StoredMatrix stored = ShapeOf(d, x.rows, x.cols, kernel.layout);
  stored.codes = got.codes;
  stored.scales = got.scales;
  try {
    return IsAllowedByParts(d, x, Load(d, stored, "bytes"), options);
  } catch (const Error&) {
    return false;  // invalid codes for this format, or expanded scales that differ
  }
}

bool LiesInSet(const Kernel& kernel, ByteMatcher& matcher) {
  const IeeeArithmetic ieee;
  return matcher.TensorScaleMatches(PlanOf(kernel)) &&
         BlocksLieInSet(kernel, matcher.x(), matcher.got(), matcher.options());
}

}  // namespace fp4lab
