#include "fp4lab/judge/explain/deviation_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/judge/explain/rounding_interval.h"
#include "fp4lab/quantize/statistic.h"

namespace fp4lab {
namespace {

using Values = std::vector<DeviationValue>;

DeviationValue Number(int number) { return {.number = number}; }

Values Places16Or32(const Kernel& kernel) {
  Values values;
  for (int place = 0; place < kernel.hadamard; ++place) values.push_back(Number(place));
  return values;
}

Values RowShifts(ByteMatcher& matcher, const Kernel& kernel) {
  const std::size_t grid_rows = matcher.MakeEvaluator(PlanOf(kernel)).grid().rows;
  Values values;
  for (const int rows : {1, 2, 3, 4, 8, 16, 32, 64, 128}) {
    if (2 * static_cast<std::size_t>(rows) > grid_rows) break;  // too few scales are left
    values.push_back(Number(rows));
    values.push_back(Number(-rows));
  }
  return values;
}

// ---- The amax without the last rows

// Among the row counts with the same amax, first < end <= last, the multiple of the largest power
// of two.
std::size_t RoundestEnd(std::size_t first, std::size_t last) {
  for (std::size_t size = std::bit_floor(last); size > 1; size /= 2) {
    const std::size_t end = last / size * size;
    if (end > first) return end;
  }
  return last;
}

// The numbers of last rows whose omission changes the amax; one number for each resulting amax.
Values LastRows(const Kernel& kernel, ByteMatcher& matcher) {
  if (!HasTensorScale(kernel.dialect) || kernel.dialect.row_scaled) return {};
  Matrix<float> transformed;
  MatrixView<const float> x = matcher.x();
  if (kernel.hadamard != 0) {
    transformed = InputOf(PlanOf(kernel).input, x);
    x = transformed.View();
  }
  Values values;
  float amax = 0.0f;
  std::size_t first = 0;  // the row with that amax
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float row = MaxMagnitudeOf(x.Block(r, 0, 1, x.cols), false);
    if (!(row > amax)) continue;
    if (r > 0 && amax > 0.0f) {
      values.push_back(Number(static_cast<int>(x.rows - RoundestEnd(first, r))));
    }
    amax = row;
    first = r;
  }
  std::reverse(values.begin(), values.end());  // few rows first
  return values;
}

// ---- An amax that is not the tensor's

float Neighbour(float x, int steps) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + static_cast<std::uint32_t>(steps));
}

Values AmaxFromNumber(const Kernel& kernel, float number) {
  const TensorScaleConvention convention = kernel.layout.tensor_scale;
  const float amax = ConvertTensorScale(number, convention, TensorScaleConvention::kAmax,
                                        TensorScaleConstant(kernel.dialect));
  if (!(amax > 0.0f) || !std::isfinite(amax)) return {};
  Values values = {{.amax = amax}};
  if (convention == TensorScaleConvention::kAmax) return values;
  for (const int steps : {1, -1, 2, -2}) values.push_back({.amax = Neighbour(amax, steps)});
  return values;
}

// The interval of encode scales S that fit the scales and codes of some blocks.
class OpenEncodeScales {
 public:
  OpenEncodeScales(const Kernel& kernel, ByteMatcher& matcher)
      : d_(kernel.dialect),
        got_(matcher.got()),
        evaluator_(matcher.MakeEvaluator(PlanOf(kernel))),
        places_(PlanOf(kernel), evaluator_.rows(), evaluator_.cols()),
        x_(matcher.x()) {
    const BlockGrid& grid = evaluator_.grid();
    const std::size_t blocks = grid.rows * grid.cols,
                      step = std::max<std::size_t>(1, blocks / kRead);
    BlockBytes block;
    for (std::size_t at = 0; at < blocks && low < high; at += step) {
      evaluator_.Evaluate(at / grid.cols, at % grid.cols, &block);
      Narrow(at / grid.cols, at % grid.cols, block);
    }
  }
  double low = 0.0, high = std::numeric_limits<double>::infinity();

 private:
  static constexpr std::size_t kRead = 4096;  // blocks to read

