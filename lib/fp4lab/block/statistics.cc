#include "fp4lab/block/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/scale_rules.h"

namespace fp4lab {
namespace {

struct RowSums {
  float amax = 0.0f;
  double signal = 0.0, noise = 0.0;
  std::size_t elements = 0, nonzero = 0, underflows = 0, clips = 0;
};

struct Decoder {
  float largest;                       // element value
  double tensor;                       // the tensor's decode scale
  std::array<float, 256> multipliers;  // by scale byte
};

Decoder DecoderOf(const QuantizedMatrix& q) {
  Decoder decoder{MaxFinite(q.format.element), TensorDecodeScale(q.format, q.amax), {}};
  const TensorScale tensor = TensorScaleOf(q.format, q.amax);
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    decoder.multipliers[byte] = Multiplier(q.format, static_cast<std::uint8_t>(byte), tensor);
  }
  return decoder;
}

RowSums MeasureRow(MatrixView<const float> x, const QuantizedMatrix& q, const Decoder& decoder,
                   MatrixView<const float> values, std::size_t r) {
  const ScaleLayout scales(q.format, q.rows, q.cols);
  RowSums sums;
  for (std::size_t c = 0; c < x.cols; ++c) {
    const double y = values(r, c) * decoder.tensor;
    const float v = x(r, c);
    if (!std::isfinite(v) || !std::isfinite(y)) continue;
    const float e = decoder.multipliers[q.scales.empty() ? 0 : q.scales[scales.Index(r, c)]];
    ++sums.elements;
    sums.amax = std::max(sums.amax, std::fabs(v));
    sums.nonzero += v != 0.0f;
    sums.underflows += v != 0.0f && y == 0.0;
    sums.clips += std::fabs(v * e) > decoder.largest && y != 0.0;
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

QuantizationStatistics MeasureQuantization(MatrixView<const float> x,
                                           const QuantizeOptions& options) {
  const QuantizedMatrix q = Quantize(x, options);
  Matrix<float> values(x.rows, x.cols);
  UnscaledValues(q, values.View());
  const Decoder decoder = DecoderOf(q);
  std::vector<RowSums> rows(x.rows);
  ParallelFor(x.rows, [&](std::size_t r) {
    rows[r] = MeasureRow(x, q, decoder, std::as_const(values).View(), r);
  });
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
