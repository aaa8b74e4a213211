// The head sizes for which a GPU trains with attention on tensor cores (gpu/attention); others take
// kernels that are several times as slow.
#pragma once

#include <cstddef>

namespace fp4lab {

constexpr bool HasTensorCoreAttention(std::size_t head_dim) {
  return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128;
}

}  // namespace fp4lab
