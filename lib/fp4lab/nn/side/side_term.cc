#include "fp4lab/nn/side/side_term.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/quantize/operand.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {
namespace {

using View = MatrixView<const float>;

// Columns that one call of a loop's body reads: four cache lines of each row.
constexpr std::size_t kBand = 64;
constexpr std::size_t kRows = 16;

// Calls body(first, count) for bands of columns.
template <class Body>
void ForColumns(std::size_t columns, Body&& body) {
  ParallelFor(DivideUp(columns, kBand), [&](std::size_t band) {
    const std::size_t first = band * kBand;
    body(first, std::min(kBand, columns - first));
  });
}

// Calls body(r) for every row, several at a time.
template <class Body>
void ForRows(std::size_t rows, Body&& body) {
  ParallelFor(DivideUp(rows, kRows), [&](std::size_t piece) {
    const std::size_t end = std::min(rows, (piece + 1) * kRows);
    for (std::size_t r = piece * kRows; r < end; ++r) body(r);
  });
}

float Rounded(bool bf16, float x) { return bf16 ? RoundToBf16(x) : x; }

// R(x) in x's memory order; x itself if there is nothing to round.
View Rounded(bool bf16, const LinearInput& input, FloatBuffer* memory) {
  const View x = input.x;
  if (!bf16 || input.rounded) return x;
  Reserve(memory, x.size());
  if (x.col_stride == 1) {
    const MatrixView<float> to(memory->data(), x.rows, x.cols);
    RoundBf16(x, to);
    return to;
  }
  const MatrixView<float> to(memory->data(), x.cols, x.rows);
  RoundBf16(x.Transposed(), to);
  return View(to).Transposed();
}

// The sum of each column, over rows ascending, in binary64.
std::vector<double> ColumnSums(View x) {
  std::vector<double> sums(x.cols, 0.0);
  ForColumns(x.cols, [&](std::size_t first, std::size_t count) {
    double* const to = sums.data() + first;
    for (std::size_t r = 0; r < x.rows; ++r) {
      const float* const row = &x(r, first);
      for (std::size_t c = 0; c < count; ++c) to[c] += double{row[c]};
    }
  });
  return sums;
}

// The statistic of each column.
std::vector<double> StatisticsOf(ChannelStatistic by, View x) {
  std::vector<double> statistics(x.cols, 0.0);
  const bool squares = by == ChannelStatistic::kNorm;
  ForColumns(x.cols, [&](std::size_t first, std::size_t count) {
    double* const to = statistics.data() + first;
    for (std::size_t r = 0; r < x.rows; ++r) {
      const float* const row = &x(r, first);
      for (std::size_t c = 0; c < count; ++c) {
        const double value = row[c];
        const double known = std::isnan(value) ? 0.0 : value;
        to[c] = squares ? to[c] + known * known : std::max(to[c], std::fabs(known));
      }
    }
  });
  return statistics;
}

std::vector<std::size_t> HotChannels(const SideTerm& term, View x) {
  const std::vector<double> statistics = StatisticsOf(term.by, x);
  std::vector<std::size_t> channels(x.cols);
  std::iota(channels.begin(), channels.end(), std::size_t{0});
  const auto end = channels.begin() +
                   static_cast<std::ptrdiff_t>(std::min(HotChannelCount(term, x.cols), x.cols));
  std::partial_sort(channels.begin(), end, channels.end(), [&](std::size_t i, std::size_t j) {
    return statistics[i] != statistics[j] ? statistics[i] > statistics[j] : i < j;
  });
  channels.erase(end, channels.end());
  std::sort(channels.begin(), channels.end());
  return channels;
}

MatrixView<float> Room(FloatBuffer* memory, std::size_t rows, std::size_t cols) {
  Reserve(memory, rows * cols);
  return {memory->data(), rows, cols};
}

// Columns of R(x).
MatrixView<float> Gathered(bool bf16, View x, const std::vector<std::size_t>& columns,
                           FloatBuffer* memory) {
  const MatrixView<float> to = Room(memory, x.rows, columns.size());
  ForRows(x.rows, [&](std::size_t r) {
    for (std::size_t i = 0; i < columns.size(); ++i) to(r, i) = Rounded(bf16, x(r, columns[i]));
  });
  return to;
}

void TakeMean(bool bf16, View x, MatrixView<float> rest, std::vector<float>* mean) {
  mean->assign(x.cols, 0.0f);
  if (x.rows == 0) return;
  const std::vector<double> sums = ColumnSums(x);
  const auto tokens = static_cast<double>(x.rows);
  for (std::size_t c = 0; c < x.cols; ++c) {
    (*mean)[c] = Rounded(bf16, static_cast<float>(sums[c] / tokens));
  }
  const float* const mu = mean->data();
  ForRows(x.rows, [&](std::size_t r) {
    const float* const from = &x(r, 0);
    float* const to = &rest(r, 0);
    for (std::size_t c = 0; c < x.cols; ++c) to[c] = from[c] - mu[c];
  });
}

void TakeColumns(View x, MatrixView<float> rest, SplitTensor* out) {
  out->side = Gathered(false, x, out->hot, &out->side_memory);
  ForRows(x.rows, [&](std::size_t r) {
    if (&rest(r, 0) != &x(r, 0)) std::copy_n(&x(r, 0), x.cols, &rest(r, 0));
    for (const std::size_t c : out->hot) rest(r, c) = 0.0f;
  });
}

// Element (r, c) of an operand, without the tensor's or row's scale.
float ValueOf(const LinearOperandValues& x, std::size_t r, std::size_t c) {
  if (!x.has_integers) return x.values(r, c);
  const float scale = x.integers.scales(r / x.integers.block_rows, c / x.block);
  return static_cast<float>(int{x.integers.codes(r, c)} - 12) * (0.5f * scale);
}

}  // namespace

