#include "fp4lab/judge/explain/deviation_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/judge/explain/amax_parts.h"
#include "fp4lab/judge/explain/open_encode_scales.h"
#include "fp4lab/quantize/diagnostics/statistic.h"

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
  const float amax = AmaxOfNumber(kernel.dialect, number, convention);
  if (!(amax > 0.0f) || !std::isfinite(amax)) return {};
  Values values = {{.amax = amax}};
  if (convention == TensorScaleConvention::kAmax) return values;
  for (const int steps : {1, -1, 2, -2}) values.push_back({.amax = Neighbour(amax, steps)});
  return values;
}

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

// The amaxes for which S lies in the interval.
Values AmaxesOf(const Kernel& kernel, const EncodeScales& open) {
  const double c = TensorScaleConstant(kernel.dialect);
  auto low = static_cast<float>(c / open.high), high = static_cast<float>(c / open.low);
  // Bytes that all saturate, or all underflow, bound S on one side.
  if (!std::isfinite(open.high)) low = 0.5f * high;
  if (open.low == 0.0) high = 2.0f * low;
  if (!(low > kFloatMin) || !(high < kFloatMax) || !(low <= high)) return {};
  return AmaxesBetween(low, high);
}

Values StaleAmaxes(const Kernel& kernel, ByteMatcher& matcher, ReadFrom from) {
  const Dialect& d = kernel.dialect;
  if (!HasTensorScale(d) || d.row_scaled || kernel.hadamard != 0) return {};
  const std::vector<float>& stored = matcher.got().tensor_scale;
  if (!stored.empty() && from == ReadFrom::kBoth) {
    return stored.size() == 1 ? AmaxFromNumber(kernel, stored[0]) : Values{};
  }
  const EncodeScaleReader reader(kernel, matcher);
  return d.scale == FormatId::kE4M3 && reader.CanRead() ? AmaxesOf(kernel, reader.OfAll(from))
                                                        : Values{};
}

// ---- The input times a number

// The shortest decimal number of low..high with at most `most` digits after the point, if any.
Values DecimalBetween(double low, double high, int most) {
  for (int digits = 0; digits <= most; ++digits) {
    const double unit = std::pow(10.0, -digits);
    const double least = std::ceil(low / unit) * unit;
    if (least <= high && least > 0.0) return {{.amax = static_cast<float>(least)}};
  }
  return {};
}

// The factor that turns the first scale above 0 into the stored number.
Values FactorsOfNumbers(const Kernel& kernel, ByteMatcher& matcher) {
  const KernelPlan plan = PlanOf(kernel);
  const Evaluator evaluator = matcher.MakeEvaluator(plan);
  const Places places(plan, evaluator.rows(), evaluator.cols());
  const std::vector<std::uint8_t>& scales = matcher.got().scales;
  BlockBytes block;
  for (std::size_t at = 0; at < evaluator.grid().rows * evaluator.grid().cols; ++at) {
    const std::size_t i = at / evaluator.grid().cols, j = at % evaluator.grid().cols;
    evaluator.Evaluate(i, j, &block);
    const std::size_t place = places.ScalePlace(i, j, 0);
    if (!places.HasScale(scales.size(), place)) return {};
    const double got = ScaleValueOf(places.scale_type(), {}, places.ScaleAt(scales, place));
    const double ratio = got / double{block.numbers.scale};
    if (!(block.numbers.scale > kFloatMin) || !(ratio > 0.0) || !std::isfinite(ratio)) continue;
    const double step = places.scale_type() == ScaleType::kFP32 ? 0x1p-22 : 0x1p-7;
    return ratio == 1.0 ? Values{} : DecimalBetween(ratio * (1.0 - step), ratio * (1.0 + step), 4);
  }
  return {};
}

