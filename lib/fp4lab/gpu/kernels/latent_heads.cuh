// Heads of multi-head latent attention (train/parts/mla.cc) in the layout of Attention's qkv.
#pragma once

#include <cstddef>

#include "fp4lab/gpu/engine/memory.cuh"

namespace fp4lab::gpu {

// Heads of nope + rope columns of queries and keys and of `value` columns of values, each padded
// with zeros to `padded` columns: scores stay, and values get columns of zeros.
struct LatentShape {
  std::size_t rows, positions, heads, nope, rope, value, latent, padded;
};

// qkv (rows, 3 heads padded), rounded to A: queries, keys, values. queries (rows, heads (nope +
// rope)); compressed (rows, latent + rope), whose last columns are keys of all heads; expanded
// (rows, heads nope + heads value). Columns with positions are rotated as Rope of
// nn/attention/rope.h rotates them, to the bit for A = float. cos, sin (positions, rope / 2); null:
// nothing is rotated.
template <class A>
void JoinHeads(const LatentShape& shape, const float* cos, const float* sin, const float* queries,
               const float* compressed, const float* expanded, A* qkv, cudaStream_t stream);

// The gradients of JoinHeads' inputs, rounded to T. Of d_compressed only the last `rope` columns
// are written: sums over heads, ascending, then rotated back. (A, T): (float, float), (float,
// Bf16), (Bf16, Bf16).
template <class A, class T>
void SplitHeads(const LatentShape& shape, const float* cos, const float* sin, const A* d_qkv,
                T* d_queries, T* d_compressed, T* d_expanded, cudaStream_t stream);

}  // namespace fp4lab::gpu
