#include "fp4lab/block/quantize.h"

namespace fp4lab {

float TensorAmax(MatrixView<const float> x) { return reference::TensorAmax(x); }

void UnscaledValues(const QuantizedMatrix& q, MatrixView<float> out) {
  reference::UnscaledValues(q, out);
}

void Dequantize(const QuantizedMatrix& q, MatrixView<float> out) { reference::Dequantize(q, out); }

}  // namespace fp4lab
