#include "fp4lab/tensor/mma/mma_operand.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/tensor/mma/mma_number.h"

namespace fp4lab {
namespace {

std::uint32_t EncodeNearest(const Format& format, float x) {
  return Encode(format, x, Rounding::kNearestEven, 0, Overflow::kSpecial);
}

double Value(const MmaNumber& x) {
  if (x.is_nan) return std::numeric_limits<double>::quiet_NaN();
  if (x.infinity != 0) return x.infinity * std::numeric_limits<double>::infinity();
  return std::ldexp(static_cast<double>(x.significand), x.raw - x.fraction_bits);
}

}  // namespace

void ExpectSound(const MmaOperand& x) {
  Expects(x.codes.size() == x.rows * x.cols, "an operand has a code for every element");
  Expects(x.scales.size() == x.rows * x.ScaleCols(), "an operand has a scale for every group");
}

MmaOperand MakeMmaOperand(const Format& element, MatrixView<const std::uint8_t> codes,
                          const Format& scale, int block_rows, int block_cols,
                          std::span<const std::uint8_t> scales) {
  const IeeeArithmetic ieee;
  MmaOperand x{.rows = codes.rows, .cols = codes.cols, .format = element};
  x.codes.reserve(codes.size());
  for (std::size_t r = 0; r < codes.rows; ++r) {
    for (std::size_t c = 0; c < codes.cols; ++c) x.codes.push_back(codes(r, c));
  }
  if (block_cols == 0) return x;
  x.group = block_cols;
  x.scale_format = scale;
  x.scales.reserve(x.rows * x.ScaleCols());
  for (std::size_t r = 0; r < x.rows; ++r) {
    const auto line = scales.subspan(r / static_cast<std::size_t>(block_rows) * x.ScaleCols());
    x.scales.insert(x.scales.end(), line.begin(),
                    line.begin() + static_cast<std::ptrdiff_t>(x.ScaleCols()));
  }
  return x;
}

MmaOperand MakeMmaOperand(const Dialect& d, const Quantized& q) {
  const IeeeArithmetic ieee;
  const Quantized plain = InOrder(q, CodeOrder::kBytes);
  const MatrixView<const std::uint8_t> codes(plain.codes.data(), q.rows, q.cols);
  return MakeMmaOperand(FormatOf(d.element), codes, FormatOf(d.scale), d.block_rows, d.block_cols,
                        q.scales);
}

MmaOperand MakeMmaOperand(const Format& format, MatrixView<const float> values) {
  const IeeeArithmetic ieee;
  MmaOperand x{.rows = values.rows, .cols = values.cols, .format = format};
  x.codes.reserve(values.size());
  for (std::size_t r = 0; r < values.rows; ++r) {
    for (std::size_t c = 0; c < values.cols; ++c) {
      x.codes.push_back(EncodeNearest(format, values(r, c)));
    }
  }
  return x;
}

Matrix<double> ExactValues(const MmaOperand& x) {
  const IeeeArithmetic ieee;
  ExpectSound(x);
  Matrix<double> values(x.rows, x.cols);
  ParallelFor(x.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      double value = Value(ReadMmaNumber(x.format, x.codes[r * x.cols + c]));
      if (x.IsScaled()) {
        const std::uint8_t scale =
            x.scales[r * x.ScaleCols() + c / static_cast<std::size_t>(x.group)];
        value *= Value(ReadMmaScale(x.scale_format, scale));
      }
      values(r, c) = value;
    }
  });
  return values;
}

Matrix<float> FloatValues(const MmaOperand& x) {
  const IeeeArithmetic ieee;
  const Matrix<double> exact = ExactValues(x);
  Matrix<float> values(x.rows, x.cols);
  std::transform(exact.values.begin(), exact.values.end(), values.values.begin(),
                 [](double v) { return static_cast<float>(v); });
  return values;
}

MmaOperand Unscaled(const MmaOperand& x, const Format& format) {
  const IeeeArithmetic ieee;
  const Matrix<double> exact = ExactValues(x);
  MmaOperand y{.rows = x.rows, .cols = x.cols, .format = format};
  y.codes.reserve(exact.values.size());
  for (const double value : exact.values) {
    const std::uint32_t code = EncodeNearest(format, static_cast<float>(value));
    if (Value(ReadMmaNumber(format, code)) != value) return {};  // NaN too
    y.codes.push_back(code);
  }
  return y;
}

}  // namespace fp4lab
