// The outputs of the kernels of quantize.cc, for QuantizeAs and operand.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/quantize/quantized.h"

namespace fp4lab {

// The outputs to write; outputs without memory (nullptr) are skipped. "The grid" has one entry per
// block.
struct QuantizeOutputs {
  std::uint8_t* codes = nullptr;        // (rows, cols), row-major, one code a byte
  std::uint8_t* scale_bytes = nullptr;  // the grid, row-major
  MatrixView<float> values = {};        // (rows, cols): element value * block scale; any strides
  // (rows, cols): 12 + 2 * element value; unit column stride
  MatrixView<std::uint8_t> integers = {};
  MatrixView<float> scales = {};  // the grid: block scales
};

// Quantizes x into `out`. `amax`: the result of TensorAmaxes(dialect, x, options).
void QuantizeInto(const Dialect& dialect, MatrixView<const float> x, const DialectOptions& options,
                  const std::vector<float>& amax, const QuantizeOutputs& out);

}  // namespace fp4lab
