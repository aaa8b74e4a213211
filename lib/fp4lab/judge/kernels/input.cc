// The matrix that a kernel quantizes, and the amax that the kernel finds in it.
#include <algorithm>
#include <bit>
#include <cmath>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/judge/kernels/evaluate.h"
#include "fp4lab/quantize/diagnostics/statistic.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {
namespace {

// One result of a Hadamard transform that is wrong (without its factor, without its last rounding,
// with the signs on the results), or of numbers that are not BF16, which RandomHadamard does not
// take. Sums in binary64 are exact for groups that span up to 40 binades.
float OddHadamardElement(const InputPlan& plan, const float* x, int j) {
  // The mask is chosen outside of the loop: GCC 12 moves a choice within it out and then sums
  // nothing (-funswitch-loops).
  const std::uint32_t mask = plan.signs_after ? 0u : plan.sign_mask;
  double sum = 0.0;
  for (int k = 0; k < plan.hadamard; ++k) {
    const auto odd = static_cast<std::uint32_t>(std::popcount(static_cast<unsigned>(j & k)));
    const double negative = (mask >> k ^ odd) & 1u;
    sum += (1.0 - 2.0 * negative) * static_cast<double>(x[k]);
  }
  const float factor = plan.hadamard == 16 ? 0.25f : kInverseSqrt32;
  float y = static_cast<float>(sum);
  if (plan.normalised) y *= factor;
  if (plan.bf16_result) y = RoundToBf16(y);
  // A row of the matrix is negated, so a sum of 0 stays +0.
  const bool negative = (j == plan.negated_result && y != 0.0f) ||
                        (plan.signs_after && (plan.sign_mask >> j & 1u) != 0);
  return negative ? -y : y;
}

void Transform(const InputPlan& plan, Matrix<float>* m) {
  const bool right =
      plan.normalised && plan.bf16_result && !plan.signs_after && plan.negated_result < 0;
  const auto is_bf16 = [](float x) { return (std::bit_cast<std::uint32_t>(x) & 0xFFFFu) == 0; };
  if (right && std::all_of(m->values.begin(), m->values.end(), is_bf16)) {
    RandomHadamard(m->View(), plan.hadamard, plan.sign_mask, m->View());
    return;
  }
  std::vector<float> group(static_cast<std::size_t>(plan.hadamard));
  for (std::size_t at = 0; at < m->values.size(); at += group.size()) {
    for (int j = 0; j < plan.hadamard; ++j) {
      group[static_cast<std::size_t>(j)] = OddHadamardElement(plan, m->values.data() + at, j);
    }
    std::copy(group.begin(), group.end(), m->values.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

float Rounded(const InputPlan& plan, float value) {
  value *= plan.times;
  if (plan.rounded) {
    value = Decode(*plan.rounded,
                   Encode(*plan.rounded, value, Rounding::kNearestEven, 0, Overflow::kSpecial));
  }
  const bool subnormal = value != 0.0f && Magnitude(value) < kFloatMin;
  return plan.flushed && subnormal ? std::copysign(0.0f, value) : value;
}

// The row of `rows` that is read in the place of row r, or the column.
std::size_t SourceOf(RowOrder order, std::size_t r, std::size_t rows) {
  const std::size_t half = rows / 2;
  switch (order) {
    case RowOrder::kPairsSwapped:
      return (r ^ 1) < rows ? r ^ 1 : r;
    case RowOrder::kInterleaved:
      return rows % 2 == 0 ? r % 2 * half + r / 2 : r;
    case RowOrder::kDeinterleaved:
      return rows % 2 != 0 ? r : r < half ? 2 * r : 2 * (r - half) + 1;
    case RowOrder::kReversed:
      return rows - 1 - r;
    case RowOrder::kKept:
      break;
  }
  return r;
}

// The row of `rows` that is read in the place of row r where parts of the rows take turns.
std::size_t RowInTurn(const InputPlan& plan, std::size_t r, std::size_t rows) {
  const std::size_t parts = plan.row_parts, group = plan.row_group;
  if (parts == 0 || rows % (parts * group) != 0) return r;
  const std::size_t turns = rows / (parts * group);
  return (r / group % parts * turns + r / (parts * group)) * group + r % group;
}

float InputElement(const InputPlan& plan, MatrixView<const float> x, std::size_t r, std::size_t c) {
  const std::size_t rows = plan.transposed ? x.cols : x.rows;
  const std::size_t cols = plan.transposed ? x.rows : x.cols;
  if (c + plan.cols_dropped >= cols) return 0.0f;
  r = RowInTurn(plan, SourceOf(plan.rows, r, rows), rows);
  c = SourceOf(plan.cols, c, cols);
  if (plan.transposed) std::swap(r, c);
  float value = 0.0f;
  if (plan.shift == 0) {
    value = x(r, c);
  } else {
    const auto at = static_cast<std::ptrdiff_t>(r * x.cols + c) + plan.shift;
    const bool inside = at >= 0 && at < static_cast<std::ptrdiff_t>(x.size());
    const auto i = static_cast<std::size_t>(at);
    if (inside) value = x(i / x.cols, i % x.cols);
  }
  return Rounded(plan, value);
}

// The largest magnitude of the quantized matrix, or its largest signed value for kLargestSigned.
float LargestOf(const KernelPlan& plan, MatrixView<const float> input) {
  if (plan.tensor.amax == AmaxFrom::kLargestSigned) {
    float largest = 0.0f;
    for (std::size_t r = 0; r < input.rows; ++r) {
      for (std::size_t c = 0; c < input.cols; ++c) largest = std::max(largest, input(r, c));
    }
    return largest;
  }
  return MaxMagnitudeOf(input, plan.kernel.dialect.nan == NanRule::kTensor);
}

// The larger of two amaxes; NaN if one is NaN.
float LargerAmax(float a, float b) { return a != a || a > b ? a : b; }

// The number to store, of the amaxes of the parts (from amax[1] on) and of the matrix.
float StoredOf(const AmaxParts& parts, const std::vector<float>& amax, float whole) {
  switch (parts.stored) {
    case AmaxParts::Stored::kFirst:
      return amax[1];
    case AmaxParts::Stored::kLast:
      return amax.back();
    case AmaxParts::Stored::kWhole:
      break;
  }
  return whole;
}

// The number to store, and the amax of every part.
std::vector<float> AmaxOfParts(const KernelPlan& plan, MatrixView<const float> x) {
  const AmaxParts& parts = plan.tensor.parts;
  const Matrix<float> input = InputOf(plan.input, x);
  const std::size_t end = parts.by_columns ? input.cols : input.rows;
  std::vector<float> amax = {0.0f};
  if (parts.in_turn != 0) {
    amax.resize(1 + parts.in_turn, 0.0f);
    for (std::size_t r = 0; r < input.rows; ++r) {
      float& part = amax[1 + parts.PartOf(r, 0)];
      part = LargerAmax(part, LargestOf(plan, input.View().Block(r, 0, 1, input.cols)));
    }
    amax[0] = StoredOf(parts, amax, LargestOf(plan, input.View()));
    return amax;
  }
  for (std::size_t k = 0; k < parts.Count(); ++k) {
    const std::size_t first = std::min<std::size_t>(k == 0 ? 0 : parts.starts[k - 1], end);
    const std::size_t last =
        k + 1 == parts.Count() ? end : std::min<std::size_t>(parts.starts[k], end);
    amax.push_back(LargestOf(plan, parts.by_columns
                                       ? input.View().Block(0, first, input.rows, last - first)
                                       : input.View().Block(first, 0, last - first, input.cols)));
  }
  amax[0] = StoredOf(parts, amax, LargestOf(plan, input.View()));
  return amax;
}

std::vector<float> FoundAmax(const KernelPlan& plan, MatrixView<const float> x) {
  if (plan.tensor.amax == AmaxFrom::kParts) return AmaxOfParts(plan, x);
  std::size_t rows = plan.input.transposed ? x.cols : x.rows;
  if (plan.tensor.amax == AmaxFrom::kWithoutLastRows) {
    rows -= std::min(rows, plan.tensor.rows_left_out);
  }
  const std::size_t cols = plan.input.transposed ? x.rows : x.cols;
  const bool by_row = plan.kernel.dialect.row_scaled;
  const bool first_block = plan.tensor.amax == AmaxFrom::kFirstBlock;
  const bool first_row = plan.tensor.amax == AmaxFrom::kFirstRow;
  std::size_t width = cols;
  if (first_block) {
    width = std::min(cols, static_cast<std::size_t>(std::max(1, plan.kernel.dialect.block_cols)));
  }
  if (plan.tensor.amax == AmaxFrom::kFirstCols) width = std::min(cols, plan.tensor.first_cols);
  const std::size_t height =
      !by_row && (first_block || first_row) ? std::min<std::size_t>(rows, 1) : rows;
  // Roundings are monotone and odd, so the rounded largest magnitude is the largest of the rounded.
  // The largest magnitude of a whole matrix does not depend on the order of rows and columns.
  const bool whole = plan.tensor.amax == AmaxFrom::kTensor && !by_row;
  const bool in_order = plan.input.rows == RowOrder::kKept && plan.input.cols == RowOrder::kKept &&
                        plan.input.row_parts == 0;
  const bool in_place = plan.input.hadamard == 0 && plan.input.shift == 0 && (whole || in_order) &&
                        plan.input.cols_dropped == 0;
  Matrix<float> copy;
  MatrixView<const float> input =
      (plan.input.transposed ? x.Transposed() : x).Block(0, 0, height, width);
  if (!in_place) {
    copy = InputOf(plan.input, x, 0, 0, height, width);
    input = copy.View();
  }
  std::vector<float> amax;
  for (std::size_t r = 0; r < (by_row ? rows : 1); ++r) {
    const float largest = LargestOf(plan, by_row ? input.Block(r, 0, 1, width) : input);
    amax.push_back(in_place ? Rounded(plan.input, largest) : largest);
  }
  return amax;
}

}  // namespace

std::size_t AmaxParts::Count() const {
  if (in_turn != 0) return in_turn;
  return 1 + static_cast<std::size_t>(
                 std::count_if(starts.begin(), starts.end(), [](auto s) { return s != 0; }));
}

std::size_t AmaxParts::PartOf(std::size_t row, std::size_t col) const {
  if (in_turn != 0) return row / group % in_turn;
  const std::size_t at = by_columns ? col : row;
  return static_cast<std::size_t>(std::count_if(starts.begin(), starts.end(),
                                                [&](std::size_t s) { return s != 0 && s <= at; }));
}

Matrix<float> InputOf(const InputPlan& plan, MatrixView<const float> x, std::size_t r,
                      std::size_t c, std::size_t rows, std::size_t cols) {
  const auto size = static_cast<std::size_t>(std::max(1, plan.hadamard));
  const std::size_t first = c / size * size;  // whole groups of the transform
  const std::size_t last = RoundUp(c + cols, size);
  Matrix<float> wide(rows, last - first);
  const std::size_t limit = plan.transposed ? x.rows : x.cols;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = first; j < std::min(last, limit); ++j) {
      wide(i, j - first) = InputElement(plan, x, r + i, j);
    }
  }
  if (plan.hadamard != 0) Transform(plan, &wide);
  if (first == c && last == c + cols) return wide;
  Matrix<float> out(rows, cols);
  for (std::size_t i = 0; i < rows; ++i) {
    std::copy_n(&wide(i, c - first), cols, &out(i, 0));
  }
  return out;
}

Matrix<float> InputOf(const InputPlan& plan, MatrixView<const float> x) {
  return plan.transposed ? InputOf(plan, x, 0, 0, x.cols, x.rows)
                         : InputOf(plan, x, 0, 0, x.rows, x.cols);
}

std::vector<float> AmaxOf(const KernelPlan& plan, MatrixView<const float> x,
                          const DialectOptions& options) {
  const IeeeArithmetic ieee;
  const Dialect& d = plan.kernel.dialect;
  if (!HasTensorScale(d)) return {};
  const std::size_t wanted = !d.row_scaled ? 1 : plan.input.transposed ? x.cols : x.rows;
  const bool given = plan.tensor.amax == AmaxFrom::kTensor && options.amax.size() == wanted;
  std::vector<float> amax;
  if (plan.tensor.amax == AmaxFrom::kGiven) {
    amax.assign(wanted, plan.tensor.given);
  } else {
    amax = given ? options.amax : FoundAmax(plan, x);
  }
  if (plan.tensor.rounded) {
    for (float& a : amax) {
      a = Decode(*plan.tensor.rounded,
                 Encode(*plan.tensor.rounded, a, Rounding::kNearestEven, 0, Overflow::kSpecial));
    }
  }
  return amax;
}

}  // namespace fp4lab