  // Intersects with the S for which unit * S lies in the interval, up to a formula's roundings.
  void Narrow(double unit, Interval interval) {
    constexpr double kRoundings = 0x1p-21;
    if (!(unit > 0.0) || !(interval.low <= interval.high)) return;
    low = std::max(low, interval.low / unit * (1.0 - kRoundings));
    high = std::min(high, interval.high / unit * (1.0 + kRoundings));
  }
  void Narrow(std::size_t i, std::size_t j, const BlockBytes& block) {
    const std::size_t place = places_.ScaleByte(i, j, 0);
    if (place >= got_.scales.size()) return;
    const Format& scale = FormatOf(d_.scale);
    const std::uint8_t byte = got_.scales[place];
    if (byte < 1u << scale.mantissa_bits || IsNan(scale, byte)) return;  // may be clamped
    if (d_.adaptive == Adaptive::kNo) {
      Narrow(double{block.numbers.amax} / MaxFinite(d_.element), RoundsTo(scale, byte));
    }
    if (d_.rounding != ElementRounding::kNearestEven) return;
    const double s = ScaleValueOf(d_, byte);
    for (std::size_t k = 0; k < block.codes.size(); ++k) {
      const std::size_t row = block.row + k / block.cols, col = block.col + k % block.cols;
      const std::size_t bit = places_.CodeBit(row, col);
      if (!places_.Fits(bit, got_.codes.size())) continue;
      const std::uint8_t code = places_.CodeAt(got_.codes, bit);
      Narrow(Magnitude(x_(row, col)) / s, RoundsTo(FormatOf(d_.element), code));
    }
  }

  const Dialect& d_;
  const StoredMatrix& got_;
  const Evaluator evaluator_;
  const Places places_;
  MatrixView<const float> x_;
};

// The number of low..high with the most trailing zero bits, then all numbers if they are few.
Values AmaxesBetween(float low, float high) {
  const auto first = std::bit_cast<std::uint32_t>(low), last = std::bit_cast<std::uint32_t>(high);
  Values values;
  for (std::uint32_t zeros = 23; zeros > 0; --zeros) {
    const std::uint32_t unit = 1u << zeros, up = RoundUp(first, unit);
    if (up > last) continue;
    values.push_back({.amax = std::bit_cast<float>(up), .amax_is_open = true});
    break;
  }
  constexpr std::uint32_t kFew = 128;
  if (last - first > kFew) {
    values.push_back(
        {.amax = std::bit_cast<float>(first + (last - first) / 2), .amax_is_open = true});
    return values;
  }
  for (std::uint32_t bits = first; bits <= last; ++bits) {
    values.push_back({.amax = std::bit_cast<float>(bits), .amax_is_open = true});
  }
  return values;
}

Values StaleAmaxes(const Kernel& kernel, ByteMatcher& matcher) {
  const Dialect& d = kernel.dialect;
  if (!HasTensorScale(d) || d.row_scaled || kernel.hadamard != 0) return {};
  const std::vector<float>& stored = matcher.got().tensor_scale;
  if (!stored.empty()) {
    return stored.size() == 1 ? AmaxFromNumber(kernel, stored[0]) : Values{};
  }
  if (d.scale != FormatId::kE4M3 || matcher.got().scales.empty()) return {};
  const OpenEncodeScales open(kernel, matcher);
  const double c = TensorScaleConstant(d);
  const auto low = static_cast<float>(c / open.high), high = static_cast<float>(c / open.low);
  if (!(low > kFloatMin) || !(high < kFloatMax) || !(low <= high)) return {};
  return AmaxesBetween(low, high);
}

// ---- Parts of the output

// The kernel's bytes, in the layout that was asked for.
struct Written {
  Places places;
  const StoredMatrix& got;
  std::size_t block_rows, block_cols;

  // The code of all even, or all odd, columns of the region; nullopt if the codes differ.
  std::optional<std::uint8_t> Code(const Rectangle& region, std::size_t odd) const {
    std::optional<std::uint8_t> code;
    for (std::size_t r = region.row; r < region.row + region.rows; ++r) {
      for (std::size_t c = region.col + (region.col + odd) % 2; c < region.col + region.cols;
           c += 2) {
        const std::size_t bit = places.CodeBit(r, c);
        if (!places.Fits(bit, got.codes.size())) return std::nullopt;
        const std::uint8_t here = places.CodeAt(got.codes, bit);
        if (code && *code != here) return std::nullopt;
        code = here;
      }
    }
    return code;
  }
  std::optional<std::uint8_t> Scale(const Rectangle& region) const {
    std::optional<std::uint8_t> scale;
    const std::size_t bottom = region.row + region.rows, right = region.col + region.cols;
    for (std::size_t i = region.row / block_rows; i * block_rows < bottom; ++i) {
      for (std::size_t j = region.col / block_cols; j * block_cols < right; ++j) {
        const std::size_t place = places.ScaleByte(i, j, 0);
        if (place >= got.scales.size()) return std::nullopt;
        if (scale && *scale != got.scales[place]) return std::nullopt;
        scale = got.scales[place];
      }
    }
    return scale;
  }
};

