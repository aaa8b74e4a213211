// The operands that a scheme makes of Q, K and V.
#include <algorithm>
#include <cmath>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/tensor_scale_stage.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/attention/attention.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {
namespace {

constexpr std::string_view kPlain = "bf16";

// Rows first .. first + rows - 1.
Matrix<float> RowsFrom(const Matrix<float>& x, std::size_t first, std::size_t rows) {
  Matrix<float> part(rows, x.cols);
  std::copy_n(x.values.begin() + static_cast<std::ptrdiff_t>(first * x.cols), part.values.size(),
              part.values.begin());
  return part;
}

Matrix<float> TransposedRows(const Matrix<float>& x) {
  Matrix<float> t(x.cols, x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) t(c, r) = x(r, c);
  }
  return t;
}

// The mean of rows first .. end - 1 of each column, where `count` rows are counted (the others are
// zeros), rounded to BF16.
std::vector<float> MeanOfRows(const Matrix<float>& x, std::size_t first, std::size_t end,
                              std::size_t count) {
  std::vector<float> mean(x.cols);
  for (std::size_t c = 0; c < x.cols; ++c) {
    double sum = 0;
    for (std::size_t r = first; r < end; ++r) sum += x(r, c);
    mean[c] = RoundToBf16(static_cast<float>(sum / static_cast<double>(count)));
  }
  return mean;
}

void SubtractMean(Matrix<float>& x, std::size_t first, std::size_t end,
                  const std::vector<float>& mean) {
  for (std::size_t r = first; r < end; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) x(r, c) = RoundToBf16(x(r, c) - mean[c]);
  }
}

void AppendRows(AttentionOperand& x, const AttentionOperand& rows) {
  const bool first = x.codes.rows == 0;
  if (first) {
    x = rows;
    return;
  }
  x.codes.rows += rows.codes.rows;
  x.codes.codes.insert(x.codes.codes.end(), rows.codes.codes.begin(), rows.codes.codes.end());
  x.codes.scales.insert(x.codes.scales.end(), rows.codes.scales.begin(), rows.codes.scales.end());
  x.decode.insert(x.decode.end(), rows.decode.begin(), rows.decode.end());
}

// amax: of the tensor; 0: that of x.
AttentionOperand Quantized1(const Matrix<float>& x, const Dialect& dialect, float amax) {
  std::vector<float> given;
  if (amax > 0.0f && HasTensorScale(dialect)) given.push_back(amax);
  const Quantized q = QuantizeAs(dialect, x.View(), {.amax = given});
  AttentionOperand operand;
  operand.codes =
      MakeMmaOperand(FormatOf(dialect.element), {q.codes.data(), q.rows, q.cols},
                     FormatOf(dialect.scale), dialect.block_rows, dialect.block_cols, q.scales);
  if (HasTensorScale(dialect)) {
    operand.decode.assign(x.rows, TensorScaleOf(dialect, q.amax.at(0)).decode);
  }
  return operand;
}

AttentionOperand OperandUnder(const Matrix<float>& x, std::string_view name,
                              const AttentionScheme& scheme, bool along_rows, float amax = 0.0f) {
  const Matrix<float> given = along_rows ? TransposedRows(x) : x;
  if (name == kPlain) {
    return {.codes = MakeMmaOperand(FormatOf(FormatId::kBF16), given.View())};
  }
  const Dialect& dialect = *FindDialect(name);
  const std::size_t step = scheme.scale_rows == 0 || along_rows ? given.rows : scheme.scale_rows;
  AttentionOperand operand;
  for (std::size_t r = 0; r < given.rows; r += step) {
    const Matrix<float> part = RowsFrom(given, r, std::min(step, given.rows - r));
    AppendRows(operand, Quantized1(part, dialect, amax));
  }
  operand.decoded_to_bf16 = scheme.decoded_to_bf16;
  return operand;
}

float LargestOf(const Matrix<float>& x) {
  float largest = 0.0f;
  for (const float v : x.values) largest = std::max(largest, std::abs(v));
  return largest;
}

std::string ShapeText(const Matrix<float>& x) {
  return std::to_string(x.rows) + "x" + std::to_string(x.cols);
}

}  // namespace