void Split(const SideTerm& term, bool bf16, const LinearInput& x, SplitTensor* out) {
  const IeeeArithmetic ieee;
  Expects(x.x.col_stride == 1 && bool{term}, "Split: a row-major tensor and a side term");
  out->mean.clear();
  out->hot.clear();
  out->side = {};
  const View rounded = Rounded(bf16, x, &out->rest_memory);
  if (term.Is(SideTermKind::kPatch)) {
    out->hot = HotChannels(term, rounded);
    const bool knows_amax = rounded.data == x.x.data;
    out->rest = {rounded, bf16, knows_amax ? x.amax : std::nullopt};
    return;
  }
  // The rest may take the place of x~, if x~ is a copy.
  if (rounded.data == x.x.data) Reserve(&out->rest_memory, rounded.size());
  const MatrixView<float> rest(out->rest_memory.data(), rounded.rows, rounded.cols);
  if (term.Is(SideTermKind::kMean)) {
    TakeMean(bf16, rounded, rest, &out->mean);
  } else {
    out->hot = HotChannels(term, rounded);
    TakeColumns(rounded, rest, out);
  }
  out->rest = {.x = rest, .rounded = bf16};
  if (bf16) out->rest.amax = RoundBf16(rest, rest);
}

void TakeResidual(const OperandRecipe& recipe, bool bf16, const LinearOperandValues& operand,
                  bool turned, SplitTensor* split) {
  const IeeeArithmetic ieee;
  Expects(recipe.format && recipe.hadamard == 0, "TakeResidual: an operand that is quantized only");
  const View x = split->rest.x;
  const Dialect& d = *recipe.format;
  const float decode = operand.row_decode.empty() ? OperandDecode(d, operand.amax) : 1.0f;
  const std::size_t cols = turned ? x.rows : x.cols;
  split->side = Room(&split->side_memory, x.rows, split->hot.size());
  ForRows(x.rows, [&](std::size_t t) {
    for (std::size_t i = 0; i < split->hot.size(); ++i) {
      const std::size_t channel = split->hot[i];
      const std::size_t r = turned ? channel : t, c = turned ? t : channel;
      const float decoded = ValueOf(operand, r, c) * operand.DecodeAt(r, c, cols, decode);
      split->side(t, i) = Rounded(bf16, x(t, channel) - decoded);
    }
  });
}

void AddSideAlongChannels(const SideTerm& term, bool bf16, const SplitTensor& split, View other,
                          SideScratch* scratch, MatrixView<float> c) {
  const IeeeArithmetic ieee;
  if (term.Is(SideTermKind::kMean)) {
    const View b = Rounded(bf16, {other}, &scratch->other);
    const MatrixView<float> row = Room(&scratch->product, 1, c.cols);
    Gemm(View(split.mean.data(), 1, split.mean.size()), b, {}, row);
    ForRows(c.rows, [&](std::size_t r) {
      for (std::size_t j = 0; j < c.cols; ++j) c(r, j) += row(0, j);
    });
    return;
  }
  const MatrixView<float> b = Gathered(bf16, other, split.hot, &scratch->other);
  Gemm(split.side, b, {.accumulate = true}, c);
}

void AddSideAlongTokens(const SideTerm& term, bool bf16, const SplitTensor& split,
                        const LinearInput& other, bool is_gradient, SideScratch* scratch,
                        MatrixView<float> c) {
  const IeeeArithmetic ieee;
  const View b = Rounded(bf16, other, &scratch->other);
  if (term.Is(SideTermKind::kMean)) {
    const std::vector<double> sums = ColumnSums(b);
    std::vector<float> z(sums.size());
    std::transform(sums.begin(), sums.end(), z.begin(),
                   [](double sum) { return static_cast<float>(sum); });
    const std::vector<float>& rows = is_gradient ? split.mean : z;
    const std::vector<float>& cols = is_gradient ? z : split.mean;
    ForRows(c.rows, [&](std::size_t i) {
      for (std::size_t j = 0; j < c.cols; ++j) c(i, j) += rows[i] * cols[j];
    });
    return;
  }
  const std::vector<std::size_t>& hot = split.hot;
  const MatrixView<float> product = Room(&scratch->product, hot.size(), b.cols);
  Gemm(View(split.side).Transposed(), b.Transposed(), {}, product);
  ForColumns(b.cols, [&](std::size_t first, std::size_t count) {
    for (std::size_t j = first; j < first + count; ++j) {
      for (std::size_t i = 0; i < hot.size(); ++i) {
        float& to = is_gradient ? c(hot[i], j) : c(j, hot[i]);
        to += product(i, j);
      }
    }
  });
}

}  // namespace fp4lab
