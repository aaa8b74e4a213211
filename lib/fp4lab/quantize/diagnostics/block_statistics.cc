#include "fp4lab/quantize/diagnostics/block_statistics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/operand.h"

namespace fp4lab {

double ScaleHistogram::Spread() const {
  const IeeeArithmetic ieee;
  double count = 0.0, sum = 0.0, squares = 0.0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto n = static_cast<double>(counts[i]), e = static_cast<double>(i);
    count += n;
    sum += n * e;
    squares += n * e * e;
  }
  if (count == 0.0) return 0.0;
  return std::sqrt(std::max(squares / count - (sum / count) * (sum / count), 0.0));
}

double ScaleHistogram::ZeroPercent() const {
  const IeeeArithmetic ieee;
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), zeros + not_finite);
  return all == 0 ? 0.0 : 100.0 * static_cast<double>(zeros) / static_cast<double>(all);
}

ScaleHistogram MeasureScales(const Dialect& dialect, const Quantized& quantized) {
  const IeeeArithmetic ieee;
  ScaleHistogram histogram;
  std::map<int, std::size_t> exponents;
  const auto add = [&](float scale) {
    const float magnitude = std::fabs(scale);
    if (!std::isfinite(magnitude)) {
      ++histogram.not_finite;
    } else if (magnitude == 0.0f) {
      ++histogram.zeros;
    } else {
      ++exponents[std::ilogb(magnitude)];
    }
  };
  for (const float scale : quantized.scale_values) add(scale);
  for (const std::uint8_t scale : quantized.scales) add(ScaleValueOf(dialect, scale));
  if (exponents.empty()) return histogram;
  histogram.first = exponents.begin()->first;
  histogram.counts.resize(static_cast<std::size_t>(exponents.rbegin()->first - histogram.first) +
                          1);
  for (const auto& [exponent, count] : exponents) {
    histogram.counts[static_cast<std::size_t>(exponent - histogram.first)] = count;
  }
  return histogram;
}

BlockErrors MeasureBlockErrors(const Dialect& dialect, MatrixView<const float> x,
                               const Quantized& quantized) {
  const IeeeArithmetic ieee;
  Expects(quantized.rows == x.rows && quantized.cols == x.cols, "quantized has the shape of x");
  const BlockGrid grid(dialect, x.rows, x.cols);
  BlockErrors errors{grid.rows, grid.cols, std::vector<double>(grid.rows * grid.cols)};
  ParallelFor(grid.rows, [&](std::size_t i) {
    std::vector<double> signal(grid.cols), noise(grid.cols);
    const std::size_t first = i * grid.block_rows;
    for (std::size_t r = first; r < std::min(first + grid.block_rows, x.rows); ++r) {
      const double decode =
          OperandDecode(dialect, TensorScaleOfRow(dialect, quantized.amax, r).amax);
      for (std::size_t c = 0; c < x.cols; ++c) {
        const float value = Decode(dialect.element, quantized.codes[r * x.cols + c]);
        const double y = double{value * ScaleAt(dialect, grid, quantized, r, c)} * decode;
        if (!std::isfinite(x(r, c)) || !std::isfinite(y)) continue;
        const std::size_t block = c / grid.block_cols;
        signal[block] += double{x(r, c)} * x(r, c);
        noise[block] += (x(r, c) - y) * (x(r, c) - y);
      }
    }
    for (std::size_t j = 0; j < grid.cols; ++j) {
      errors.relative[i * grid.cols + j] = signal[j] > 0.0 ? std::sqrt(noise[j] / signal[j]) : 0.0;
    }
  });
  return errors;
}

}  // namespace fp4lab
