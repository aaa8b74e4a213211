// Any random Hadamard transform of a linear's operand (transform/hadamard.h), in a pass of its own:
// the tuned kernels of quantize.cuh have sizes 16 and 32 with Transformer Engine's signs.
#pragma once

#include <cstddef>

#include "fp4lab/gpu/memory.cuh"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::gpu {

// Which way: y = H S x, or back, x = S H y (S: the signs, H its own inverse but for rounding).
enum class HadamardWay : bool { kForth, kBack };

// out = the transform of every group of transform.size elements down the columns of x (rows, cols),
// or along its rows; the axis is a multiple of it. The bits of RandomHadamard of
// transform/hadamard.h: exact sums of BF16 values, rounded to BF16; kBack flips signs after it. out
// may be x.
template <class T>
void TransformGroups(const HadamardTransform& transform, HadamardWay way, std::size_t rows,
                     std::size_t cols, bool down_columns, const T* x, T* out, cudaStream_t stream);

}  // namespace fp4lab::gpu
