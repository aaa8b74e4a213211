// Rotary position embedding (Su et al. 2021) on the pairs (i, i + head_dim / 2).
#pragma once

#include <cstddef>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// cos and sin of position * theta^(-2 i / head_dim): (positions, head_dim / 2), each rounded once
// from double precision (base/elementary.h: no libm, so the same bits everywhere).
struct RopeTable {
  Matrix<float> cos, sin;
};
RopeTable MakeRopeTable(std::size_t positions, std::size_t head_dim, float theta);

// Rotates x (B * T, heads * head_dim) in place, T = the table's positions; row r is at position
// r % T. With c, s of pair i: (x_i, x_j) = (x_i c - x_j s, x_j c + x_i s), j = i + head_dim / 2,
// products and sums rounded one by one. Unit column stride; x may be a column slice.
void Rope(const RopeTable& table, MatrixView<float> x);

// The gradient of the input from the gradient of the output, in place: the inverse rotation.
void RopeBackward(const RopeTable& table, MatrixView<float> dx);

}  // namespace fp4lab
