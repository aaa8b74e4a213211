// Token embedding: row lookup, and the scatter-add of its gradient.
#pragma once

#include <cstdint>
#include <span>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// y(r, c) = table(tokens[r], c). Throws std::logic_error for a token outside the table.
void Embedding(MatrixView<const float> table, std::span<const std::uint16_t> tokens,
               MatrixView<float> y);

// dtable(tokens[r], c) += dy(r, c), r ascending, so the sum's order does not depend on threads.
void EmbeddingBackward(std::span<const std::uint16_t> tokens, MatrixView<const float> dy,
                       MatrixView<float> dtable);

}  // namespace fp4lab