// Factors that turn the amax into the stored number's amax, or that fit scales and codes of a
// dialect without a tensor scale.
Values Factors(const Kernel& kernel, ByteMatcher& matcher) {
  const Dialect& d = kernel.dialect;
  if (kernel.hadamard != 0) return {};
  if (!HasTensorScale(d) && ScaleTypeOf(d, kernel.layout) != ScaleType::kByte) {
    return FactorsOfNumbers(kernel, matcher);
  }
  if (!HasTensorScale(d)) {
    const EncodeScaleReader reader(kernel, matcher);
    if (!reader.CanRead()) return {};
    const EncodeScales open = reader.OfAll();
    const bool is_open = open.Empty() || open.low == 0.0 || !std::isfinite(open.high);
    return is_open ? Values{} : DecimalBetween(open.low, open.high, 6);
  }
  const std::vector<float>& stored = matcher.got().tensor_scale;
  const std::vector<float> amax = AmaxOf(PlanOf(kernel), matcher.x(), matcher.options());
  const bool has_number = kernel.layout.tensor_scale != TensorScaleConvention::kNone;
  if (!has_number || stored.size() != amax.size() || amax.empty()) return {};
  std::size_t row = 0;  // the first with a magnitude above 0
  while (row + 1 < amax.size() && !(amax[row] > 0.0f)) ++row;
  if (!(amax[row] > 0.0f) || !std::isfinite(amax[row])) return {};
  const double got = ConvertTensorScale(stored[row], kernel.layout.tensor_scale,
                                        TensorScaleConvention::kAmax, TensorScaleConstant(d));
  const double ratio = got / amax[row];
  if (!(ratio > 0.0) || !std::isfinite(ratio) || ratio == 1.0) return {};
  return DecimalBetween(ratio * (1.0 - 0x1p-22), ratio * (1.0 + 0x1p-22), 4);
}

// The amaxes below which code bases let no block fall: torchao, vLLM, and DeepGEMM and DeepSeek.
Values LeastAmaxes() {
  Values values;
  for (const float amax : {1e-12f, 1e-10f, 1e-8f, 1e-6f, 1e-5f, 1e-4f}) {
    values.push_back({.amax = amax});
  }
  return values;
}

// ---- Columns, rows and blocks

// The numbers of first columns whose amaxes are the stored ones of all rows: the roundest, if there
// are any. Halves and quarters where no number is stored.
Values FirstCols(const Kernel& kernel, ByteMatcher& matcher) {
  const Dialect& d = kernel.dialect;
  if (!HasTensorScale(d) || !d.row_scaled || kernel.hadamard != 0) return {};
  const MatrixView<const float> x = matcher.x();
  const std::vector<float>& stored = matcher.got().tensor_scale;
  Values values;
  if (stored.size() != x.rows) {
    for (const std::size_t part : {2, 4, 8}) {
      if (x.cols % part == 0) values.push_back(Number(static_cast<int>(x.cols / part)));
    }
    return values;
  }
  std::size_t least = 1, end = x.cols;  // the numbers of columns that fit are least..end
  for (std::size_t r = 0; r < x.rows; ++r) {
    float amax = 0.0f;
    std::size_t first = x.cols + 1, last = 0;
    bool fits = false;
    for (std::size_t c = 0; c < x.cols; ++c) {
      const float here = Magnitude(x(r, c));
      if (c > 0 && !(here > amax)) {
        if (fits) last = c + 1;
        continue;
      }
      amax = std::max(amax, here);
      fits = NumberOfAmax(d, amax, kernel.layout.tensor_scale) == stored[r];
      if (fits) first = std::min(first, c + 1), last = c + 1;
    }
    least = std::max(least, first);
    end = std::min(end, last);
  }
  if (least > end || least >= x.cols) return {};
  return {Number(static_cast<int>(RoundestEnd(least - 1, std::min(end, x.cols - 1))))};
}

// Numbers of dropped last columns: up to 64, then whole blocks. If the first columns are right, the
// first dropped column lies in the first block that differs.
Values LastCols(const Kernel& kernel, ByteMatcher& matcher, const Extent& extent) {
  const std::size_t cols = matcher.x().cols;
  const auto width = static_cast<std::size_t>(std::max(1, kernel.dialect.block_cols));
  Values values;
  for (std::size_t n = 1; n < cols; n += n < 64 ? 1 : width) {
    const std::size_t first = cols - n, block = extent.blocks.col;
    if (block > 0 && (first < block || first >= block + width)) continue;
    values.push_back(Number(static_cast<int>(n)));
  }
  return values;
}

template <class Enum>
Values Enumerated(Enum first, Enum last) {
  Values values;
  for (int e = static_cast<int>(first); e <= static_cast<int>(last); ++e) {
    values.push_back(Number(e));
  }
  return values;
}

