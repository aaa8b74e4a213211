// A micro-batch's tokens, sorted for the gradient of the embedding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fp4lab::gpu {

// The rows of a micro-batch sorted by token and cut into segments of at most `most` rows of one
// token, so that gradients of the embedding add up without atomics, in a fixed order.
struct SortedTokens {
  std::vector<std::uint32_t> rows;      // all rows, by token, ascending for each
  std::vector<std::uint32_t> first;     // (segments + 1): where a segment begins in `rows`
  std::vector<std::uint32_t> of_token;  // (vocabulary + 1): a token's first segment
};
SortedTokens SortTokens(std::span<const std::uint16_t> tokens, std::size_t vocabulary,
                        std::size_t most);

}  // namespace fp4lab::gpu
