// Gated linear attention (arXiv 2312.06635): a recurrence over tokens in place of scores, so that
// time grows with the length of a sequence and not with its square.
//
// A head has a state S (key_dim, value_dim), zero before the first token. For tokens t ascending,
// in binary32 with every operation rounded once:
//   a(i)    = s(i)^(1/16) by four square roots, s = 1 / (1 + exp(-z_t)): what a channel of keys
//             keeps (nn/lanes/math-inl.h has exp)
//   S(i, j) = fl(fl(a(i) S(i, j)) + fl(k_t(i) v_t(j)))
//   o_t(j)  = sum over i ascending of fl(fl(scale q_t(i)) S(i, j)), from +0
// The backward pass keeps the state of every kStateTokens-th token and computes those between
// again. Sums over value channels have the order of base/simd/reduce.h.
#pragma once

#include <cmath>
#include <cstddef>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

inline constexpr std::size_t kStateTokens = 32;

struct GatedLinearShape {
  std::size_t batch = 1, sequence = 1, heads = 1, key_dim = 1, value_dim = 1;

  std::size_t Rows() const { return batch * sequence; }
  std::size_t Keys() const { return heads * key_dim; }
  std::size_t Values() const { return heads * value_dim; }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(key_dim)); }
};

// q, k and z (rows, heads * key_dim), v and out (rows, heads * value_dim), unit column stride. Rows
// are whole sequences. z holds the decays before their sigmoid.
struct GatedLinearInputs {
  MatrixView<const float> q, k, v, z;
};
void GatedLinearAttention(const GatedLinearShape& shape, const GatedLinearInputs& in,
                          MatrixView<float> out);

// Gradients of the shapes of the inputs, overwritten.
struct GatedLinearGradients {
  MatrixView<float> q, k, v, z;
};
void GatedLinearAttentionBackward(const GatedLinearShape& shape, const GatedLinearInputs& in,
                                  MatrixView<const float> dout, const GatedLinearGradients& d);

}  // namespace fp4lab
