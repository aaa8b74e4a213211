// The head sizes that attention on tensor cores supports.
#pragma once

#include <cstddef>

namespace fp4lab::gpu {

constexpr bool HasTensorCoreAttention(std::size_t head_dim) {
  return head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 128;
}

}  // namespace fp4lab::gpu
