#include "fp4lab/train/diagnose.h"

#include <cmath>
#include <limits>

#include "fp4lab/train/recipe_json.h"

namespace fp4lab {
namespace {

// Elements that the block's multiplier lifts above the largest value of the element format.
std::size_t CountClipped(MatrixView<const float> x, const QuantizeOptions& options) {
  const BlockFormat& format = options.format;
  const QuantizedMatrix q = Quantize(x, options);
  const TensorScale tensor = TensorScaleOf(format, options.amax);
  const float largest = MaxFinite(format.element);
  const auto rows = static_cast<std::size_t>(format.block_rows),
             cols = static_cast<std::size_t>(format.block_cols);
  const std::size_t per_row = cols == 0 ? 0 : (x.cols + cols - 1) / cols;
  std::size_t clipped = 0;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const std::uint8_t byte = cols == 0 ? 0 : q.scales[r / rows * per_row + c / cols];
      clipped += std::fabs(x(r, c)) * Multiplier(format, byte, tensor) > largest;
    }
  }
  return clipped;
}

double Percent(std::size_t part, std::size_t all) {
  return all == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(all);
}

}  // namespace

TensorStatistics MeasureOperand(std::string name, MatrixView<const float> x,
                                MatrixView<const float> values, const QuantizeOptions& options) {
  const double decode = TensorDecodeScale(options.format, options.amax);
  double signal = 0.0, noise = 0.0;
  std::size_t non_zero = 0, lost = 0;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const double before = x(r, c), after = values(r, c) * decode;
      signal += before * before;
      noise += (before - after) * (before - after);
      non_zero += before != 0.0;
      lost += before != 0.0 && after == 0.0;
    }
  }
  const Json format = ToJson(options.format);
  TensorStatistics s;
  s.name = std::move(name);
  s.format = format.is_string() ? format.get<std::string>() : format.dump();
  s.amax = TensorAmax(x);
  s.underflow_percent = Percent(lost, non_zero);
  s.clip_percent = Percent(CountClipped(x, options), x.size());
  // An exact copy has no noise: its ratio is reported as that of the smallest double.
  const double floor = std::numeric_limits<double>::min();
  s.sqnr_db = signal == 0.0 ? 0.0 : 10.0 * std::log10(signal / std::max(noise, signal * floor));
  return s;
}

}  // namespace fp4lab
