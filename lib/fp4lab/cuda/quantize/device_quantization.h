// A call of Quantize (quantize.h), as the table of kernels takes it (implementation.h).
#pragma once

#include "fp4lab/cuda/device/device.h"
#include "fp4lab/cuda/quantize/quantized_side.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab::cuda {

// One call of Quantize: a side may be nullptr. The arguments must outlive it.
struct DeviceQuantization {
  const DeviceMatrix& x;
  const Dialect& dialect;
  const QuantizedSide *row, *column;
  StreamHandle stream = nullptr;
};

}  // namespace fp4lab::cuda
