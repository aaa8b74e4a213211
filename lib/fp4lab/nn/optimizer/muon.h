// Muon (Keller Jordan et al. 2024) on a binary32 master weight: the momentum of a matrix, made
// orthogonal by Newton-Schulz steps.
#pragma once

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// The quintic of Keller Jordan's Muon: a step takes a singular value s to a s + b s^3 + c s^5. Five
// steps take singular values of (0.01, 1] into about (0.7, 1.2), not to 1.
inline constexpr float kNewtonSchulzA = 3.4445f, kNewtonSchulzB = -4.7750f,
                       kNewtonSchulzC = 2.0315f;
// Added to the Frobenius norm, by which the matrix is divided first.
inline constexpr float kNewtonSchulzEpsilon = 1e-7f;

// Newton-Schulz in place. x (rows, cols) has unit column stride. With X = x, or x^T if x has more
// rows than columns, each product one chain of fused multiply-adds (Gemm), in binary32:
//   n = fl(sqrt(sum of squares in double));  X = X / (n + epsilon)
//   each step:  A = X X^T;  B = fl(fl(b A) + fl(c (A A)));  X = fl(fl(a X) + B X)
// With `bf16`, as published: X, n, n + epsilon and the quotient are rounded to BF16, and so is
// every line of
//   A = X X^T;  P = (c A) A;  B = (b A) + P;  Q = B X;  X = (a X) + Q
// with each bracket rounded as well. Products add up in binary32. A zero matrix stays zero; a NaN
// or Inf makes the whole matrix NaN.
void NewtonSchulz(int steps, bool bf16, MatrixView<float> x);

struct Muon {
  float learning_rate = 0.0f;
  float momentum = 0.95f;
  bool nesterov = true;
  int steps = 5;                // of Newton-Schulz
  bool bf16 = false;            // in Newton-Schulz
  float scale = 1.0f;           // of the orthogonal matrix
  float weight_decay = 0.0f;    // decoupled
  float gradient_scale = 1.0f;  // clip factor, applied to the gradient first
};

// One update of a matrix. Views of one shape with unit column stride; each operation rounded in
// binary32:
//   g = gradient * gradient_scale
//   m = momentum m + (1 - momentum) g
//   o = NewtonSchulz(nesterov ? momentum m + (1 - momentum) g : m)
//   weight = weight - learning_rate (scale o + weight_decay weight)
void MuonStep(const Muon& options, MatrixView<const float> gradient, MatrixView<float> weight,
              MatrixView<float> m);

}  // namespace fp4lab
