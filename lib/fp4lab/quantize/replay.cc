#include "fp4lab/quantize/replay.h"

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/diagnostics/statistic.h"

namespace fp4lab {

Quantized QuantizeReplayed(const Dialect& dialect, MatrixView<const float> x,
                           const std::vector<float>& amax, RandomForm form,
                           std::span<const std::uint32_t> words) {
  const IeeeArithmetic ieee;
  const FormatId element = dialect.element;
  Expects(TakesForm(element, form) && FormatOf(element).bits <= 8,
          "random bits in a form that the element format takes");
  const std::size_t n = ElementsAWord(element, form);
  const std::size_t row_words = DivideUp(x.cols, n);
  Expects(words.size() == x.rows * row_words, "one word for n elements of a row");
  std::vector<std::uint16_t> fields(x.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::size_t r = i / x.cols, c = i % x.cols;
    fields[i] =
        static_cast<std::uint16_t>(RandomField(element, form, words[r * row_words + c / n], c % n));
  }
  const Dialect rounded =
      WithRounding(dialect, form == RandomForm::kTe8 ? ElementRounding::kStochastic8
                                                     : ElementRounding::kStochastic16);
  return QuantizeAs(rounded, x, {.amax = amax, .random = fields});
}

Matrix<float> ScaledElements(const Dialect& dialect, MatrixView<const float> x,
                             const Quantized& q) {
  const IeeeArithmetic ieee;
  Expects(x.rows == q.rows && x.cols == q.cols, "x has the shape of q");
  const BlockGrid grid(dialect, x.rows, x.cols);
  Matrix<float> v(x.rows, x.cols);
  for (std::size_t i = 0; i < grid.rows; ++i) {
    for (std::size_t j = 0; j < grid.cols; ++j) {
      const MatrixView<const float> block = grid.Block(x, i, j);
      const std::size_t row = i * grid.block_rows, col = j * grid.block_cols;
      const TensorScale tensor = TensorScaleOfRow(dialect, q.amax, row);
      const std::uint8_t byte = q.scales.empty() ? std::uint8_t{0} : q.scales[i * grid.cols + j];
      const float s = ScaleAt(dialect, grid, q, row, col);
      const float e = FactorOf(dialect, StatisticOf(dialect, block), s, byte, tensor);
      for (std::size_t r = 0; r < block.rows; ++r) {
        for (std::size_t c = 0; c < block.cols; ++c) {
          v(row + r, col + c) = Scaled(dialect, block(r, c), e, tensor);
        }
      }
    }
  }
  return v;
}

}  // namespace fp4lab
