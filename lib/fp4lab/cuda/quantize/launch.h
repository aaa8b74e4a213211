// Launches of this folder's kernels, a function for each; implementation.cc chooses.
// With `transposed` the transpose of x is quantized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/cuda/device/device.h"
#include "fp4lab/cuda/quantize/device_quantization.h"
#include "fp4lab/cuda/quantize/quantized_side.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab::cuda {

// Any dialect, any shape: one thread for each block. side.hadamard is ignored.
void LaunchDialect(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide& side,
                   bool transposed, StreamHandle stream);

// The fast kernels of rows (WhyNotRows of implementation.cc).
void LaunchRows(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide& side,
                StreamHandle stream);

// The fast kernels of tiles, which quantize both directions in one pass: E2M1 from BF16, and NVFP4
// from FP32 with RNE. Rows are a multiple of 128, columns of 64. WhyNotTiles refuses a rowwise side
// alone unless blocks are square, because the kernels of rows quantize rows alone faster.
bool FitsTileShape(const DeviceMatrix& x);
std::string_view WhyNotTiles(const DeviceQuantization& call);
void LaunchTiles(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide* row,
                 const QuantizedSide* column, StreamHandle stream);
void LaunchTileAmax(const DeviceMatrix& x, int hadamard, std::uint32_t sign_mask, float* amax,
                    float* transformed, StreamHandle stream);

// amax, transformed and out as in quantize.h; each may be nullptr. Before the launch the maxima
// must hold a lower bound, such as 0.
void LaunchHadamard(const DeviceMatrix& x, bool transposed, int size, std::uint32_t sign_mask,
                    std::uint16_t* out, float* amax, float* transformed, StreamHandle stream);

void LaunchAmax(const DeviceMatrix& x, float* amax, bool keeps_nan, StreamHandle stream);
void LaunchRowAmax(const DeviceMatrix& x, float* amax, bool keeps_nan, StreamHandle stream);

void LaunchDequantize(const Dialect& dialect, const std::uint8_t* codes, const std::uint8_t* scales,
                      const float* amax, std::size_t rows, std::size_t cols, ElementType type,
                      void* out, StreamHandle stream);

}  // namespace fp4lab::cuda