// Numbers of parts and of rows at a time, where RowOrder has no name for the order.
Values RowTurns(ByteMatcher& matcher) {
  const std::size_t rows = matcher.x().rows;
  Values values;
  for (std::size_t group = 1; 4 * group <= rows; ++group) {
    if (rows % group != 0) continue;
    const std::size_t groups = rows / group;
    for (std::size_t parts = 2; 2 * parts <= groups; ++parts) {
      const std::size_t turns = groups / parts;
      if (groups % parts != 0 || (group == 1 && (parts == 2 || turns == 2))) continue;
      values.push_back({.parts = parts, .turns = turns, .group = group});
    }
  }
  return values;
}

// Two to four parts of equally many rows, then two parts that meet at one of the first multiples of
// 16 rows.
Values FoldedParts(const Kernel& kernel, ByteMatcher& matcher) {
  if (!HasTensorScale(kernel.dialect) || kernel.dialect.row_scaled) return {};
  const std::size_t rows = matcher.x().rows;
  Values values;
  for (std::size_t parts = 2; parts <= 4; ++parts) {
    if (rows % parts != 0) continue;
    DeviationValue value;
    for (std::size_t k = 1; k < parts; ++k) {
      value.starts[k - 1] = static_cast<std::uint32_t>(k * (rows / parts));
    }
    values.push_back(value);
  }
  constexpr std::size_t kMostStarts = 64;
  for (std::size_t start = 16; start < rows && start <= 16 * kMostStarts; start += 16) {
    if (2 * start != rows) values.push_back({.starts = {static_cast<std::uint32_t>(start)}});
  }
  return values;
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
  std::optional<std::uint32_t> Scale(const Rectangle& region) const {
    std::optional<std::uint32_t> scale;
    const std::size_t bottom = region.row + region.rows, right = region.col + region.cols;
    for (std::size_t i = region.row / block_rows; i * block_rows < bottom; ++i) {
      for (std::size_t j = region.col / block_cols; j * block_cols < right; ++j) {
        const std::size_t place = places.ScalePlace(i, j, 0);
        if (!places.HasScale(got.scales.size(), place)) return std::nullopt;
        const std::uint32_t here = places.ScaleAt(got.scales, place);
        if (scale && *scale != here) return std::nullopt;
        scale = here;
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
  // Blocks of the parts may be equal by chance, so the parts may be wider than their differences.
  const Run all_rows{0, grid.rows}, all_cols{0, grid.cols};
  for (const Run& run : {col_runs.size() == 1 ? col_runs[0] : all_cols, all_cols}) {
    if (two_rows.size() == 2) add(two_rows[0], run, two_rows[1].first, run.first);
  }
  for (const Run& run : {row_runs.size() == 1 ? row_runs[0] : all_rows, all_rows}) {
    if (two_cols.size() == 2) add(run, two_cols[0], run.first, two_cols[1].first);
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
      return StaleAmaxes(kernel, matcher, ReadFrom::kBoth);
    case ValueKind::kFactorAmax:
      return StaleAmaxes(kernel, matcher, ReadFrom::kCodes);
    case ValueKind::kScaleAmax:
      return StaleAmaxes(kernel, matcher, ReadFrom::kScales);
    case ValueKind::kAmaxParts:
      return PartsToTry(kernel, matcher);
    case ValueKind::kLastCols:
      return LastCols(kernel, matcher, extent);
    case ValueKind::kTimes:
      return Factors(kernel, matcher);
    case ValueKind::kFirstCols:
      return FirstCols(kernel, matcher);
    case ValueKind::kLeastAmax:
      return LeastAmaxes();
    case ValueKind::kRowTurns:
      return RowTurns(matcher);
    case ValueKind::kFoldedParts:
      return FoldedParts(kernel, matcher);
    case ValueKind::kColumnOrder:  // swapped pairs are another order of nibbles
      return Enumerated(RowOrder::kInterleaved, RowOrder::kReversed);
    case ValueKind::kRowOrder:
      return Enumerated(RowOrder::kPairsSwapped, RowOrder::kReversed);
    case ValueKind::kBefore:
      return Enumerated(FactorOfBlock::kBefore, FactorOfBlock::kBeforeAround);
    case ValueKind::kUnwritten:
      return UnwrittenParts(kernel, matcher, extent);
    case ValueKind::kSwapped:
      return SwappedPairs(kernel, matcher, extent);
  }
  return {};
}

}  // namespace fp4lab
