// Numbers of a quantized tensor's blocks: the histogram of their scales, and their errors.
#pragma once

#include <cstddef>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// The block scales as numbers, without the tensor scale, by binary exponent.
struct ScaleHistogram {
  std::size_t zeros = 0, not_finite = 0;
  int first = 0;                         // the exponent of counts[0]
  std::vector<std::size_t> counts = {};  // counts[i]: scales in [2^(first + i), 2^(first + i + 1))

  // The standard deviation of the exponents, in binades; 0 without any finite scale above 0.
  double Spread() const;
  // The share of scales that are 0; 0 without scales.
  double ZeroPercent() const;

  friend bool operator==(const ScaleHistogram&, const ScaleHistogram&) = default;
};

// A tensor that is one block has no block scales, and an empty histogram.
ScaleHistogram MeasureScales(const Dialect& dialect, const Quantized& quantized);

// By block: sqrt(sum (x - y)^2 / sum x^2) over its finite elements x and their decoded values y; 0
// for a block of zeros.
struct BlockErrors {
  std::size_t rows = 0, cols = 0;  // of the grid of blocks
  std::vector<double> relative = {};
};
// A tensor that is one block is measured by rows.
BlockErrors MeasureBlockErrors(const Dialect& dialect, MatrixView<const float> x,
                               const Quantized& quantized);

}  // namespace fp4lab
