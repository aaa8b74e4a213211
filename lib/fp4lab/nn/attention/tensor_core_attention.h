// The head sizes for which a GPU trains with attention on tensor cores (gpu/attention); others take
// kernels that are several times as slow.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace fp4lab {

inline constexpr std::array<std::size_t, 4> kTensorCoreHeadDims = {16, 32, 64, 128};

constexpr bool HasTensorCoreAttention(std::size_t head_dim) {
  return std::ranges::find(kTensorCoreHeadDims, head_dim) != kTensorCoreHeadDims.end();
}

// The least of these sizes that holds `columns`, so that a head can be padded with zeros; 0: none.
constexpr std::size_t TensorCoreHeadDim(std::size_t columns) {
  for (const std::size_t size : kTensorCoreHeadDims) {
    if (columns <= size) return size;
  }
  return 0;
}

}  // namespace fp4lab
