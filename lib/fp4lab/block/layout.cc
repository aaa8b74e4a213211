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

void ShapeQuantizedMatrix(std::size_t rows, std::size_t cols, const QuantizeOptions& options,
                          QuantizedMatrix* q) {
  CheckOptions(options);
  const Dialect& d = options.dialect;
  q->dialect = d;
  q->rows = rows;
  q->cols = cols;
  q->codes.resize(rows * CodeLayout(d, cols).row_bytes);
  const ScaleLayout scales(d, rows, cols);
  q->scales.resize(d.block_rows == 0 ? 0 : scales.rows * scales.cols);
  Expects(!HasTensorScale(d) || options.amax.has_value(), "the tensor's amax is known");
  q->amax = HasTensorScale(d) ? *options.amax : 0.0f;
}

}  // namespace fp4lab
