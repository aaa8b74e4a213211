// The scalar definition of quantization by any dialect, to be read together with the stages.
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/decoded_product.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/ms_eden.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {
namespace {

struct Job {
  const Dialect& dialect;
  MatrixView<const float> x;
  const DialectOptions& options;
  BlockGrid grid;

  void QuantizeBlock(std::size_t i, std::size_t j, Quantized* q) const {
    const MatrixView<const float> block = grid.Block(x, i, j);
    const std::size_t row = i * grid.block_rows, col = j * grid.block_cols;
    const TensorScale tensor = TensorScaleOfRow(dialect, q->amax, row);
    const BlockNumbers numbers = ChooseBlock(dialect, tensor, block).numbers;
    const std::size_t place = i * grid.cols + j;
    if (!q->scales.empty()) q->scales[place] = numbers.byte;
    if (!q->scale_values.empty()) q->scale_values[place] = numbers.scale;
    for (std::size_t r = 0; r < block.rows; ++r) {
      for (std::size_t c = 0; c < block.cols; ++c) {
        const std::size_t at = (row + r) * x.cols + col + c;
        q->codes[at] = QuantizedElement(dialect, numbers, tensor, block(r, c),
                                        RandomBitsAt(dialect, options, at, x.rows, x.cols));
      }
    }
  }

  // Applies MS-EDEN to a row whose blocks are quantized.
  void Unbias(std::size_t r, Quantized* q) const {
    std::vector<float> elements(x.cols), scales(grid.cols);
    for (std::size_t c = 0; c < x.cols; ++c) elements[c] = x(r, c);
    for (std::size_t j = 0; j < grid.cols; ++j) {
      scales[j] = ScaleValueOf(dialect, q->scales[r * grid.cols + j]);
    }
    CorrectScales(dialect, TensorScaleOfRow(dialect, q->amax, r), options,
                  {.x = elements,
                   .codes = std::span(q->codes).subspan(r * x.cols, x.cols),
                   .block_cols = grid.block_cols,
                   .first_block = r * grid.cols,
                   .bytes = q->scales.data() + r * grid.cols,
                   .scales = scales.data()});
  }
};

}  // namespace

namespace reference {

Quantized QuantizeAs(const Dialect& dialect, MatrixView<const float> x,
                     const DialectOptions& options) {
  const IeeeArithmetic ieee;
  CheckOptions(dialect, x, options);
  const Job job{dialect, x, options, BlockGrid(dialect, x.rows, x.cols)};
  Quantized q{.rows = x.rows, .cols = x.cols};
  ShapeQuantized(dialect, job.grid, &q);
  q.amax = TensorAmaxes(dialect, x, options);
  ParallelFor(job.grid.rows, [&](std::size_t i) {
    for (std::size_t j = 0; j < job.grid.cols; ++j) job.QuantizeBlock(i, j, &q);
    if (dialect.unbias == Unbias::kMsEden) job.Unbias(i, &q);
  });
  return q;
}

}  // namespace reference

void ToOperandValues(const Dialect& dialect, const Quantized& q, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  Expects(out.rows == q.rows && out.cols == q.cols, "out has the shape of the matrix");
  Expects(q.order == CodeOrder::kBytes, "one code per byte");
  const BlockGrid grid(dialect, q.rows, q.cols);
  ParallelFor(q.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < q.cols; ++c) {
      out(r, c) = DecodedProduct(Decode(dialect.element, q.codes[r * q.cols + c]),
                                 ScaleAt(dialect, grid, q, r, c));
    }
  });
}

Matrix<float> DequantizeAs(const Dialect& dialect, const Quantized& q) {
  const IeeeArithmetic ieee;
  const BlockGrid grid(dialect, q.rows, q.cols);
  const std::size_t amaxes = !HasTensorScale(dialect) ? 0 : dialect.row_scaled ? q.rows : 1;
  Expects(q.order == CodeOrder::kBytes && q.codes.size() == q.rows * q.cols,
          "one code per element and byte");
  const bool floats = dialect.scale_encoding == ScaleEncoding::kBinary32;
  Expects(!grid.stores_scales ||
              (floats ? q.scale_values.size() : q.scales.size()) == grid.rows * grid.cols,
          "one scale per block");
  Expects(q.amax.size() == amaxes, "one amax, or one per row");
  Matrix<float> out(q.rows, q.cols);
  ParallelFor(q.rows, [&](std::size_t r) {
    const float amax = q.amax.empty() ? 0.0f : q.amax[dialect.row_scaled ? r : 0];
    for (std::size_t c = 0; c < q.cols; ++c) {
      out(r, c) =
          Dequantized(dialect, q.codes[r * q.cols + c], ScaleAt(dialect, grid, q, r, c), amax);
    }
  });
  return out;
}

}  // namespace fp4lab
