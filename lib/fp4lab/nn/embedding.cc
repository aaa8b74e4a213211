#include "fp4lab/nn/embedding.h"

#include "fp4lab/nn/reference.h"

namespace fp4lab {

void Embedding(MatrixView<const float> table, std::span<const std::uint16_t> tokens,
               MatrixView<float> y) {
  reference::Embedding<float>(table, tokens, y);
}

void EmbeddingBackward(std::span<const std::uint16_t> tokens, MatrixView<const float> dy,
                       MatrixView<float> dtable) {
  reference::EmbeddingBackward<float>(tokens, dy, dtable);
}

}  // namespace fp4lab
