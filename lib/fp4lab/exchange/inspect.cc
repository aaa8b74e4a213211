#include "fp4lab/exchange/inspect.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

struct Blocks {
  std::size_t rows, cols;            // of a block
  std::size_t grid_rows, grid_cols;  // how many
};
Blocks BlocksOf(const StoredMatrix& m) {
  if (m.block_rows == 0)
    return {std::max<std::size_t>(m.rows, 1), std::max<std::size_t>(m.cols, 1), 1, 1};
  const auto rows = static_cast<std::size_t>(m.block_rows);
  const auto cols = static_cast<std::size_t>(m.block_cols);
  return {rows, cols, (m.rows + rows - 1) / rows, (m.cols + cols - 1) / cols};
}

// Codes and scales, one a byte, in rows.
StoredMatrix Plain(const StoredMatrix& stored, std::string_view where) {
  return Convert(stored, {.codes = CodeOrder::kBytes, .level_two = stored.layout.level_two}, 1.0f,
                 where);
}

// Counts what lies beside the scales and what is not repeated, in the arrangement of m.
ScaleCandidate Examine(const StoredMatrix& m, const StoredSizes& sizes) {
  const ScaleOrder order = m.layout.scales;
  ScaleCandidate candidate{
      .order = order, .transposed = m.layout.transposed, .expanded = m.layout.expanded_scales};
  const auto tile = static_cast<std::size_t>(m.layout.transposed ? m.block_cols : m.block_rows);
  std::vector<bool> used(m.scales.size(), false);
  for (std::size_t r = 0; r < sizes.scale_rows; ++r) {
    const std::size_t first = candidate.expanded ? r / tile * tile : r;
    for (std::size_t c = 0; c < sizes.scale_cols; ++c) {
      const std::size_t at = ScaleOffset(order, r, c, sizes.scale_cols);
      const std::size_t whole = ScaleOffset(order, first, c, sizes.scale_cols);
      used[at] = true;
      candidate.not_repeated += m.scales[at] != m.scales[whole] ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    candidate.padding += used[i] ? 0 : 1;
    candidate.padding_not_zero += !used[i] && m.scales[i] != 0 ? 1 : 0;
  }
  return candidate;
}

}  // namespace

StoredStatistics MeasureStored(const StoredMatrix& stored, const Matrix<float>& values,
                               std::string_view where) {
  const StoredMatrix m = Plain(stored, where);
  const Format& element = FormatOf(m.element);
  const Format& scale = FormatOf(m.scale);
  StoredStatistics s;
  s.blocks = m.scales.size();
  for (const std::uint8_t byte : m.scales) {
    ++s.scales[byte];
    const float value = Decode(scale, byte);
    s.zero_scales += value == 0.0f ? 1 : 0;
    s.nan_scales += IsNan(scale, byte) ? 1 : 0;
    s.largest_scales += byte == MaxFiniteCode(scale) ? 1 : 0;
    if (!(value > 0.0f)) continue;
    s.largest_scale = std::max(s.largest_scale, value);
    s.smallest_scale = s.smallest_scale == 0.0f ? value : std::min(s.smallest_scale, value);
  }
  s.elements = m.codes.size();
  for (const std::uint8_t code : m.codes) {
    s.zeros += (code & MagnitudeMask(element)) == 0 ? 1 : 0;
    s.largest += (code & MagnitudeMask(element)) == MaxFiniteCode(element) ? 1 : 0;
  }
  for (const float v : values.values) s.largest_value = std::max(s.largest_value, std::abs(v));
  return s;
}

StoredError MeasureError(const StoredMatrix& stored, MatrixView<const float> x,
                         const Matrix<float>& values, std::string_view where) {
  if (x.rows != stored.rows || x.cols != stored.cols) {
    throw Error(where, "is " + std::to_string(stored.rows) + "x" + std::to_string(stored.cols) +
                           ", the input " + std::to_string(x.rows) + "x" + std::to_string(x.cols));
  }
  const StoredMatrix m = Plain(stored, where);
  const Format& element = FormatOf(m.element);
  const Blocks blocks = BlocksOf(m);
  StoredError e{.grid_rows = blocks.grid_rows, .grid_cols = blocks.grid_cols};
  std::vector<double> signal(blocks.grid_rows * blocks.grid_cols), noise(signal.size());
  std::size_t nonzero = 0, underflows = 0, clips = 0, counted = 0;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const float in = x(r, c), out = values(r, c);
      if (!std::isfinite(in) || !std::isfinite(out)) {
        ++e.not_finite;
        continue;
      }
      const std::size_t block = r / blocks.rows * blocks.grid_cols + c / blocks.cols;
      const double error = static_cast<double>(in) - static_cast<double>(out);
      signal[block] += static_cast<double>(in) * in;
      noise[block] += error * error;
      ++counted;
      e.amax = std::max(e.amax, std::abs(in));
      e.largest_error = std::max(e.largest_error, static_cast<float>(std::abs(error)));
      nonzero += in != 0.0f ? 1 : 0;
      underflows += in != 0.0f && out == 0.0f ? 1 : 0;
      const std::uint32_t magnitude = m.codes[r * m.cols + c] & MagnitudeMask(element);
      const bool at_largest = magnitude == MaxFiniteCode(element) && out != 0.0f;
      clips += at_largest && std::abs(in) > std::abs(out) ? 1 : 0;
    }
  }
  double signal_sum = 0, noise_sum = 0;
  for (std::size_t i = 0; i < signal.size(); ++i) {
    signal_sum += signal[i];
    noise_sum += noise[i];
    e.block_error.push_back(signal[i] > 0 ? std::sqrt(noise[i] / signal[i]) : 0.0);
  }
  const auto percent = [](std::size_t part, std::size_t all) {
    return all == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(all);
  };
  e.underflow_percent = percent(underflows, nonzero);
  e.clip_percent = percent(clips, counted);
  e.mse = counted == 0 ? 0.0 : noise_sum / static_cast<double>(counted);
  e.sqnr_db = signal_sum == 0 ? 0.0 : 10 * std::log10(signal_sum / noise_sum);
  return e;
}

std::vector<ScaleCandidate> ScaleCandidates(const StoredMatrix& stored) {
  std::vector<ScaleCandidate> candidates;
  if (stored.block_rows == 0) return candidates;
  for (const NamedScaleOrder& o : kScaleOrders) {
    for (int flags = 0; flags < 4; ++flags) {
      StoredMatrix m = stored;
      m.layout.scales = o.order;
      m.layout.transposed = (flags & 1) != 0;
      m.layout.expanded_scales = (flags & 2) != 0;
      if (m.layout.expanded_scales && m.block_rows == 1) continue;  // nobody stores 1xN so
      const StoredSizes sizes = SizesOf(m, "scales");
      if (sizes.scales != m.scales.size()) continue;
      candidates.push_back(Examine(m, sizes));
      candidates.back().stated = m.layout == stored.layout;
    }
  }
  return candidates;
}

}  // namespace fp4lab
