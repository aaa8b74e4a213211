// The kernels that quantize a matrix in device memory, as a table of the row type of
// fp4lab/quantize/implementation.h: tiles, rows, and the kernel of every dialect. Quantize takes
// the first row that can make the call; all rows give the same bytes. A new kernel is a row here,
// its launch in launch.h, and its .cu.
#pragma once

#include <span>
#include <string_view>

#include "fp4lab/cuda/quantize/device_quantization.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/implementation.h"

namespace fp4lab::cuda {

// From the fastest kernels to the kernel of every dialect; empty in a build without CUDA.
std::span<const Implementation<DeviceQuantization>> QuantizeImplementations();

// Why no kernel but that of every dialect computes the dialect, or nothing: the tuned dialects
// (block/tuned.h), rounded to nearest or with 16 random bits.
std::string_view WhyNotFast(const Dialect& dialect);

}  // namespace fp4lab::cuda
