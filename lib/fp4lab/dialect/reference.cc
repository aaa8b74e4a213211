// The scalar definition of quantizing as a dialect says, to be read beside the stages.
#include "fp4lab/dialect/quantize.h"

#include "fp4lab/base/parallel.h"
#include "fp4lab/dialect/blocks.h"
#include "fp4lab/dialect/stages.h"

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
    const Level level = LevelOfRow(dialect, q->amax, row);
    const BlockNumbers numbers = ChooseBlock(dialect, level, block).numbers;
    if (grid.stores_scales) q->scales[i * grid.cols + j] = numbers.byte;
    for (std::size_t r = 0; r < block.rows; ++r) {
      for (std::size_t c = 0; c < block.cols; ++c) {
        const std::size_t at = (row + r) * x.cols + col + c;
        q->codes[at] = QuantizedElement(dialect, numbers, level, block(r, c),
                                        RandomBitsAt(dialect, options, at, x.cols));
      }
    }
  }
};

}  // namespace

namespace reference {

Quantized QuantizeAs(const Dialect& dialect, MatrixView<const float> x,
                     const DialectOptions& options) {
  CheckOptions(dialect, x, options);
  const Job job{dialect, x, options, BlockGrid(dialect, x.rows, x.cols)};
  Quantized q{.rows = x.rows, .cols = x.cols};
  q.codes.resize(x.size());
  if (job.grid.stores_scales) {
    q.scale_rows = job.grid.rows;
    q.scale_cols = job.grid.cols;
    q.scales.resize(q.scale_rows * q.scale_cols);
  }
  q.amax = LevelTwoAmax(dialect, x, options);
  ParallelFor(job.grid.rows, [&](std::size_t i) {
    for (std::size_t j = 0; j < job.grid.cols; ++j) job.QuantizeBlock(i, j, &q);
  });
  return q;
}

}  // namespace reference

Matrix<float> DequantizeAs(const Dialect& dialect, const Quantized& q) {
  const BlockGrid grid(dialect, q.rows, q.cols);
  const std::size_t amaxes = !HasLevelTwo(dialect) ? 0 : dialect.row_scaled ? q.rows : 1;
  Expects(q.codes.size() == q.rows * q.cols, "one code an element");
  Expects(!grid.stores_scales || q.scales.size() == grid.rows * grid.cols, "one scale a block");
  Expects(q.amax.size() == amaxes, "one amax, or one a row");
  Matrix<float> out(q.rows, q.cols);
  ParallelFor(q.rows, [&](std::size_t r) {
    const float amax = q.amax.empty() ? 0.0f : q.amax[dialect.row_scaled ? r : 0];
    for (std::size_t c = 0; c < q.cols; ++c) {
      const std::size_t block = r / grid.block_rows * grid.cols + c / grid.block_cols;
      const std::uint8_t byte = grid.stores_scales ? q.scales[block] : std::uint8_t{0};
      out(r, c) = Dequantized(dialect, q.codes[r * q.cols + c], ScaleValueOf(dialect, byte), amax);
    }
  });
  return out;
}

}  // namespace fp4lab
