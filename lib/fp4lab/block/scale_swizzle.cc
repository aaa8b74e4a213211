#include "fp4lab/block/scale_swizzle.h"

#include "fp4lab/base/error.h"

namespace fp4lab {

std::vector<std::uint8_t> ReorderScales(std::span<const std::uint8_t> scales, ScaleOrder from,
                                        ScaleOrder to, std::size_t rows, std::size_t cols,
                                        std::uint8_t padding) {
  Expects(scales.size() == ScaleBytes(from, rows, cols), "scales fill their arrangement");
  std::vector<std::uint8_t> result(ScaleBytes(to, rows, cols), padding);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      result[ScaleOffset(to, r, c, cols)] = scales[ScaleOffset(from, r, c, cols)];
    }
  }
  return result;
}

}  // namespace fp4lab
