// Helpers of the rows of implementation.cc: checks, cleared scales, and one side by the kernel of
// every dialect.
#pragma once

#include "fp4lab/cuda/quantize/device_quantization.h"

namespace fp4lab::cuda {

// Checks the sides of the call and clears their scales where tiles of scales have padding.
void PrepareSides(const DeviceQuantization& call);

// Quantizes one side of the call, which is call.row or call.column, by the kernel of every dialect.
void QuantizeSide(const DeviceQuantization& call, const QuantizedSide& side);

}  // namespace fp4lab::cuda
