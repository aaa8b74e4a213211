#include "fp4lab/exchange/inspect.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/quantize/statistics.h"

namespace fp4lab {
namespace {

struct Blocks {
  std::size_t rows, cols;            // of a block, in elements
  std::size_t grid_rows, grid_cols;  // of the matrix, in blocks
};
Blocks BlocksOf(const StoredMatrix& m) {
  if (m.block_rows == 0)
    return {std::max<std::size_t>(m.rows, 1), std::max<std::size_t>(m.cols, 1), 1, 1};
  const auto rows = static_cast<std::size_t>(m.block_rows);
  const auto cols = static_cast<std::size_t>(m.block_cols);
  return {rows, cols, DivideUp(m.rows, rows), DivideUp(m.cols, cols)};
}

// The matrix with row-major codes, one a byte, and row-major scales.
StoredMatrix Plain(const StoredMatrix& stored, std::string_view where) {
  return Convert(stored, {.codes = CodeOrder::kBytes, .tensor_scale = stored.layout.tensor_scale},
                 1.0f, where);
}

float LargestScale(const StoredMatrix& m) {
  switch (m.layout.scale_type) {
    case ScaleType::kBF16:
      return MaxFinite(FormatId::kBF16);
    case ScaleType::kFP32:
      return std::numeric_limits<float>::max();
    case ScaleType::kByte:
      break;
  }
  return MaxFinite(m.scale);
}

// Counts the padding bytes and the scales that differ within their tile, in the layout of m.
ScaleCandidate Examine(const StoredMatrix& m, const StoredSizes& sizes) {
  const ScaleOrder order = m.layout.scales;
  ScaleCandidate candidate{
      .order = order, .transposed = m.layout.transposed, .expanded = m.layout.expanded_scales};
  const auto tile = static_cast<std::size_t>(m.layout.transposed ? m.block_cols : m.block_rows);
  const ScaleType type = m.layout.scale_type;
  const auto scale = [&](std::size_t at) { return ScaleCodeAt(m.scales, at, type); };
  std::vector<bool> used(m.scales.size() / sizes.scale_bytes, false);
  for (std::size_t r = 0; r < sizes.scale_rows; ++r) {
    const std::size_t first = candidate.expanded ? r / tile * tile : r;
    for (std::size_t c = 0; c < sizes.scale_cols; ++c) {
      const std::size_t at = ScaleOffset(order, r, c, sizes.scale_cols);
      const std::size_t whole = ScaleOffset(order, first, c, sizes.scale_cols);
      used[at] = true;
      candidate.not_repeated += scale(at) != scale(whole) ? 1 : 0;
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    candidate.padding += used[i] ? 0 : 1;
    candidate.padding_not_zero += !used[i] && scale(i) != 0 ? 1 : 0;
  }
  return candidate;
}

}  // namespace

StoredStatistics MeasureStored(const StoredMatrix& stored, const Matrix<float>& values,
                               std::string_view where) {
  const IeeeArithmetic ieee;
  const StoredMatrix m = Plain(stored, where);
  const Format& element = FormatOf(m.element);
  const ScaleType type = m.layout.scale_type;
  StoredStatistics s;
  s.blocks = m.scales.size() / Named(type).bytes;
  for (std::size_t i = 0; i < s.blocks; ++i) {
    const std::uint32_t code = ScaleCodeAt(m.scales, i, type);
    const float value = ScaleValueOf(type, m.scale, code);
    ++s.scales[type == ScaleType::kByte ? code : std::bit_cast<std::uint32_t>(value) >> 23 & 0xFF];
    s.zero_scales += value == 0.0f ? 1 : 0;
    s.nan_scales += std::isnan(value) ? 1 : 0;
    s.largest_scales += value == LargestScale(m) ? 1 : 0;
    if (!(value > 0.0f) || !std::isfinite(value)) continue;
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
  const IeeeArithmetic ieee;
  if (x.rows != stored.rows || x.cols != stored.cols) {
    throw Error(where, "is " + std::to_string(stored.rows) + "x" + std::to_string(stored.cols) +
                           ", the input " + std::to_string(x.rows) + "x" + std::to_string(x.cols));
  }
  const StoredMatrix m = Plain(stored, where);
  const Format& element = FormatOf(m.element);
  const Blocks blocks = BlocksOf(m);
  StoredError e{.blocks = {.rows = blocks.grid_rows, .cols = blocks.grid_cols}};
  std::vector<double> signal(blocks.grid_rows * blocks.grid_cols), noise(signal.size());
  double nonzero = 0, underflows = 0, clips = 0, counted = 0;
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
      const float code_value = Decode(element, m.codes[r * m.cols + c]);
      const MeasuredElement pair{
          .x = in, .y = out, .at_largest = std::abs(code_value) >= MaxFinite(m.element)};
      nonzero += in != 0.0f ? 1 : 0;
      underflows += Underflows(pair) ? 1 : 0;
      clips += IsClipped(pair) ? 1 : 0;
    }
  }
  double signal_sum = 0, noise_sum = 0;
  for (std::size_t i = 0; i < signal.size(); ++i) {
    signal_sum += signal[i];
    noise_sum += noise[i];
    e.blocks.relative.push_back(signal[i] > 0 ? std::sqrt(noise[i] / signal[i]) : 0.0);
  }
  e.underflow_percent = Percent(underflows, nonzero);
  e.clip_percent = Percent(clips, counted);
  e.mse = counted == 0 ? 0.0 : noise_sum / counted;
  e.sqnr_db = Decibel(signal_sum, noise_sum);
  return e;
}

std::vector<ScaleCandidate> ScaleCandidates(const StoredMatrix& stored) {
  const IeeeArithmetic ieee;
  std::vector<ScaleCandidate> candidates;
  if (stored.block_rows == 0) return candidates;
  for (const NamedScaleOrder& o : kScaleOrders) {
    for (int flags = 0; flags < 4; ++flags) {
      StoredMatrix m = stored;
      m.layout.scales = o.order;
      m.layout.transposed = (flags & 1) != 0;
      m.layout.expanded_scales = (flags & 2) != 0;
      // No code base repeats the scales of 1xN blocks.
      if (m.layout.expanded_scales && m.block_rows == 1) continue;
      const StoredSizes sizes = SizesOf(m, "scales");
      if (sizes.scales != m.scales.size()) continue;
      candidates.push_back(Examine(m, sizes));
      candidates.back().stated = m.layout == stored.layout;
    }
  }
  return candidates;
}

}  // namespace fp4lab