void CheckAttention(const AttentionInputs& in, const AttentionScheme& scheme,
                    std::string_view where) {
  const IeeeArithmetic ieee;
  if (in.heads == 0 || in.kv_heads == 0 || in.heads % in.kv_heads != 0) {
    throw Error(where, std::to_string(in.heads) + " heads of Q on " + std::to_string(in.kv_heads) +
                           " heads of K and V: the first number is a multiple of the second");
  }
  if (in.k.rows != in.v.rows || in.k.cols != in.v.cols || in.q.cols != in.k.cols) {
    throw Error(where, "Q is " + ShapeText(in.q) + ", K " + ShapeText(in.k) + ", V " +
                           ShapeText(in.v) +
                           " (rows of all heads x channels): K and V have one shape, and all have "
                           "the same channels");
  }
  if (in.q.rows == 0 || in.k.rows == 0 || in.q.cols == 0) {
    throw Error(where, "Q, K and V have no elements: nothing is compared");
  }
  if (in.q.rows % in.heads != 0 || in.k.rows % in.kv_heads != 0) {
    throw Error(where, std::to_string(in.q.rows) + " rows of Q for " + std::to_string(in.heads) +
                           " heads, " + std::to_string(in.k.rows) + " of K for " +
                           std::to_string(in.kv_heads) + ": rows are heads times tokens");
  }
  if (!std::isfinite(in.scale)) throw Error(where, "the scale of the logits is not finite");
  for (const std::string_view name : {scheme.q, scheme.k, scheme.v}) {
    if (name != kPlain && FindDialect(name) == nullptr) {
      throw Error(where, std::string(name) + " is not a dialect");
    }
  }
}

Matrix<double> ValuesOf(const AttentionOperand& x) {
  const IeeeArithmetic ieee;
  Matrix<double> values = ExactValues(x.codes);
  if (!x.decoded_to_bf16) return values;
  for (std::size_t i = 0; i < values.values.size(); ++i) {
    const double decode = x.decode.empty() ? 1.0 : x.decode[i / values.cols];
    values.values[i] = RoundToBf16(static_cast<float>(values.values[i] * decode));
  }
  return values;
}

AttentionPlan PlanOf(const AttentionInputs& in, const AttentionScheme& scheme) {
  const IeeeArithmetic ieee;
  AttentionPlan plan{.scheme = scheme, .in = in};
  const std::size_t queries = in.Queries(), keys = in.Keys(), width = in.q.cols;
  plan.scale = in.scale == 0.0 ? 1.0 / std::sqrt(static_cast<double>(width)) : in.scale;
  plan.causal = in.causal;
  plan.diagonal = static_cast<std::ptrdiff_t>(keys) - static_cast<std::ptrdiff_t>(queries);
  plan.output = in.output;
  plan.keys = keys;
  plan.sums_rounded_weights = scheme.sums_rounded;
  for (std::size_t h = 0; h < in.heads; ++h) plan.kv_of.push_back(h / (in.heads / in.kv_heads));

  const auto rounded = [](Matrix<float> x) {
    for (float& v : x.values) v = RoundToBf16(v);
    return x;
  };
  std::vector<Matrix<float>> k;  // without its mean
  std::vector<float> mean_of_all;
  const Matrix<float> all_keys = rounded(in.k);
  if (scheme.k_mean_of_all) mean_of_all = MeanOfRows(all_keys, 0, all_keys.rows, all_keys.rows);
  for (std::size_t h = 0; h < in.kv_heads; ++h) {
    k.push_back(RowsFrom(all_keys, h * keys, keys));
    if (scheme.k_mean) {
      SubtractMean(k[h], 0, keys,
                   scheme.k_mean_of_all ? mean_of_all : MeanOfRows(k[h], 0, keys, keys));
    }
    plan.k.push_back(OperandUnder(k[h], scheme.k, scheme, false));
    plan.v.push_back(OperandUnder(rounded(RowsFrom(in.v, h * keys, keys)), scheme.v, scheme,
                                  scheme.v_along_keys));
  }
  for (std::size_t h = 0; h < in.heads; ++h) {
    Matrix<float> q = rounded(RowsFrom(in.q, h * queries, queries));
    if (const std::size_t group = scheme.q_mean_rows; group > 0) {
      const Matrix<float>& keys_of = k[plan.kv_of[h]];
      Matrix<double> correction((queries + group - 1) / group, keys);
      for (std::size_t g = 0; g < correction.rows; ++g) {
        const std::size_t end = std::min((g + 1) * group, queries);
        const std::vector<float> mean = MeanOfRows(q, g * group, end, group);
        SubtractMean(q, g * group, end, mean);
        for (std::size_t j = 0; j < keys; ++j) {
          double sum = 0;
          for (std::size_t c = 0; c < width; ++c) sum += double{mean[c]} * keys_of(j, c);
          correction(g, j) = sum;
        }
      }
      plan.correction.push_back(std::move(correction));
    }
    const std::size_t share = in.heads / in.kv_heads, group_rows = share * queries;
    const float amax =
        scheme.q_scale_of_group
            ? LargestOf(rounded(RowsFrom(in.q, plan.kv_of[h] * group_rows, group_rows)))
            : 0.0f;
    plan.q.push_back(OperandUnder(q, scheme.q, scheme, false, amax));
  }
  return plan;
}

}  // namespace fp4lab