// The smallest parts that hold all differences, by blocks and by elements, with the bytes in them.
Values UnwrittenParts(const Kernel& kernel, ByteMatcher& matcher, const Extent& extent) {
  constexpr std::size_t kLeast = 8;  // elements; fewer may be equal by chance
  const Evaluator evaluator = matcher.MakeEvaluator(PlanOf(kernel));
  const Written written{Places(PlanOf(kernel), evaluator.rows(), evaluator.cols()), matcher.got(),
                        evaluator.grid().block_rows, evaluator.grid().block_cols};
  Values values;
  for (const Rectangle& region : {extent.blocks, extent.codes}) {
    if (region.rows * region.cols < kLeast) continue;
    DeviationValue value{.region = region};
    value.even_code = written.Code(region, 0);
    value.odd_code = written.Code(region, 1);
    if (!value.even_code || !value.odd_code) value.even_code = value.odd_code = std::nullopt;
    if (evaluator.grid().stores_scales) value.scale = written.Scale(region);
    if (value.even_code || value.scale) values.push_back(value);
  }
  return values;
}

struct Run {
  std::size_t first = 0, count = 0;
};
std::vector<Run> RunsOf(const std::vector<bool>& marked) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < marked.size(); ++i) {
    if (!marked[i]) continue;
    if (i == 0 || !marked[i - 1]) runs.push_back({i, 0});
    ++runs.back().count;
  }
  return runs;
}
// Two candidates for swapped parts: two runs of equal length, or the halves of the only run.
std::vector<Run> TwoOf(const std::vector<Run>& runs) {
  if (runs.size() == 2 && runs[0].count == runs[1].count) return runs;
  if (runs.size() != 1 || runs[0].count % 2 != 0) return {};
  const std::size_t half = runs[0].count / 2;
  return {{runs[0].first, half}, {runs[0].first + half, half}};
}

// Candidates for two swapped parts of one size, in rows, in columns or in both.
Values SwappedPairs(const Kernel& kernel, ByteMatcher& matcher, const Extent& extent) {
  const Evaluator evaluator = matcher.MakeEvaluator(PlanOf(kernel));
  const BlockGrid& grid = evaluator.grid();
  std::vector<bool> rows(grid.rows, false), cols(grid.cols, false);
  for (const auto& [i, j] : extent.differing) rows[i] = cols[j] = true;
  const std::vector<Run> row_runs = RunsOf(rows), col_runs = RunsOf(cols);
  const std::vector<Run> two_rows = TwoOf(row_runs), two_cols = TwoOf(col_runs);
  Values values;
  const auto add = [&](Run rows_a, Run cols_a, std::size_t row_b, std::size_t col_b) {
    const std::size_t height = grid.block_rows, width = grid.block_cols;
    values.push_back({.region = {rows_a.first * height, cols_a.first * width, rows_a.count * height,
                                 cols_a.count * width},
                      .other_row = row_b * height,
                      .other_col = col_b * width});
  };
  if (two_rows.size() == 2 && col_runs.size() == 1) {
    add(two_rows[0], col_runs[0], two_rows[1].first, col_runs[0].first);
  }
  if (two_cols.size() == 2 && row_runs.size() == 1) {
    add(row_runs[0], two_cols[0], row_runs[0].first, two_cols[1].first);
  }
  if (two_rows.size() == 2 && two_cols.size() == 2) {
    add(two_rows[0], two_cols[0], two_rows[1].first, two_cols[1].first);
    add(two_rows[0], two_cols[1], two_rows[1].first, two_cols[0].first);
  }
  return values;
}

}  // namespace

std::vector<DeviationValue> ValuesToTry(const Deviation& deviation, const Kernel& kernel,
                                        ByteMatcher& matcher, const Extent& extent) {
  const IeeeArithmetic ieee;
  switch (deviation.kind) {
    case ValueKind::kNone:
      return {};
    case ValueKind::kPlace:
      return Places16Or32(kernel);
    case ValueKind::kRowShift:
      return RowShifts(matcher, kernel);
    case ValueKind::kLastRows:
      return LastRows(kernel, matcher);
    case ValueKind::kAmax:
      return StaleAmaxes(kernel, matcher);
    case ValueKind::kUnwritten:
      return UnwrittenParts(kernel, matcher, extent);
    case ValueKind::kSwapped:
      return SwappedPairs(kernel, matcher, extent);
  }
  return {};
}

}  // namespace fp4lab
