#include "fp4lab/dialect/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/blocks.h"
#include "fp4lab/dialect/operand.h"
#include "fp4lab/dialect/stages.h"

namespace fp4lab {
namespace {

struct RowSums {
  float amax = 0.0f;
  double signal = 0.0, noise = 0.0;
  std::size_t elements = 0, nonzero = 0, underflows = 0, clips = 0;
};

RowSums MeasureRow(const Dialect& d, const BlockGrid& grid, MatrixView<const float> x,
                   const Quantized& q, std::size_t r) {
  const Level level = LevelOfRow(d, q.amax, r);
  const double decode = q.amax.empty() ? 1.0 : OperandDecode(d, level.amax);
  RowSums sums;
  for (std::size_t c = 0; c < x.cols; ++c) {
    const std::size_t block = r / grid.block_rows * grid.cols + c / grid.block_cols;
    const std::uint8_t byte = q.scales.empty() ? std::uint8_t{0} : q.scales[block];
    const float scale = ScaleAt(d, grid, q, r, c), v = x(r, c);
    const double y = double{Decode(d.element, q.codes[r * x.cols + c]) * scale} * decode;
    if (!std::isfinite(v) || !std::isfinite(y)) continue;
    const float scaled = Scaled(d, v, FactorOf(d, std::fabs(v), scale, byte, level), level);
    ++sums.elements;
    sums.amax = std::max(sums.amax, std::fabs(v));
    sums.nonzero += v != 0.0f;
    sums.underflows += v != 0.0f && y == 0.0;
    sums.clips += std::fabs(scaled) > MaxFinite(d.element) && y != 0.0;
    sums.signal += static_cast<double>(v) * v;
    sums.noise += (v - y) * (v - y);
  }
  return sums;
}

double Percent(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

double Decibel(double signal, double noise) {
  if (signal == 0.0) return 0.0;
  if (noise == 0.0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(signal / noise);
}

}  // namespace

QuantizationStatistics MeasureQuantization(const Dialect& dialect, MatrixView<const float> x,
                                           const DialectOptions& options) {
  const Quantized q = QuantizeAs(dialect, x, options);
  const BlockGrid grid(dialect, x.rows, x.cols);
  std::vector<RowSums> rows(x.rows);
  ParallelFor(x.rows, [&](std::size_t r) { rows[r] = MeasureRow(dialect, grid, x, q, r); });
  RowSums all;
  for (const RowSums& row : rows) {
    all.amax = std::max(all.amax, row.amax);
    all.signal += row.signal;
    all.noise += row.noise;
    all.elements += row.elements;
    all.nonzero += row.nonzero;
    all.underflows += row.underflows;
    all.clips += row.clips;
  }
  const double count = static_cast<double>(std::max<std::size_t>(all.elements, 1));
  return {.amax = all.amax,
          .underflow_percent = Percent(all.underflows, all.nonzero),
          .clip_percent = Percent(all.clips, all.elements),
          .sqnr_db = Decibel(all.signal, all.noise),
          .mse = all.noise / count,
          .elements = all.elements,
          .not_finite = x.size() - all.elements};
}

}  // namespace fp4lab
