// What the kernels of quantize.cc write, for QuantizeAs and operand.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"

namespace fp4lab {

// Outputs without memory are not made. Grids have an entry a block.
struct QuantizeOutputs {
  std::uint8_t* codes = nullptr;        // (rows, cols), row-major, one code a byte
  std::uint8_t* scale_bytes = nullptr;  // the grid, row-major
  MatrixView<float> values = {};        // (rows, cols): element value * block scale; any strides
  MatrixView<std::uint8_t> integers =
      {};                         // (rows, cols): 12 + 2 * element value; unit column stride
  MatrixView<float> scales = {};  // the grid: block scales
};

// `amax`: as LevelTwoAmax(dialect, x, options) has it.
void QuantizeInto(const Dialect& dialect, MatrixView<const float> x, const DialectOptions& options,
                  const std::vector<float>& amax, const QuantizeOutputs& out);

}  // namespace fp4lab
