// Causal grouped-query attention (nn/attention/attention.h) on the device, forward and backward.
//
// The overloads differ in the type of queries, keys and values:
//   float  binary32 products and sums: a few rows per thread block, for tests and the recipe fp32
//   Bf16   products of BF16 values on tensor cores with binary32 sums; scores, softmax and its
//          statistics in binary32; probabilities and their gradients rounded to BF16 before they
//          are multiplied (as FlashAttention-2 and cuDNN do)
// The kernels use no atomics: the gradients of queries and the gradients of keys and values come
// from two kernels.
#pragma once

#include <cstddef>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/nn/attention/attention.h"
#include "fp4lab/nn/attention/tensor_core_attention.h"

namespace fp4lab::gpu {

// qkv (rows, (heads + 2 kv_heads) head_dim): queries, keys, values of a row side by side; out
// (rows, heads * head_dim). statistics (batch, heads, T): m + ln l of each row's scores, where m is
// the maximum and l the sum of exp(score - m); for Bf16 in units of ln 2.
void Attention(const AttentionShape& shape, const float* qkv, float* out, float* statistics,
               cudaStream_t stream);
void Attention(const AttentionShape& shape, const Bf16* qkv, Bf16* out, float* statistics,
               cudaStream_t stream);

// d_qkv is overwritten. dots (batch, heads, T) is scratch: the dot product of dout and out of each
// row.
void AttentionBackward(const AttentionShape& shape, const float* qkv, const float* out,
                       const float* statistics, const float* dout, float* dots, float* d_qkv,
                       cudaStream_t stream);
// The Bf16 overload also applies RopeBackward of kernels.cuh to d_qkv: cos and sin (T, head_dim /
// 2), or null for queries and keys that were not rotated.
void AttentionBackward(const AttentionShape& shape, const Bf16* qkv, const Bf16* out,
                       const float* statistics, const Bf16* dout, const float* cos,
                       const float* sin, float* dots, Bf16* d_qkv, cudaStream_t stream);

}  // namespace fp4lab::gpu
