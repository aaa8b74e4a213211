// The head sizes for which a GPU trains with attention on tensor cores (gpu/attention); others take
// kernels that are several times as slow.
#pragma once

#include <cstddef>

namespace fp4lab {

constexpr bool HasTensorCoreAttention(std::size_t head_dim) {
  return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128;
}

// The least of these sizes that holds `columns`, so that a head can be padded with zeros; 0: none.
constexpr std::size_t TensorCoreHeadDim(std::size_t columns) {
  for (const std::size_t size : {16, 32, 64, 128}) {
    if (columns <= size) return size;
  }
  return 0;
}

}  // namespace fp4lab
