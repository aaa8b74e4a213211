#include "fp4lab/dialect/describe.h"

#include <cmath>

#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {

std::string BlockText(const Dialect& dialect) {
  if (dialect.block_rows == 0) return "tensor";
  return std::to_string(dialect.block_rows) + "x" + std::to_string(dialect.block_cols);
}

namespace {

// 448, 447.99, 2688: whole numbers without a fraction.
std::string Number(float x) {
  std::string text = std::to_string(x);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string TensorScaleText(const Dialect& d) {
  std::string text(FormulaOf(d.tensor_scale));
  const float q = MaxFinite(d.element);
  text += "; amax of ";
  text += d.row_scaled ? "the row" : "the tensor";
  if (d.tensor_scale == TensorScaleRule::kTwoDivisions) {
    text += ", scale_max = " + Number(d.scale_max) + ", q = " + Number(q);
  } else if (d.tensor_scale != TensorScaleRule::kTensorFp8) {
    text += ", C = " + Number(d.scale_max) + " * " + Number(q) + " = " + Number(d.scale_max * q);
  } else {
    text += ", q = " + Number(q);
  }
  return text;
}

std::string ZeroText(const Dialect& d) {
  if (d.never_negative_zero) return "every code of value 0 is +0";
  return d.keeps_negative_zero
             ? "signs kept"
             : "v = -0 becomes +0; other elements that round to 0 keep their sign";
}

std::string NanText(const Dialect& d) {
  std::string text(FormulaOf(d.nan));
  if (d.nan_scale >= 0) text += "; NaN scales are stored as " + std::to_string(d.nan_scale);
  if (d.nan_code >= 0) text += "; NaN elements have code " + std::to_string(d.nan_code);
  return text;
}

}  // namespace

std::vector<DialectLine> Describe(const Dialect& d) {
  const IeeeArithmetic ieee;
  const bool has_scales = d.block_scale != BlockScale::kOneBlock;
  const bool numbers = d.scale_encoding == ScaleEncoding::kBinary32;
  const std::string element(Named(d.element).name);
  const std::string scale(numbers ? "binary32" : Named(d.scale).name);
  std::vector<DialectLine> lines;
  lines.push_back({"format", element + (has_scales ? " in blocks of " + BlockText(d) +
                                                         " with a scale in " + scale
                                                   : " with one scale for the tensor")});
  if (HasTensorScale(d)) lines.push_back({"tensor scale", TensorScaleText(d)});
  if (has_scales) {
    lines.push_back(
        {"block scale", std::string(FormulaOf(d.block_scale)) +
                            "; b is the block's amax, q = " + Number(MaxFinite(d.element))});
    if (d.scale_encoding != ScaleEncoding::kExponent) {
      lines.push_back({"scale byte", std::string(FormulaOf(d.scale_encoding))});
    }
    if (d.inf_scale != InfScale::kRule) {
      lines.push_back({"scale byte", std::string(FormulaOf(d.inf_scale))});
    }
  }
  lines.push_back({"factor", std::string(FormulaOf(d.factor))});
  lines.push_back({"element", std::string(FormulaOf(d.rounding))});
  if (d.adaptive != Adaptive::kNo) {
    lines.push_back(
        {"candidates", std::string(FormulaOf(d.adaptive)) +
                           (d.adaptive_fp16     ? "; error = fl(value*s - fl(x*S))"
                            : d.adaptive_decode ? "; error = fl(fl(value*s*D) - x)"
                                                : "; error = fl(fl(fl(value*s*amax) / C) - x)")});
  }
  lines.push_back({"zeros", ZeroText(d)});
  lines.push_back({"NaN", NanText(d)});
  return lines;
}

}  // namespace fp4lab
