// The outputs of a quantization, and the generic kernels that write them
// (quantize/implementation.h chooses).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/block/packing.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// The outputs to write; outputs without memory (nullptr) are skipped. "The grid" has one entry per
// block.
struct QuantizeOutputs {
  std::uint8_t* codes = nullptr;        // (rows, cols), row-major, packed in `order`
  std::uint8_t* scale_bytes = nullptr;  // the grid, row-major
  MatrixView<float> values = {};        // (rows, cols): element value * block scale; any strides
  // (rows, cols): 12 + 2 * element value; unit stride along rows, or, by some rows of the table,
  // down columns
  MatrixView<std::uint8_t> integers = {};
  MatrixView<float> scales = {};   // the grid: block scales, with unit stride as `integers` has
  MatrixView<float> decoded = {};  // (rows, cols): DequantizeAs of codes and scales; any strides
  CodeOrder order = CodeOrder::kBytes;  // of `codes` (block/packing.h)
  std::size_t split = 16;               // columns of a block, for CodeOrder::kSplitHalves
};

// Quantizes x into `out`: codes one a byte, integers with unit column stride, and no decoded
// numbers. `amax`: the result of TensorAmaxes(dialect, x, options).
void QuantizeInto(const Dialect& dialect, MatrixView<const float> x, const DialectOptions& options,
                  const std::vector<float>& amax, const QuantizeOutputs& out);

}  // namespace fp4lab
