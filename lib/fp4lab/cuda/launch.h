// The launches of this folder's kernels, a function each; quantize.cc checks and chooses. A
// `transposed` one works on the transpose of x.
#pragma once

#include "fp4lab/cuda/quantize.h"

namespace fp4lab::cuda {

// Any dialect, any shape: one thread a block. side.hadamard counts for nothing.
void LaunchDialect(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide& side,
                   bool transposed, StreamHandle stream);

// The fast kernel of rows: whole blocks of one row (or one scale for the tensor), aligned data.
bool FitsRowKernel(const DeviceMatrix& x, const BlockFormat& format, const QuantizedSide& side);
void LaunchRows(const DeviceMatrix& x, const BlockFormat& format, const QuantizedSide& side,
                StreamHandle stream);

// The fast kernels of tiles: both directions of E2M1 from BF16, of NVFP4 rounded to nearest from
// FP32, in one pass; rows a multiple of 128, cols of 64. FitsTiles also wants a columnwise side (or
// square blocks): rows alone are faster by rows.
bool FitsTileShape(const DeviceMatrix& x);
bool FitsTiles(const DeviceMatrix& x, const BlockFormat& format, const QuantizedSide* row,
               const QuantizedSide* column);
void LaunchTiles(const DeviceMatrix& x, const BlockFormat& format, const QuantizedSide* row,
                 const QuantizedSide* column, StreamHandle stream);
void LaunchTileAmax(const DeviceMatrix& x, int hadamard, std::uint32_t sign_mask, float* amax,
                    float* transformed, StreamHandle stream);

// amax, transformed and out as in quantize.h, each may be nullptr; the maxima must hold a lower
// bound, such as 0, before.
void LaunchHadamard(const DeviceMatrix& x, bool transposed, int size, std::uint32_t sign_mask,
                    std::uint16_t* out, float* amax, float* transformed, StreamHandle stream);

void LaunchAmax(const DeviceMatrix& x, float* amax, bool keeps_nan, StreamHandle stream);
void LaunchRowAmax(const DeviceMatrix& x, float* amax, bool keeps_nan, StreamHandle stream);

void LaunchDequantize(const BlockFormat& format, const std::uint8_t* codes,
                      const std::uint8_t* scales, const float* amax, std::size_t rows,
                      std::size_t cols, ElementType type, void* out, StreamHandle stream);

}  // namespace fp4lab::cuda
