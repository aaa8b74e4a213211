// Products of BF16 operands whose blocks along the reduction axis have scales in binary32, as
// DeepGEMM and cuBLASLt's 128-element FP8 scales have them: tensor cores multiply the values of a
// block, and the product of the two scales multiplies the block's sum.
#pragma once

#include <cstddef>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/gemm/gemm_problem.cuh"

namespace fp4lab::gpu {

// Elements of the reduction axis whose products tensor cores add before a scale multiplies them:
// blocks are multiples.
inline constexpr std::size_t kScaledStep = 64;

// Whether MultiplyScaled takes operands with blocks of these lengths, 0 for an operand
// without scales, whose memory has rows of `a_cols` and `b_cols` elements. One length must divide
// the other.
bool TakesScales(std::size_t a_block, std::size_t b_block, std::size_t a_cols, std::size_t b_cols);

// problem.d = alpha * the sum over blocks of a_scale * b_scale * (a b)_block + c, in binary32 and
// in an order that depends on the shape only. Partial sums of a long reduction lie in `workspace`
// (room for `workspace_floats`).
template <class D>
void MultiplyScaled(const GemmProblem<Bf16, D>& problem, float* workspace,
                    std::size_t workspace_floats, cudaStream_t stream);

}  // namespace fp4lab::gpu
