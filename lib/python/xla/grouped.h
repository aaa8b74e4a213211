// Groups of Transformer Engine's grouped calls: an expert's tokens each.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include "buffers.h"

namespace fp4lab::handlers {

// The numbers of a buffer of int32 group sizes; an error for a negative one.
std::vector<std::size_t> GroupSizesOf(const Buffer& sizes);

inline std::size_t SumOf(const std::vector<std::size_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

}  // namespace fp4lab::handlers
