#include "fp4lab/nn/attention.h"

#include "fp4lab/nn/reference.h"

namespace fp4lab {

void Attention(const AttentionShape& shape, MatrixView<const float> q, MatrixView<const float> k,
               MatrixView<const float> v, MatrixView<float> out, std::span<float> statistics) {
  reference::Attention<float>(shape, q, k, v, out, statistics);
}

void AttentionBackward(const AttentionShape& shape, MatrixView<const float> q,
                       MatrixView<const float> k, MatrixView<const float> v,
                       MatrixView<const float> out, std::span<const float> statistics,
                       MatrixView<const float> dout, const AttentionGradients& gradients) {
  reference::AttentionBackward<float>(shape, q, k, v, out, statistics, dout, gradients.dq,
                                      gradients.dk, gradients.dv);
}

}  // namespace fp4lab
