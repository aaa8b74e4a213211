#include "fp4lab/checkpoint/original/random_rounding.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/noise/noise_verdict.h"
#include "fp4lab/formats/stochastic_verdict.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {
namespace {

constexpr std::size_t kElements = std::size_t{1} << 16;  // that are judged

bool Fits(const Dialect& d, const Reading& r, bool has_number) {
  return (IsStochastic(d) || FindAddedNoise(d.name) != nullptr) && !r.numbers &&
         d.element == r.element && d.scale == r.scale && d.block_rows == 1 && !d.row_scaled &&
         r.block_rows == 1 && static_cast<std::size_t>(d.block_cols) == r.block_cols &&
         HasTensorScale(d) == has_number && FormatOf(r.element).bits <= 8;
}

bool ScalesAreEqual(const Dialect& d, const Quantized& q, const Decoder& decoder,
                    const Reading& r) {
  for (std::size_t row = 0; row < q.rows; ++row) {
    for (std::size_t block = 0; block < q.scale_cols; ++block) {
      const float want = Decode(d.scale, q.scales[row * q.scale_cols + block]);
      const float stored = decoder.Scale(0, row, block, r.order);
      if (stored != want) return false;
    }
  }
  return true;
}

}  // namespace

std::string RandomRoundingText(const Decoder& decoder, const Reading& r,
                               TensorScaleConvention convention, std::span<const float> numbers,
                               float amax, const RowReader& original) {
  const IeeeArithmetic ieee;
  if (numbers.size() > 1 || r.codes == CodeOrder::kDense6) return "";
  const std::size_t rows = std::min(r.rows, std::max<std::size_t>(1, kElements / r.cols));
  const Matrix<float> x = original(0, rows);
  std::vector<std::uint8_t> codes(x.values.size());
  for (std::size_t row = 0; row < rows; ++row) {
    decoder.Codes(row, r.codes, std::span(codes).subspan(row * r.cols, r.cols));
  }
  for (const Dialect& d : Dialects()) {
    if (!Fits(d, r, !numbers.empty())) continue;
    DialectOptions options;
    if (HasTensorScale(d)) {
      options.amax = {numbers.empty() ? amax : AmaxOfNumber(d, numbers[0], convention)};
    }
    Dialect truncating = d;
    truncating.rounding = ElementRounding::kTowardZero;
    if (!ScalesAreEqual(d, QuantizeAs(truncating, x.View(), options), decoder, r)) continue;
    std::vector<float> scaled(x.values.size());
    ParallelFor(rows, [&](std::size_t row) {
      for (std::size_t col = 0; col < r.cols; ++col) {
        scaled[row * r.cols + col] = TraceAs(truncating, x.View(), row, col, options).scaled;
      }
    });
    const StochasticSample sample{
        .element = d.element,
        .form = d.rounding == ElementRounding::kStochastic8 ? RandomForm::kTe8 : RandomForm::kCvtRs,
        .rows = rows,
        .cols = r.cols,
        .scaled = scaled,
        .outputs = {codes}};
    const AddedNoise* noise = FindAddedNoise(d.name);
    const StochasticVerdict verdict =
        noise != nullptr ? JudgeAddedNoise(*noise, sample) : JudgeStochastic(sample);
    if (verdict.answer != StochasticAnswer::kAccepted) continue;
    return "consistent with " +
           std::string(noise != nullptr ? noise->name : "stochastic rounding") + " (" +
           std::string(d.name) + "): in the first " + std::to_string(rows) +
           " rows all scales are right, all codes can be reached, and each is as frequent as it "
           "should be";
  }
  return "";
}

}  // namespace fp4lab
