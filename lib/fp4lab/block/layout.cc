#include "fp4lab/block/layout.h"

#include "fp4lab/base/error.h"
#include "fp4lab/block/tuned.h"

namespace fp4lab {

void CheckOptions(const QuantizeOptions& options) {
  Expects(WhyNotTuned(options.dialect).empty(), "a dialect that the tuned kernels compute");
}

QuantizeOptions WithAmax(MatrixView<const float> x, QuantizeOptions options) {
  if (HasTensorScale(options.dialect) && !options.amax) options.amax = TensorAmax(x);
  return options;
}

void ShapeTuned(std::size_t rows, std::size_t cols, const QuantizeOptions& options, Quantized* q) {
  CheckOptions(options);
  const Dialect& d = options.dialect;
  q->rows = rows;
  q->cols = cols;
  q->codes.resize(rows * CodeLayout(d, cols).row_bytes);
  const ScaleLayout scales(d, rows, cols);
  q->order = TunedOrder(d);
  q->scale_rows = d.block_rows == 0 ? 0 : scales.rows;
  q->scale_cols = d.block_rows == 0 ? 0 : scales.cols;
  q->scales.resize(q->scale_rows * q->scale_cols);
  Expects(!HasTensorScale(d) || options.amax.has_value(), "the tensor's amax is known");
  q->amax.clear();
  if (HasTensorScale(d)) q->amax.push_back(*options.amax);
}

}  // namespace fp4lab
