#include "fp4lab/gpu/engine/tokens.h"

#include <algorithm>

#include "fp4lab/base/error.h"

namespace fp4lab::gpu {

SortedTokens SortTokens(std::span<const std::uint16_t> tokens, std::size_t vocabulary,
                        std::size_t most) {
  Expects(most > 0 && std::all_of(tokens.begin(), tokens.end(),
                                  [=](std::uint16_t token) { return token < vocabulary; }),
          "tokens below the vocabulary");
  std::vector<std::uint32_t> next(vocabulary + 1, 0);
  for (const std::uint16_t token : tokens) ++next[token + std::size_t{1}];
  for (std::size_t t = 0; t < vocabulary; ++t) next[t + 1] += next[t];
  SortedTokens sorted;
  sorted.of_token.reserve(vocabulary + 1);
  for (std::size_t t = 0; t < vocabulary; ++t) {
    sorted.of_token.push_back(static_cast<std::uint32_t>(sorted.first.size()));
    for (std::size_t i = next[t]; i < next[t + 1]; i += most) {
      sorted.first.push_back(static_cast<std::uint32_t>(i));
    }
  }
  sorted.of_token.push_back(static_cast<std::uint32_t>(sorted.first.size()));
  sorted.first.push_back(static_cast<std::uint32_t>(tokens.size()));
  sorted.rows.resize(tokens.size());
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    sorted.rows[next[tokens[row]]++] = static_cast<std::uint32_t>(row);
  }
  return sorted;
}

}  // namespace fp4lab::gpu
