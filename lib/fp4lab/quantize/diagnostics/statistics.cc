#include "fp4lab/quantize/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/operand.h"

namespace fp4lab {
namespace {

using Elements = std::span<const MeasuredElement>;

double PercentOf(const Tally& t) { return Percent(t.part, t.whole); }

// 0 for a tensor of zeros, and for one so small that its squares are.
double KurtosisOf(const Tally& t) {
  const double squares = t.whole * t.whole;
  return squares > 0.0 ? t.count * t.part / squares : 0.0;
}

constexpr double kMostDecibel = 3000.0;  // the SQNR of an exact copy: JSON has no infinity

constexpr std::array kDiagnostics = {
    Diagnostic{
        .key = "amax",
        .log_key = "amax",
        .name = "Largest magnitude",
        .label = "amax",
        .unit = "",
        .definition = "max |x|",
        .reading = "The range that the scales have to cover.",
        .digits = 0,
        .figure = "",
        .add =
            [](Elements elements, Tally* t) {
              for (const MeasuredElement& e : elements) {
                t->largest = std::max(t->largest, std::fabs(e.x));
              }
            },
        .value = [](const Tally& t) { return t.largest; },
    },
    Diagnostic{
        .key = "underflow_percent",
        .log_key = "underflows%",  // TE divides by all elements
        .name = "Underflow",
        .label = "underflow",
        .unit = "%",
        .definition = "share of the non-zero elements with q = 0",
        .reading = "Elements that are too small for their block's scale are decoded to 0.",
        .digits = 2,
        .figure = "",
        .add =
            [](Elements elements, Tally* t) {
              for (const MeasuredElement& e : elements) {
                t->part += Underflows(e) ? 1.0 : 0.0;
                t->whole += e.x != 0.0 ? 1.0 : 0.0;
              }
            },
        .value = PercentOf,
    },
    Diagnostic{
        .key = "clip_percent",
        .log_key = "clip%",
        .name = "Clipping",
        .label = "clipped",
        .unit = "%",
        .definition =
            "share of the elements beyond the largest magnitude of their block, |x| > |q|",
        .reading = "Scales that round down clip the largest elements.",
        .digits = 2,
        .figure = "",
        .add =
            [](Elements elements, Tally* t) {
              for (const MeasuredElement& e : elements) t->part += IsClipped(e) ? 1.0 : 0.0;
              t->whole += static_cast<double>(elements.size());
            },
        .value = PercentOf,
    },
    Diagnostic{
        .key = "sqnr_db",
        .log_key = "sqnr",
        .name = "Signal to quantization noise",
        .label = "SQNR",
        .unit = "dB",
        .definition = "10 log10(sum x^2 / sum (x - q)^2)",
        .reading = "6 dB is a factor of two in relative error. Stochastic rounding lowers the "
                   "SQNR in exchange for an unbiased mean.",
        .digits = 2,
        .figure = "sqnr.svg",
        .add =
            [](Elements elements, Tally* t) {
              for (const MeasuredElement& e : elements) {
                t->whole += e.x * e.x;
                t->part += (e.x - e.y) * (e.x - e.y);
              }
            },
        .value = [](const Tally& t) { return std::min(Decibel(t.whole, t.part), kMostDecibel); },
    },
    Diagnostic{
        .key = "bias_percent",
        .log_key = "bias%",
        .name = "Bias of magnitudes",
        .label = "bias",
        .unit = "%",
        .definition = "sum (q - x) sign(x) / sum |x|",
        .reading = "Negative: quantization shrinks the tensor; positive: it grows. With stochastic "
                   "rounding only clipping causes a bias. The bias matters more, relative to "
                   "noise, the longer the sums of a GEMM are.",
        .digits = 3,
        .figure = "",
        .add =
            [](Elements elements, Tally* t) {
              for (const MeasuredElement& e : elements) {
                t->part += e.x < 0.0 ? e.x - e.y : e.x > 0.0 ? e.y - e.x : 0.0;
                t->whole += std::fabs(e.x);
              }
            },
        .value = PercentOf,
    },
    Diagnostic{
        .key = "kurtosis",
        .log_key = "kurtosis",
        .name = "Kurtosis",
        .label = "kurtosis",
        .unit = "",
        .definition = "n sum x^4 / (sum x^2)^2, over the n elements",
        .reading = "3 for Gaussian numbers; above it, few large elements hold most of the energy, "
                   "and set the scales of their blocks.",
        .digits = 0,
        .figure = "",
        .add =
            [](Elements elements, Tally* t) {
              for (const MeasuredElement& e : elements) {
                const double square = e.x * e.x;
                t->part += square * square;
                t->whole += square;
              }
              t->count += static_cast<double>(elements.size());
            },
        .value = [](const Tally& t) { return KurtosisOf(t); },
    },
    Diagnostic{
        .key = "crest_factor",
        .log_key = "crest",
        .name = "Crest factor",
        .label = "crest",
        .unit = "",
        .definition = "max |x| / root mean square of x",
        .reading = "How far the largest element stands out: 4 to 5 for a million Gaussian numbers.",
        .digits = 0,
        .figure = "",
        .add =
            [](Elements elements, Tally* t) {
              for (const MeasuredElement& e : elements) {
                t->largest = std::max(t->largest, std::fabs(e.x));
                t->part += e.x * e.x;
              }
              t->whole += static_cast<double>(elements.size());
            },
        .value =
            [](const Tally& t) {
              return t.part > 0.0 ? t.largest / std::sqrt(t.part / t.whole) : 0.0;
            },
    },
    Diagnostic{
        .key = "outlier_percent",
        .log_key = "outliers%",
        .name = "Outliers",
        .label = "outliers",
        .unit = "%",
        .definition = "share of the elements with |x| above 6 times the root mean square of x",
        .reading = "A block with an outlier has a scale that its other elements are too small for.",
        .digits = 3,
        .figure = "",
        .add =
            [](Elements elements, Tally* t) {
              for (const MeasuredElement& e : elements) {
                t->part += std::fabs(e.x) > kOutlierRms * t->rms ? 1.0 : 0.0;
              }
              t->whole += static_cast<double>(elements.size());
            },
        .value = PercentOf,
    },
};

void Join(const Tally& from, Tally* to) {
  to->part += from.part;
  to->whole += from.whole;
  to->count += from.count;
  to->largest = std::max(to->largest, from.largest);
}

// The finite elements of row r with their decoded values.
std::vector<MeasuredElement> RowOf(const Dialect& d, const BlockGrid& grid,
                                   MatrixView<const float> x, const Quantized& q, std::size_t r) {
  const double decode = OperandDecode(d, TensorScaleOfRow(d, q.amax, r).amax);
  const float largest = MaxFinite(d.element);
  std::vector<MeasuredElement> row;
  row.reserve(x.cols);
  for (std::size_t c = 0; c < x.cols; ++c) {
    const float value = Decode(d.element, q.codes[r * x.cols + c]);
    const double y = double{value * ScaleAt(d, grid, q, r, c)} * decode;
    if (!std::isfinite(x(r, c)) || !std::isfinite(y)) continue;
    row.push_back({.x = x(r, c), .y = y, .at_largest = std::fabs(value) >= largest});
  }
  return row;
}

// Over the elements that RowOf gives.
double RootMeanSquare(const Dialect& d, const BlockGrid& grid, MatrixView<const float> x,
                      const Quantized& q) {
  std::vector<double> squares(x.rows), counts(x.rows);
  ParallelFor(x.rows, [&](std::size_t r) {
    for (const MeasuredElement& e : RowOf(d, grid, x, q, r)) {
      squares[r] += e.x * e.x;
      counts[r] += 1.0;
    }
  });
  const double count = std::accumulate(counts.begin(), counts.end(), 0.0);
  return count > 0.0 ? std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0) / count)
                     : 0.0;
}

}  // namespace

