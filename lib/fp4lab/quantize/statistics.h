// Diagnostics of a quantized tensor: a table with one number per row. Training logs, run records,
// results.json and reports range over the table.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// An element x and its decoded value y = element value * block scale * OperandDecode. Both are
// finite.
struct MeasuredElement {
  double x = 0.0, y = 0.0;
  bool at_largest = false;  // the code is the element format's largest magnitude
};

// Whether a nonzero element is decoded to 0: it was rounded to zero, or its block's scale is 0.
constexpr bool Underflows(const MeasuredElement& e) { return e.x != 0.0 && e.y == 0.0; }
// Whether the element was beyond the largest magnitude of its block and saturated to it.
constexpr bool IsClipped(const MeasuredElement& e) {
  const double x = e.x < 0.0 ? -e.x : e.x, y = e.y < 0.0 ? -e.y : e.y;
  return e.at_largest && y != 0.0 && x > y;
}

// 100 part / whole; 0 if whole is 0.
double Percent(double part, double whole);
// 10 log10(signal / noise); 0 without signal, Inf without noise.
double Decibel(double signal, double noise);

// An outlier is an element beyond so many times the tensor's root mean square; two in a thousand
// million elements of a Gaussian tensor are.
inline constexpr double kOutlierRms = 6.0;

// The accumulators of a diagnostic: three sums and a maximum, which each diagnostic uses in its own
// way.
struct Tally {
  double part = 0.0, whole = 0.0, count = 0.0, largest = 0.0;
  double rms = 0.0;  // of the measured elements of the tensor; known before any element is added
};

// A diagnostic: one number per tensor. To add a diagnostic, add a row to the table in
// statistics.cc.
struct Diagnostic {
  std::string_view key;         // its member in run records and results.json
  std::string_view log_key;     // in diagnostics.jsonl; Transformer Engine's debug statistic of the
                                // same meaning, where there is one
  std::string_view name;        // "Signal to quantization noise"
  std::string_view label;       // "SQNR": heads of columns, axes
  std::string_view unit;        // "dB", "%"; empty: the tensor's own
  std::string_view definition;  // over the elements x and their quantized values q
  std::string_view reading;     // sentences: how to read the number
  int digits = 0;               // after the point, in tables; 0: three significant ones
  // Every report has a column for the diagnostic in its table of operands. If this names a file
  // ("sqnr.svg"), the report has a figure by operand, too.
  std::string_view figure;
  void (*add)(std::span<const MeasuredElement> elements, Tally* tally);
  double (*value)(const Tally& tally);  // finite
};
std::span<const Diagnostic> Diagnostics();

// A number for each of Diagnostics(), in that order; NaN where it was not measured (files of
// versions that did not have it).
struct DiagnosticValues {
  std::vector<double> numbers =
      std::vector<double>(Diagnostics().size(), std::numeric_limits<double>::quiet_NaN());

  double operator[](std::string_view key) const;  // Expects a key of the table
};

// Elements that are not finite, or whose y is not finite (a block scale of NaN, or beyond
// binary32), are counted in not_finite and excluded from all diagnostics.
struct QuantizationStatistics {
  DiagnosticValues values;
  std::size_t elements = 0;    // measured
  std::size_t not_finite = 0;  // excluded
};

// Measures x against its quantization. Sums are in double, a row at a time in ascending order, then
// over rows in ascending order.
QuantizationStatistics MeasureQuantization(const Dialect& dialect, MatrixView<const float> x,
                                           const Quantized& quantized);

// Quantizes x first, with the dialect and the options (including options.amax).
QuantizationStatistics MeasureQuantization(const Dialect& dialect, MatrixView<const float> x,
                                           const DialectOptions& options = {});

}  // namespace fp4lab
