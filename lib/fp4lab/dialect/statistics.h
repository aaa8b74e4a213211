// What a quantization does to one tensor, in the figures that training logs show.
#pragma once

#include <cstddef>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"

namespace fp4lab {

// Of x and its decoded quantization y (element value * block scale * OperandDecode). Elements
// of x that are not finite are counted and left out of everything else; so are those whose y is not
// (a block scale of NaN, or beyond binary32). Transformer Engine's debug statistics of the same
// meaning are named in quotes; its "underflows%" divides by all elements, this by the non-zero
// ones.
struct QuantizationStatistics {
  float amax = 0.0f;               // of the finite elements
  double underflow_percent = 0.0;  // of the non-zero elements: y = 0 ("underflows%")
  double clip_percent = 0.0;  // of all: |v|, the scaled element, above the largest, but y not 0
  double sqnr_db = 0.0;      // 10 log10(sum x^2 / sum (x - y)^2); 0 for a zero tensor, Inf if y = x
  double mse = 0.0;          // mean of (x - y)^2 ("mse")
  std::size_t elements = 0;  // all that count
  std::size_t not_finite = 0;  // left out
};

// Quantizes x as the dialect and the options say (their amax included) and measures. Sums are in
// double, a row at a time in ascending order, then over rows in ascending order.
QuantizationStatistics MeasureQuantization(const Dialect& dialect, MatrixView<const float> x,
                                           const DialectOptions& options = {});

}  // namespace fp4lab