std::span<const Diagnostic> Diagnostics() { return kDiagnostics; }

double DiagnosticValues::operator[](std::string_view key) const {
  const auto row = std::find_if(kDiagnostics.begin(), kDiagnostics.end(),
                                [&](const Diagnostic& d) { return d.key == key; });
  Expects(row != kDiagnostics.end(), "a key of Diagnostics()");
  return numbers[static_cast<std::size_t>(row - kDiagnostics.begin())];
}

double Percent(double part, double whole) {
  const IeeeArithmetic ieee;
  return whole == 0.0 ? 0.0 : 100.0 * part / whole;
}

double Decibel(double signal, double noise) {
  const IeeeArithmetic ieee;
  if (signal == 0.0) return 0.0;
  if (noise == 0.0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(signal / noise);
}

QuantizationStatistics MeasureQuantization(const Dialect& dialect, MatrixView<const float> x,
                                           const Quantized& quantized) {
  const IeeeArithmetic ieee;
  Expects(quantized.rows == x.rows && quantized.cols == x.cols, "quantized has the shape of x");
  struct Row {
    std::array<Tally, kDiagnostics.size()> tallies;
    std::size_t elements = 0;
  };
  const BlockGrid grid(dialect, x.rows, x.cols);
  std::vector<Row> rows(x.rows);
  const double rms = RootMeanSquare(dialect, grid, x, quantized);
  ParallelFor(x.rows, [&](std::size_t r) {
    const std::vector<MeasuredElement> elements = RowOf(dialect, grid, x, quantized, r);
    rows[r].elements = elements.size();
    for (Tally& tally : rows[r].tallies) tally.rms = rms;
    for (std::size_t i = 0; i < kDiagnostics.size(); ++i) {
      kDiagnostics[i].add(elements, &rows[r].tallies[i]);
    }
  });
  Row all;
  for (const Row& row : rows) {
    all.elements += row.elements;
    for (std::size_t i = 0; i < kDiagnostics.size(); ++i) Join(row.tallies[i], &all.tallies[i]);
  }
  QuantizationStatistics statistics;
  for (std::size_t i = 0; i < kDiagnostics.size(); ++i) {
    statistics.values.numbers[i] = kDiagnostics[i].value(all.tallies[i]);
  }
  statistics.elements = all.elements;
  statistics.not_finite = x.size() - all.elements;
  return statistics;
}

QuantizationStatistics MeasureQuantization(const Dialect& dialect, MatrixView<const float> x,
                                           const DialectOptions& options) {
  const IeeeArithmetic ieee;
  return MeasureQuantization(dialect, x, QuantizeAs(dialect, x, options));
}

}  // namespace fp4lab
