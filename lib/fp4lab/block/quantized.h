// A quantized matrix in host memory: the result of every quantizer of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/block/packing.h"

namespace fp4lab {

struct Quantized {
  std::size_t rows = 0, cols = 0;
  std::vector<std::uint8_t> codes = {};  // (rows, cols), row-major, packed in `order`
  std::size_t scale_rows = 0, scale_cols = 0;
  // (scale_rows, scale_cols), row-major: one byte per block; a 16x16 tile has one.
  std::vector<std::uint8_t> scales = {};
  std::vector<float> amax = {};  // one for the tensor or one per row; empty without a tensor scale
  std::vector<float> scale_values = {};  // binary32 scales, same grid; `scales` is then empty
  // kBytes of quantize/quantize.h; the tuned kernels of block/ pack 4-bit codes low nibble first.
  CodeOrder order = CodeOrder::kBytes;
  friend bool operator==(const Quantized&, const Quantized&) = default;
};

// q with its codes in another order, for orders other than kSplitHalves, which depends on the
// width of a block.
Quantized InOrder(Quantized q, CodeOrder order);

}  // namespace fp4lab
