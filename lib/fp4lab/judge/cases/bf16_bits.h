// BF16 matrices as files and streams store them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// The bits of each element of x in BF16; the elements must be BF16 values.
inline std::vector<std::uint16_t> Bf16Bits(const Matrix<float>& x) {
  std::vector<std::uint16_t> bits(x.values.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x.values[i]) >> 16);
  }
  return bits;
}

}  // namespace fp4lab
