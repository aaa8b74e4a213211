// Causal grouped-query attention in binary32, forward and backward.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

struct AttentionShape {
  std::size_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::size_t window = 0;     // the keys that a query sees, its own included; 0: all before it
  std::size_t value_dim = 0;  // of a head's values and results; 0: head_dim
  float scale = 0.0f;         // of the scores; 0: 1 / sqrt(head_dim)

  constexpr std::size_t Rows() const { return batch * sequence; }
  constexpr std::size_t QueriesPerKey() const { return heads / kv_heads; }
  constexpr std::size_t ValueDim() const { return value_dim > 0 ? value_dim : head_dim; }
  constexpr std::size_t StatisticsSize() const { return 2 * batch * heads * sequence; }
  float Scale() const {
    return scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(head_dim));
  }
};

// q (B * T, heads * head_dim), out (B * T, heads * value_dim); k (B * T, kv_heads * head_dim), v
// (B * T, kv_heads * value_dim); kv_heads divides heads and query head h reads key head
// h / (heads / kv_heads). Views have unit column stride and may be column slices of one matrix. For
// query i of a head, over keys j <= i of the same sequence (with a window, those with
// j > i - window):
//   s_j = (q_i scale) . k_j;  m = max_j s_j;  p_j = exp(s_j - m);  l = sum_j p_j
//   out_i = (sum_j p_j v_j) (1 / l)
// exp errs by at most 1.01 units in the last place and is 0 below 2^-126.
// Dot products run over ascending dimensions and sums over ascending j, by fused multiply-adds.
// `statistics` (for each sequence two planes of (heads, T): m, then 1 / l) is for the backward
// pass. NaN and Inf propagate; inside a 16x16 tile on the diagonal a masked pair counts as 0 *
// value, so there they may also reach rows before their own.
void Attention(const AttentionShape& shape, MatrixView<const float> q, MatrixView<const float> k,
               MatrixView<const float> v, MatrixView<float> out, std::span<float> statistics);

struct AttentionGradients {
  MatrixView<float> dq, dk, dv;  // overwritten; shapes of q, k, v; may be slices of one matrix
};

// With p recomputed from the statistics (as a probability: exp(s_j - m) / l):
//   D_i = dout_i . out_i;  ds_ij = p_ij (dout_i . v_j - D_i)
//   dq_i = (sum_j ds_ij k_j) scale;  dk_j = (sum_i ds_ij q_i) scale
//   dv_j = sum_i p_ij dout_i          (i over all queries of all heads that read the key head)
void AttentionBackward(const AttentionShape& shape, MatrixView<const float> q,
                       MatrixView<const float> k, MatrixView<const float> v,
                       MatrixView<const float> out, std::span<const float> statistics,
                       MatrixView<const float> dout, const AttentionGradients& gradients);

}  // namespace fp4lab
